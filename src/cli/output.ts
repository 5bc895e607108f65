/** Printing: tables, JSON, and colour where a person is watching. */

const codes = { red: 31, green: 32, yellow: 33, dim: 2, bold: 1 } as const;
export type Style = keyof typeof codes;

/** Whether a stream gets colour: a terminal, unless NO_COLOR is set. */
export function hasColour(stream: NodeJS.WriteStream, env: NodeJS.ProcessEnv = process.env): boolean {
  return stream.isTTY && (env['NO_COLOR'] ?? '') === '';
}

/** Text in a style on a terminal, as it is elsewhere. */
export function styled(text: string, style: Style, stream: NodeJS.WriteStream = process.stdout): string {
  return hasColour(stream) ? `\u001b[${codes[style]}m${text}\u001b[0m` : text;
}

/** One line on standard output. */
export function printLine(text = ''): void {
  process.stdout.write(`${text}\n`);
}

/** One line on standard error. */
export function printError(text: string): void {
  process.stderr.write(`${text}\n`);
}

/** On standard error, so that standard output stays one document. */
export function printWarnings(warnings: readonly string[]): void {
  for (const warning of warnings) printError(`${styled('warning', 'yellow', process.stderr)}: ${warning}`);
}

/** One JSON document on standard output, for machines. */
export function printJson(value: unknown): void {
  process.stdout.write(`${JSON.stringify(value, null, 2)}\n`);
}

export type Cell = string | number | boolean | null;

export interface Column {
  readonly title: string;
  readonly align?: 'left' | 'right';
}

/** Rows under titles, columns as wide as their content. Axes of `rows`: [row, column]. */
export function formatTable(columns: readonly Column[], rows: readonly (readonly Cell[])[]): string {
  const cells = rows.map((row) => columns.map((_, index) => cellText(row[index] ?? null)));
  const widths = columns.map((column, index) =>
    Math.max(width(column.title), ...cells.map((row) => width(row[index]))),
  );
  const line = (texts: readonly string[]): string =>
    texts
      .map((text, index) => {
        const padding = ' '.repeat(widths[index] - width(text));
        return columns[index].align === 'right' ? padding + text : text + padding;
      })
      .join('  ')
      .trimEnd();
  const rule = widths.map((size) => '─'.repeat(size)).join('  ');
  return [line(columns.map((column) => column.title)), rule, ...cells.map(line)].join('\n');
}

function cellText(cell: Cell): string {
  return cell === null ? '–' : String(cell);
}

const escapes = new RegExp('\\u001b\\[[0-9;]*m', 'g');

/** Columns on a terminal: escape sequences take none. */
function width(text: string): number {
  return [...text.replace(escapes, '')].length;
}
