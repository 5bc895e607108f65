/** From what a language model wrote to the prompt in it. Pure functions. */

/** What an image model is asked, and what was taken away around it. */
export interface Rewrite {
  readonly prompt: string;
  /** Each piece as it stood, in the order in which it was taken away. */
  readonly stripped: readonly string[];
}

/** What a model says before it says the prompt. */
const PREAMBLES = [
  // "Sure! Here is an enhanced version of your prompt:"
  /^(?:(?:sure|certainly|of course|okay|ok|absolutely|great)\b[^\n:]{0,40}?[!,.]\s*)/i,
  /^(?:here(?:'s|’s| is| are)\b[^\n:]{0,120}:\s*)/i,
  /^(?:(?:i(?:'ve|’ve| have)? (?:rewritten|enhanced|improved|rewrote))\b[^\n:]{0,120}:\s*)/i,
];
/** A name that is put before it: "Enhanced prompt:", "**Rewritten prompt:**", "Output:". */
const LABEL =
  /^(?:[*_#>\s]*(?:(?:enhanced|rewritten|improved|revised|final|optimi[sz]ed|new|detailed)\s+)?(?:image\s+)?(?:prompt|rewrite|version|description|output|answer|result)\s*[*_]*\s*[:：]\s*[*_]*\s*)/i;
/** Signs of code and lists that stand around all of it. */
const FENCE = /^```[a-z]*\n?([\s\S]*?)\n?```$/i;
const BULLET = /^(?:[-*•]\s+|\d+[.)]\s+)/;
const EMPHASIS = /^(\*\*|__|\*|_)([\s\S]+)\1$/;

/** Marks that stand on both sides. */
const QUOTES: readonly (readonly [string, string])[] = [
  ['"', '"'],
  ["'", "'"],
  ['“', '”'],
  ['‘', '’'],
  ['«', '»'],
  ['「', '」'],
  ['`', '`'],
];
/** Quotation marks that were never closed, or never opened: an answer that was cut off has one. */
const LOOSE = /^["“”]|["“”]$/;

/** Taken away again and again until nothing is left to take: a label may stand within quotes, and quotes behind a label. */
const MOST_ROUNDS = 8;

/**
 * Strips preambles, labels, quotation marks, fences and emphasis around a prompt, and joins its lines. What stands within it stays: a quotation
 * that is part of the picture is the user's. The prompt may be empty.
 */
export function postprocess(text: string): Rewrite {
  const stripped: string[] = [];
  let prompt = text.trim();
  for (let round = 0; round < MOST_ROUNDS; round++) {
    const before = prompt;
    for (const strip of STEPS) prompt = strip(prompt, (piece) => stripped.push(piece)).trim();
    if (prompt === before) break;
  }
  return { prompt: prompt.replaceAll(/\s+/g, ' '), stripped };
}

type Note = (piece: string) => void;

const STEPS: readonly ((text: string, note: Note) => string)[] = [
  (text, note) => PREAMBLES.reduce((left, pattern) => without(left, pattern, note), text),
  (text, note) => without(text, LABEL, note),
  (text, note) => inside(text, FENCE, 1, note),
  (text, note) => inside(text, EMPHASIS, 2, note),
  (text, note) => (text.includes('\n') ? text : without(text, BULLET, note)),
  unquoted,
  firstParagraph,
];

function without(text: string, pattern: RegExp, note: Note): string {
  const [found] = pattern.exec(text) ?? [];
  if (found === undefined) return text;
  note(found);
  return text.slice(found.length);
}

function inside(text: string, pattern: RegExp, group: number, note: Note): string {
  const found = pattern.exec(text);
  if (found === null) return text;
  const at = found[0].indexOf(found[group]);
  note(`${found[0].slice(0, at)}…${found[0].slice(at + found[group].length)}`);
  return found[group];
}

/** Without the quotation marks around all of it, where none of them stands within: `"a" and "b"` is no quotation. */
function unquoted(text: string, note: Note): string {
  for (const [open, close] of QUOTES) {
    if (text.length < 2 || !text.startsWith(open) || !text.endsWith(close)) continue;
    const inner = text.slice(open.length, text.length - close.length);
    if (inner.includes(open) || inner.includes(close)) continue;
    note(`${open}…${close}`);
    return inner;
  }
  const marks = text.match(/["“”]/g) ?? [];
  return marks.length === 1 ? without(text, LOOSE, note).replace(LOOSE, (mark) => (note(mark), '')) : text;
}

/** What a model adds below the prompt ("This version adds…") is no part of it. */
function firstParagraph(text: string, note: Note): string {
  const end = text.search(/\n\s*\n/);
  if (end < 0) return text;
  note(text.slice(end));
  return text.slice(0, end);
}
