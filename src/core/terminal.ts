/** Text for terminals: color, and tables that fit their content or the terminal. */
import stringWidth from 'string-width';
import wrapAnsi from 'wrap-ansi';

export type Cell = string | number | boolean | null;

export interface Column {
  readonly title: string;
  readonly align?: 'left' | 'right';
  /** If the table is too wide, this column wraps. */
  readonly wraps?: boolean;
  /** First column only: if the table is still too wide, a long cell gets its own line, uncut. */
  readonly alone?: boolean;
}

export interface TableOptions {
  /** Columns of the terminal. Without it, every row is one line. */
  readonly width?: number;
  /** Lines below a row, by its index, indented and wrapped. */
  readonly below?: (row: number) => readonly string[];
}

/** Text whose characters all take one column, including the dash of an empty cell. */
const PLAIN = /^[\x20-\x7e–]*$/;
/**
 * Where a long word breaks: after punctuation, but not inside numbers such as 2.5 and 3e-4, and not after
 * semicolons and square brackets, which escape sequences contain.
 */
const BREAK = /(?<=[/_,:=&|(]|\.(?!\d)|(?<!\de)-)/u;
const GAP = 2;
/** Minimum width of a wrapping column. */
const MIN_WIDTH = 12;
/** Minimum width of a first column whose long cells may get their own line. */
const MIN_NAME_WIDTH = 16;
const INDENT = '    ';

/** Rows with titles. Cells may contain colors. Callers escape other control characters. Axes of `rows`: [row, column]. */
export function formatTable(
  columns: readonly Column[],
  rows: readonly (readonly Cell[])[],
  { width = Infinity, below }: TableOptions = {},
): string {
  const cells = rows.map((row) => columns.map((_, index) => cellText(row[index] ?? null)));
  const widths = fittedWidths(columns, cells, width);
  const line = (texts: readonly string[]): string =>
    texts
      .map((text, index) => padded(text, widths[index], columns[index].align))
      .join(' '.repeat(GAP))
      .trimEnd();
  const rule = widths.map((size) => '─'.repeat(size)).join(' '.repeat(GAP));
  const body = cells.flatMap((row, index) => [
    ...rowLines(row, widths).map(line),
    ...(below?.(index) ?? []).flatMap((text) => indented(text, width)),
  ]);
  return [line(columns.map(({ title }) => title)), rule, ...body].map((one) => one.trimEnd()).join('\n');
}

/** Aligned columns without titles. The last one wraps. */
export function alignColumns(rows: readonly (readonly string[])[], width = Infinity): string[] {
  const last = Math.max(0, ...rows.map((row) => row.length)) - 1;
  const widths = Array.from({ length: last + 1 }, (_, i) => Math.max(0, ...rows.map((row) => textWidth(row[i] ?? ''))));
  const before = widths.slice(0, -1).reduce((sum, size) => sum + size + GAP, 0);
  const room = Math.max(MIN_WIDTH, width - before);
  return rows.flatMap((row) => {
    const wrapped = wrap(row[last] ?? '', room);
    return wrapped.map((text, i) =>
      [...widths.slice(0, -1).map((size, at) => padded(i === 0 ? (row[at] ?? '') : '', size)), text]
        .join(' '.repeat(GAP))
        .trimEnd(),
    );
  });
}

/** The terminal columns of a text: wide letters take two, escape sequences none. */
export function textWidth(text: string): number {
  // The library checks each letter: seconds in a table of ten thousand rows.
  return PLAIN.test(text) ? text.length : stringWidth(text);
}

/** Wraps a text to lines of at most `width` columns, between words if possible, and in longer words, such as paths and keys, after punctuation. */
export function wrap(text: string, width: number): string[] {
  if (PLAIN.test(text) && text.length <= width && text.trim() === text) return [text];
  if (!Number.isFinite(width)) return text.split('\n');
  const breakable = text.replace(/\S+/gu, (word) => (textWidth(word) <= width ? word : packed(word, width).join('\n')));
  return wrapAnsi(breakable, width, { hard: true }).split('\n');
}

/** Splits a long word into parts of at most `width` columns, as long as possible. A longer piece without punctuation stays whole. */
function packed(word: string, width: number): string[] {
  const parts: string[] = [];
  for (const piece of word.split(BREAK)) {
    const last = parts.at(-1);
    if (last !== undefined && textWidth(last) + textWidth(piece) <= width) parts[parts.length - 1] = last + piece;
    else parts.push(piece);
  }
  return parts;
}

/** Cuts a text in its middle if it is too wide: names differ at their ends. */
export function clip(text: string, width: number): string {
  if (textWidth(text) <= width) return text;
  const letters = [...text];
  if (width < 3) return letters.slice(0, Math.max(0, width)).join('');
  const take = (from: readonly string[], room: number): string[] => {
    const taken: string[] = [];
    for (let used = 0; taken.length < from.length;) {
      used += textWidth(from[taken.length]);
      if (used > room) break;
      taken.push(from[taken.length]);
    }
    return taken;
  };
  const tail = take([...letters].reverse(), Math.floor((width - 1) / 2)).reverse();
  return `${take(letters, width - 1 - Math.floor((width - 1) / 2)).join('')}…${tail.join('')}`;
}

/** The natural widths if they fit. Otherwise wrapping columns shrink first, beginning with the widest, then the first column. */
function fittedWidths(columns: readonly Column[], cells: readonly (readonly string[])[], width: number): number[] {
  const widths = columns.map(({ title }, index) =>
    Math.max(textWidth(title), ...cells.map((row) => textWidth(row[index]))),
  );
  const excess = (): number => widths.reduce((sum, size) => sum + size + GAP, -GAP) - width;
  const wrapping = columns.flatMap(({ wraps }, index) => (wraps === true ? [index] : []));
  while (excess() > 0) {
    const widest = wrapping.filter((index) => widths[index] > MIN_WIDTH).sort((a, b) => widths[b] - widths[a])[0];
    if (widest === undefined) break;
    const second = Math.max(MIN_WIDTH, ...wrapping.filter((index) => index !== widest).map((index) => widths[index]));
    const towards = widths[widest] > second ? widths[widest] - second : 1;
    widths[widest] -= Math.max(1, Math.min(excess(), towards, widths[widest] - MIN_WIDTH));
  }
  const over = excess();
  if (over > 0 && columns[0].alone === true) {
    widths[0] = Math.max(Math.min(widths[0], MIN_NAME_WIDTH), widths[0] - over);
  }
  return widths;
}

/** The lines of a row. A name that is too long gets its own line above the rest. */
function rowLines(row: readonly string[], widths: readonly number[]): string[][] {
  const long = textWidth(row[0]) > widths[0];
  const columns = row.map((text, index) => (index === 0 ? [long ? '' : text] : wrap(text, widths[index])));
  const height = Math.max(...columns.map((lines) => lines.length));
  const lines = Array.from({ length: height }, (_, at) => columns.map((texts) => texts[at] ?? ''));
  return long ? [[row[0], ...row.slice(1).map(() => '')], ...lines] : lines;
}

function indented(text: string, width: number): string[] {
  return wrap(text, width - INDENT.length).map((line) => `${INDENT}${line}`);
}

function padded(text: string, width: number, align: Column['align'] = 'left'): string {
  const padding = ' '.repeat(Math.max(0, width - textWidth(text)));
  return align === 'right' ? padding + text : text + padding;
}

function cellText(cell: Cell): string {
  return cell === null ? '–' : String(cell);
}

const codes = { red: 31, green: 32, yellow: 33, cyan: 36, dim: 2, bold: 1 } as const;
export type Style = keyof typeof codes;

/** Gives a text a style, or returns it unchanged. */
export type Paint = (text: string, style: Style) => string;

/** Whether a stream gets color: a terminal, unless NO_COLOR is set. */
export function hasColor(stream: Pick<NodeJS.WriteStream, 'isTTY'>, env: NodeJS.ProcessEnv = process.env): boolean {
  return stream.isTTY && (env['NO_COLOR'] ?? '') === '';
}

/** How to style text on a stream: in color on a terminal that supports it, else not at all. */
export function painter(stream: Pick<NodeJS.WriteStream, 'isTTY'>): Paint {
  return hasColor(stream) ? (text, style) => `\u001b[${codes[style]}m${text}\u001b[0m` : plainPaint;
}

export const plainPaint: Paint = (text) => text;
