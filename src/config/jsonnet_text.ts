/** Reads imports and fields from the text of a Jsonnet file, with the lexical rules of libjsonnet. Evaluates nothing. */

/** An import expression. */
export interface ImportToken {
  readonly kind: 'import' | 'importstr' | 'importbin';
  /** The path as written, with escapes decoded. */
  readonly target: string;
  /** Offset of the keyword in the text. */
  readonly at: number;
  readonly place: ObjectPlace;
}

/** Stands for the name of a field whose name is an expression. */
export const COMPUTED = '*';

/** A field of an object literal. */
export interface FieldToken {
  /** COMPUTED for a name that is an expression. */
  readonly name: string;
  /** Offset of the name in the text. */
  readonly at: number;
  /** Whether it is `+:`, which merges with the field of the same name below. */
  readonly merges: boolean;
  /** Whether the value begins with an object literal. */
  readonly opensObject: boolean;
  /** The object that it is a field of. */
  readonly place: ObjectPlace;
}

/** A place in a file: the names of the surrounding fields, outermost first. */
export interface ObjectPlace {
  readonly path: readonly string[];
  /** Whether the place is inside a `local`, which any field may use. */
  readonly isLocal: boolean;
}

export interface JsonnetText {
  /** Imports and fields in the order of the text. */
  readonly imports: readonly ImportToken[];
  readonly fields: readonly FieldToken[];
  /** All string literals, decoded, without text blocks. */
  readonly strings: readonly string[];
}

interface Token {
  readonly kind: 'word' | 'string' | 'block' | 'symbol';
  /** A word, a decoded string, or one character. */
  readonly text: string;
  readonly at: number;
}

