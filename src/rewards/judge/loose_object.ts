/**
 * A tolerant reader for the objects that language models write: JSON, and its usual errors (trailing commas, single quotes, bare keys, raw
 * line breaks in strings, Python's None and True, a missing comma between fields, full-width commas and colons, a reply that was cut off).
 * It repairs punctuation and never values. A number or a list counts only if its end was read, because the cut-off `[7, 1` may have been
 * the start of `[7, 10]`.
 */

/** A value for the purpose of scores: a number may be in quotes, and a value that is none of these is `other`. */
export type LooseValue =
  | { readonly kind: 'number'; readonly number: number }
  | { readonly kind: 'list'; readonly items: readonly LooseValue[] }
  | { readonly kind: 'object'; readonly fields: LooseFields }
  /** A string in quotes. */
  | { readonly kind: 'text'; readonly text: string }
  | { readonly kind: 'other' };

/** All values by lower-case name. A value without an end is `other`. */
export type LooseFields = ReadonlyMap<string, readonly LooseValue[]>;

export interface LooseObject {
  readonly fields: LooseFields;
  /** Index after the closing brace. Null if the object ended early or could not be read further. */
  readonly end: number | null;
}

/** No judge was asked for deeper nesting than this. The bound keeps hostile replies off the stack. */
const maxDepth = 16;

const other: LooseValue = { kind: 'other' };
const closers: Readonly<Record<string, string>> = { '"': '"', "'": "'", '\u201c': '\u201d', '\u2018': '\u2019' };
const numberPattern = /[+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/y;
const wordPattern = /[\p{L}_$][\p{L}\p{N}_$.-]*/uy;
const spacePattern = /\s*/y;
const quotedNumber = /^\s*[+-]?\d+(?:\.\d+)?\s*$/;
const commas: readonly string[] = [',', '\uff0c'];

/** Stops reading. Everything complete until then stays. */
class Broken extends Error {}
/** One error for all: no one reads its stack, which costs more to create than a reply to read. */
const broken = new Broken();

/** Reads the object that opens at `text[start]` (a `{`). Never throws. */
export function readLooseObject(text: string, start: number): LooseObject {
  const fields = new Map<string, LooseValue[]>();
  try {
    const reader = new LooseReader(text, start);
    reader.object(fields, 0);
    return { fields, end: reader.position };
  } catch (error) {
    if (error instanceof Broken) return { fields, end: null };
    throw error;
  }
}

/** Reads the list that opens at `text[start]` (a `[`). Null if it is not complete. Never throws. */
export function readLooseList(text: string, start: number): { items: readonly LooseValue[]; end: number } | null {
  try {
    const reader = new LooseReader(text, start);
    const items = reader.list(0);
    return { items, end: reader.position };
  } catch (error) {
    if (error instanceof Broken) return null;
    throw error;
  }
}

class LooseReader {
  position: number;
  readonly #text: string;

  constructor(text: string, position: number) {
    this.#text = text;
    this.position = position;
  }

  object(fields: Map<string, LooseValue[]>, depth: number): void {
    if (depth > maxDepth) throw broken;
    this.position++;
    for (;;) {
      this.#skip(spacePattern);
      if (this.#peek() === '}') break;
      const name = this.#key().toLowerCase();
      this.#skip(spacePattern);
      if (this.#peek() !== ':' && this.#peek() !== '\uff1a') throw broken;
      this.position++;
      const values = fields.get(name) ?? [];
      fields.set(name, values);
      const place = values.push(other) - 1;
      values[place] = this.#value(depth + 1);
      this.#separator();
    }
    this.position++;
  }

  list(depth: number): readonly LooseValue[] {
    if (depth > maxDepth) throw broken;
    const items: LooseValue[] = [];
    this.position++;
    for (;;) {
      this.#skip(spacePattern);
      if (this.#peek() === ']') break;
      items.push(this.#value(depth + 1));
      this.#skip(spacePattern);
      if (this.#peek() === ']') break;
      // Unlike between fields, a missing comma is not repaired here: `[1 0]` may be one number or two.
      if (!commas.includes(this.#peek())) throw broken;
      this.position++;
    }
    this.position++;
    return items;
  }

  #value(depth: number): LooseValue {
    this.#skip(spacePattern);
    const character = this.#peek();
    if (character === '{') {
      const fields = new Map<string, LooseValue[]>();
      this.object(fields, depth);
      return { kind: 'object', fields };
    }
    if (character === '[') return { kind: 'list', items: this.list(depth) };
    if (Object.hasOwn(closers, character)) {
      const content = this.#string();
      return quotedNumber.test(content) ? { kind: 'number', number: Number(content) } : { kind: 'text', text: content };
    }
    const number = this.#match(numberPattern);
    if (number !== '') {
      // The number must end here: not at the end of a cut-off reply, nor as in `7/10` or `7th`.
      if (!/[\s,\uff0c}\]]/.test(this.#peek())) throw broken;
      return { kind: 'number', number: Number(number) };
    }
    if (this.#match(wordPattern) === '') throw broken;
    return other;
  }

  #key(): string {
    if (Object.hasOwn(closers, this.#peek())) return this.#string();
    const word = this.#match(wordPattern);
    if (word === '') throw broken;
    return word;
  }

  /** Reads a quoted string. A quote inside it ends it only if the syntax could continue there. */
  #string(): string {
    const text = this.#text;
    const closer = closers[this.#peek()];
    const from = ++this.position;
    for (; this.position < text.length; this.position++) {
      const character = text[this.position];
      if (character === '\\') this.position++;
      else if (character === closer && this.#endsString()) return text.slice(from, this.position++);
    }
    throw broken;
  }

  #endsString(): boolean {
    for (let next = this.position + 1; next < this.#text.length; next++) {
      const character = this.#text[next];
      if (character === '\n') return true;
      if (/\S/.test(character)) return /[,\uff0c}\]:\uff1a"']/.test(character);
    }
    return true;
  }

  /** Skips the commas between two fields: none, one or several. */
  #separator(): void {
    this.#skip(spacePattern);
    while (commas.includes(this.#peek())) {
      this.position++;
      this.#skip(spacePattern);
    }
  }

  #peek(): string {
    return this.#text.charAt(this.position);
  }

  #skip(pattern: RegExp): void {
    this.#match(pattern);
  }

  #match(pattern: RegExp): string {
    pattern.lastIndex = this.position;
    const found = pattern.exec(this.#text)?.[0] ?? '';
    this.position += found.length;
    return found;
  }
}
