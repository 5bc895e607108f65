/**
 * Separates a reply's answer from the thoughts around it, by structure: models mark thoughts with tags of many names (`<think>`, `◁think▷`,
 * `[THINK]`, `<|channel|>analysis<|message|>`). Any tagged block is a thought unless it ends the reply and contains nothing but a value.
 */
import { readLooseList, readLooseObject } from './loose_object.js';

export interface Answer {
  /** The text outside of all blocks, up to the first block without an end, and the value in a block that ends the reply. */
  readonly body: string;
  /** Whether a block was still open at the end, so that the answer had not begun. */
  readonly open: boolean;
}

interface Marker {
  readonly kind: 'open' | 'close' | 'separator';
  readonly name: string;
  readonly from: number;
  readonly to: number;
}

interface Region {
  readonly block: boolean;
  readonly text: string;
}

/** Objects that are skipped as a whole, so that tags in their strings do not count. Bounds the work on hostile replies. */
const maxObjects = 64;

const name = String.raw`[\p{L}_][\p{L}\p{N}_:.-]*`;
const markers = new RegExp(
  [
    String.raw`<(?<bar>[|\uff5c])[^<>\n]{1,64}[|\uff5c]>`,
    String.raw`<(?<slash1>/?)(?<name1>${name})(?:\s+[\w-]+=[^<>]*)?>`,
    String.raw`[\u25c1\u25c0\u3010\u27e8\u27e6\u00ab\u3008\u300a](?<slash2>/?)(?<name2>${name})[\u25b7\u25b6\u3011\u27e9\u27e7\u00bb\u3009\u300b]`,
    String.raw`\[(?<slash3>/?)(?<name3>[A-Z][A-Z_]+)\]`,
  ].join('|'),
  'gu',
);
const separators = /<[|\uff5c][^<>\n]{1,64}[|\uff5c]>/g;
/** A block of this name is a thought even if it contains nothing but a value. */
const thoughtName = /think|thought|reason/;

/** Finds the answer. `own` is the name of a tag that belongs to the answer's form. Never throws. */
export function withoutThoughts(text: string, own: string | null): Answer {
  let start = 0;
  let stack: Marker[] = [];
  let blocks: { readonly from: Marker; readonly to: Marker }[] = [];
  const breaks: Marker[] = [];
  let prefix: Region | null = null;
  for (const marker of markersIn(text, own)) {
    if (marker.kind === 'separator') breaks.push(marker);
    else if (marker.kind === 'open') stack.push(marker);
    else {
      const at = stack.findLastIndex((open) => open.name === marker.name);
      if (at < 0) {
        // Templates that open the block inside the prompt leave only its end in the reply.
        prefix = blockOf(marker.name, text.slice(start, marker.from));
        start = marker.to;
        [stack, blocks] = [[], []];
      } else {
        const from = stack[at];
        stack = stack.slice(0, at);
        while ((blocks.at(-1)?.from.from ?? -1) > from.from) blocks.pop();
        blocks.push({ from, to: marker });
      }
    }
  }
  // A block that was opened within a pair left the stack with it.
  const unclosed = stack.at(0);
  const end = unclosed?.from ?? text.length;
  const regions: Region[] = prefix === null ? [] : [prefix];
  let at = start;
  let afterBreak = false;
  const addText = (until: number): void => {
    for (const { from, to } of breaks) {
      if (from < at || to > until) continue;
      regions.push({ block: afterBreak, text: text.slice(at, from) });
      [at, afterBreak] = [to, true];
    }
    regions.push({ block: afterBreak, text: text.slice(at, until) });
  };
  for (const { from, to } of blocks) {
    if (from.from >= end) break;
    addText(from.from);
    regions.push(blockOf(from.name, text.slice(from.to, to.from)));
    at = to.to;
  }
  addText(end);
  const outside = regions.flatMap(({ block, text: piece }) => (block ? [] : [piece])).join(' ');
  const last = regions.findLast(({ text: piece }) => !isBlank(piece));
  const answers = unclosed === undefined && last?.block === true && isValue(last.text, own);
  const body = (answers ? `${outside} ${last.text.replace(separators, ' ')}` : outside).trim();
  return { body, open: unclosed !== undefined || (afterBreak && last?.block === true && !answers) };
}

function blockOf(tag: string, text: string): Region {
  // A thought is never the answer. A dash, which is no value, keeps its place.
  return { block: true, text: thoughtName.test(tag) && !isBlank(text) ? '-' : text };
}

/** Blank apart from Markdown around an answer. */
function isBlank(text: string): boolean {
  return /^[\s`*]*$/.test(text);
}

/** Whether a text is one object, list or number, or the answer's own tag, and nothing else. */
function isValue(text: string, own: string | null): boolean {
  const value = text
    .replace(separators, ' ')
    .replace(/```[\w-]*/g, ' ')
    .trim();
  if (own !== null) return new RegExp(`^<${own}>[^<]*</${own}>$`, 'i').test(value);
  if (value.startsWith('{')) return readLooseObject(value, 0).end === value.length;
  if (value.startsWith('[')) return readLooseList(value, 0)?.end === value.length;
  return /^[+-]?\d+(?:\.\d+)?$/.test(value);
}

function* markersIn(text: string, own: string | null): Generator<Marker> {
  let objects = 0;
  let at = 0;
  const nextMarker = new RegExp(markers);
  for (;;) {
    nextMarker.lastIndex = at;
    const found = nextMarker.exec(text);
    const brace = objects < maxObjects ? text.indexOf('{', at) : -1;
    if (brace >= 0 && (found === null || brace < found.index)) {
      objects++;
      const { end } = readLooseObject(text, brace);
      at = end ?? brace + 1;
      continue;
    }
    if (found === null) return;
    const { index: from, groups = {} } = found;
    at = from + found[0].length;
    const tag = (groups['name1'] ?? groups['name2'] ?? groups['name3'] ?? '').toLowerCase();
    if (tag === own) continue;
    const closes = [groups['slash1'], groups['slash2'], groups['slash3']].includes('/');
    const kind = groups['bar'] !== undefined ? 'separator' : closes ? 'close' : 'open';
    yield { kind, name: tag, from, to: at };
  }
}