const SPACE_AND_COMMENTS = /(?:\s|\/\/[^\n]*|#[^\n]*|\/\*[\s\S]*?(?:\*\/|$))+/y;
const WORD = /[A-Za-z_]\w*/y;
const NUMBER = /\d[\d.]*(?:[eE][+-]?\d+)?/y;
const STRINGS = [
  { pattern: /@'([^']*(?:''[^']*)*)'/y, decode: (body: string) => body.replaceAll("''", "'") },
  { pattern: /@"([^"]*(?:""[^"]*)*)"/y, decode: (body: string) => body.replaceAll('""', '"') },
  { pattern: /'([^'\\]*(?:\\[\s\S][^'\\]*)*)'/y, decode: unescaped },
  { pattern: /"([^"\\]*(?:\\[\s\S][^"\\]*)*)"/y, decode: unescaped },
] as const;

const ESCAPES: Readonly<Record<string, string>> = { b: '\b', f: '\f', n: '\n', r: '\r', t: '\t' };

function unescaped(body: string): string {
  return body.replace(/\\(u[0-9a-fA-F]{4}|[\s\S])/g, (_, escape: string) =>
    escape.length > 1 ? String.fromCharCode(parseInt(escape.slice(1), 16)) : (ESCAPES[escape] ?? escape),
  );
}

/** The end of the text block whose `|||` is at `start`: the first line with another indentation. */
function blockEnd(text: string, start: number): number {
  const head = /\|\|\|[ \t\r]*\n\n*/y;
  head.lastIndex = start;
  if (!head.test(text)) return start + 3;
  let at = head.lastIndex;
  const indent = /^[ \t]*/.exec(text.slice(at, text.indexOf('\n', at) + 1))?.[0] ?? '';
  while (at < text.length && indent !== '' && text.startsWith(indent, at)) {
    const next = text.indexOf('\n', at);
    if (next < 0) return text.length;
    at = next;
    while (text[at] === '\n') at += 1;
  }
  const close = /[ \t]*\|\|\|/y;
  close.lastIndex = at;
  return close.test(text) ? close.lastIndex : text.length;
}

/** The tokens of a text, which may be invalid Jsonnet. */
function* tokensOf(text: string): Generator<Token> {
  const match = (pattern: RegExp, at: number): RegExpExecArray | null => {
    pattern.lastIndex = at;
    return pattern.exec(text);
  };
  let at = 0;
  while (at < text.length) {
    const skipped = match(SPACE_AND_COMMENTS, at) ?? match(NUMBER, at);
    if (skipped !== null) {
      at += skipped[0].length;
      continue;
    }
    const start = at;
    const word = match(WORD, at);
    const strings = word === null ? STRINGS : [];
    const string = strings
      .map((one) => ({ ...one, found: match(one.pattern, start) }))
      .find(({ found }) => found !== null);
    if (word !== null) {
      at += word[0].length;
      yield { kind: 'word', text: word[0], at: start };
    } else if (string !== undefined && string.found !== null) {
      at += string.found[0].length;
      yield { kind: 'string', text: string.decode(string.found[1]), at: start };
    } else if (text.startsWith('|||', at)) {
      at = blockEnd(text, at);
      yield { kind: 'block', text: '', at: start };
    } else {
      at += 1;
      yield { kind: 'symbol', text: text[start], at: start };
    }
  }
}

/** An open bracket. For a brace, the state of the object. */
interface Frame {
  readonly isObject: boolean;
  readonly place: ObjectPlace;
  /** The field whose value is being read. Null between fields and in a local. */
  field: string | null;
  inLocal: boolean;
}

/** Reads a text that Jsonnet may not have checked. */
export function readJsonnet(text: string): JsonnetText {
  const tokens = [...tokensOf(text)];
  const imports: ImportToken[] = [];
  const fields: FieldToken[] = [];
  const strings: string[] = [];
  const frames: Frame[] = [{ isObject: false, place: { path: [], isLocal: false }, field: null, inLocal: false }];
  const symbolAt = (index: number): string => (tokens[index]?.kind === 'symbol' ? tokens[index].text : '');
  const closing = (index: number): number => {
    for (let [at, depth] = [index, 0]; at < tokens.length; at += 1) {
      if ('{[('.includes(symbolAt(at) || ' ')) depth += 1;
      if ('}])'.includes(symbolAt(at) || ' ')) depth -= 1;
      if (depth === 0) return at;
    }
    return tokens.length;
  };
  tokens.forEach((token, index) => {
    const frame = frames[frames.length - 1];
    if (token.kind === 'string') strings.push(token.text);
    if (token.kind === 'symbol') readSymbol(token.text, frames);
    else if (token.kind === 'word' && IMPORTS.has(token.text) && tokens[index + 1]?.kind === 'string') {
      const kind = token.text as ImportToken['kind'];
      imports.push({ kind, target: tokens[index + 1].text, at: token.at, place: placeIn(frames) });
    } else if (token.text === 'local' && token.kind === 'word') {
      frame.inLocal = true;
    }
    if (!frame.isObject || token.kind === 'block' || !['{', ','].includes(symbolAt(index - 1))) return;
    const isComputed = symbolAt(index) === '[';
    if (token.kind === 'symbol' && !isComputed) return;
    const end = isComputed ? closing(index) : index;
    const merges = symbolAt(end + 1) === '+';
    let next = end + (merges ? 2 : 1);
    if (symbolAt(next) !== ':') return;
    while (symbolAt(next) === ':') next += 1;
    const name = isComputed ? COMPUTED : token.text;
    fields.push({ name, at: token.at, merges, opensObject: symbolAt(next) === '{', place: frame.place });
    frame.field = name;
    frame.inLocal = false;
  });
  return { imports, fields, strings };
}

const IMPORTS: ReadonlySet<string> = new Set(['import', 'importstr', 'importbin']);

/** The place of the next token. */
function placeIn(frames: readonly Frame[]): ObjectPlace {
  const { isObject, place, field, inLocal } = frames[frames.length - 1];
  if (inLocal) return { path: [], isLocal: true };
  return isObject && field !== null ? { path: [...place.path, field], isLocal: place.isLocal } : place;
}

function readSymbol(symbol: string, frames: Frame[]): void {
  const frame = frames[frames.length - 1];
  if ('{[('.includes(symbol)) {
    const place = placeIn(frames);
    frames.push({ isObject: symbol === '{', place, field: null, inLocal: false });
  } else if ('}])'.includes(symbol)) {
    if (frames.length > 1) frames.pop();
  } else if (symbol === ',' && frame.isObject) {
    frame.field = null;
    frame.inLocal = false;
  } else if (symbol === ';') {
    frame.inLocal = false;
  }
}
