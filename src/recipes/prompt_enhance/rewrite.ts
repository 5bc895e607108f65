/** Extracts the rewritten prompt from the text of a language model. Pure functions. */

/** The prompt for an image model, and the text that was stripped around it. */
export interface Rewrite {
  readonly prompt: string;
  /** The stripped pieces, unchanged, in the order of stripping. */
  readonly stripped: readonly string[];
}

const OF_A_PROMPT = String.raw`\b(?:prompt|version|rewrite|description)s?\b`;
/**
 * "Here is an enhanced version of your prompt:". Without a word like "prompt", it may describe the image: "Here are two
 * cats: one red, one blue".
 */
const HERE = String.raw`here(?:'s|’s| is| are)\b[^\n:]{0,100}?${OF_A_PROMPT}[^\n:]{0,60}:\s*`;
const DONE = String.raw`i(?:'ve|’ve| have)? (?:rewritten|enhanced|improved|rewrote)\b[^\n:]{0,120}:\s*`;
/** A label before the prompt: "Enhanced prompt:", "**Rewritten prompt:**", "Output:". */
const LABEL = String.raw`[*_#>\s]*(?:(?:enhanced|rewritten|improved|revised|final|optimi[sz]ed|new|detailed)\s+)?(?:image\s+)?(?:prompt|rewrite|version|description|output|answer|result)\s*[*_]*\s*[:：]\s*[*_]*\s*`;
/**
 * "Sure!". Also "Great idea!" if a preamble or label follows, because many prompts begin with "Great" or "Absolutely".
 */
const ASSENT = String.raw`(?:sure|certainly|of course|okay|ok|absolutely|great)(?:[!,.]|\b[^\n:]{0,40}?[!,.](?=\s*(?:${HERE}|${DONE}|${LABEL})))\s*`;

/** Phrases that a model may write before the prompt. */
const BEFORE = [ASSENT, HERE, DONE, LABEL].map((source) => new RegExp(`^(?:${source})`, 'i'));
/** A code fence around the whole text. A word after the fence is a language if its line ends there. */
const FENCE = /^```(?:[a-z]*\n)?([\s\S]*?)\n?```$/i;
/** A number of three digits or more is a year or a count. */
const BULLET = /^(?:[-*•]\s+|\d{1,2}[.)]\s+)/;

/** Pairs of marks around a text. If two begin alike, the longer one comes first. */
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
/** Quotation marks that are not closed or not opened, as in a truncated answer. */
const LOOSE = /^["“”]|["“”]$/;

/** Maximum number of rounds of stripping. A label may be within quotes, and quotes may follow a label. */
const MAX_ROUNDS = 8;

/**
 * Strips preambles, labels, quotation marks, fences and emphasis around a prompt, and joins its lines. Quotations
 * inside the prompt are part of the image and stay. The prompt may be empty.
 */
export function postprocess(text: string): Rewrite {
  const stripped: string[] = [];
  let prompt = text.trim();
  for (let round = 0; round < MAX_ROUNDS; round++) {
    const before = prompt;
    for (const strip of STEPS) prompt = strip(prompt, (piece) => stripped.push(piece)).trim();
    if (prompt === before) break;
  }
  return { prompt: prompt.replaceAll(/\s+/g, ' '), stripped };
}

/** Like `postprocess`, with the answer's thoughts as the first stripped piece unless they are null or empty. */
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

/**
 * Removes quotation marks or emphasis around the whole text, unless they also occur inside: `"a" and "b"` is not one
 * quotation, and `*a* and *b*` is not one emphasis.
 */
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

/** Text below the prompt ("This version adds…") is not part of it. */
function firstParagraph(text: string, note: Note): string {
  const end = text.search(/\n\s*\n/);
  if (end < 0) return text;
  note(text.slice(end));
  return text.slice(0, end);
}
