/** From what a language model wrote to the prompt in it. Pure functions. */

/** What an image model is asked, and what was taken away around it. */
export interface Rewrite {
  readonly prompt: string;
  /** Each piece as it stood, in the order in which it was taken away. */
  readonly stripped: readonly string[];
}

const OF_A_PROMPT = String.raw`\b(?:prompt|version|rewrite|description)s?\b`;
/** "Here is an enhanced version of your prompt:". Without such a word it may be the picture: "Here are two cats: one red, one blue". */
const HERE = String.raw`here(?:'s|’s| is| are)\b[^\n:]{0,100}?${OF_A_PROMPT}[^\n:]{0,60}:\s*`;
const DONE = String.raw`i(?:'ve|’ve| have)? (?:rewritten|enhanced|improved|rewrote)\b[^\n:]{0,120}:\s*`;
/** A name that is put before it: "Enhanced prompt:", "**Rewritten prompt:**", "Output:". */
const LABEL = String.raw`[*_#>\s]*(?:(?:enhanced|rewritten|improved|revised|final|optimi[sz]ed|new|detailed)\s+)?(?:image\s+)?(?:prompt|rewrite|version|description|output|answer|result)\s*[*_]*\s*[:：]\s*[*_]*\s*`;
/** "Sure!", and "Great idea!" where what comes next is surely no prompt: many a prompt begins with "Great" or "Absolutely". */
const ASSENT = String.raw`(?:sure|certainly|of course|okay|ok|absolutely|great)(?:[!,.]|\b[^\n:]{0,40}?[!,.](?=\s*(?:${HERE}|${DONE}|${LABEL})))\s*`;

/** What a model says before it says the prompt. */
const BEFORE = [ASSENT, HERE, DONE, LABEL].map((source) => new RegExp(`^(?:${source})`, 'i'));
/** Signs of code and lists that stand around all of it; a word behind a fence is a language where its line ends. */
const FENCE = /^```(?:[a-z]*\n)?([\s\S]*?)\n?```$/i;
/** A number of three digits or more is a year or a count. */
const BULLET = /^(?:[-*•]\s+|\d{1,2}[.)]\s+)/;

/** Marks that stand on both sides, of those that begin alike the longer first. */
const AROUND: readonly (readonly [string, string])[] = [
  ['**', '**'],
  ['__', '__'],
  ['*', '*'],
  ['_', '_'],
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

/** As `postprocess`, of an answer whose thoughts are the first piece that is taken away; null or '' where there are none. */
export function rewriteOf(answer: string, thought: string | null = null): Rewrite {
  const { prompt, stripped } = postprocess(answer);
  return { prompt, stripped: thought === null || thought === '' ? stripped : [thought, ...stripped] };
}

type Note = (piece: string) => void;

const STEPS: readonly ((text: string, note: Note) => string)[] = [
  (text, note) => BEFORE.reduce((left, pattern) => without(left, pattern, note), text),
  unfenced,
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

function unfenced(text: string, note: Note): string {
  const found = FENCE.exec(text);
  if (found === null) return text;
  const at = found[0].indexOf(found[1]);
  note(`${found[0].slice(0, at)}…${found[0].slice(at + found[1].length)}`);
  return found[1];
}

/** Without the quotation marks or emphasis around all of it, where none of them stands within: `"a" and "b"` is no quotation, and `*a* and *b*` not emphasised. */
function unquoted(text: string, note: Note): string {
  for (const [open, close] of AROUND) {
    if (text.length < open.length + close.length || !text.startsWith(open) || !text.endsWith(close)) continue;
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
