/** What test/fixture_scripts/tokenizer_files.py wrote: small tokenizers, and what transformers makes of texts and conversations with them. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Message } from '../../src/models/chat/template.js';

export const FIXTURES = join(import.meta.dirname, 'fixtures', 'tokenizers');

/** Ids in base 36, parted by spaces. */
export type ShortIds = string;

export interface ExpectedTokens {
  readonly size: number;
  readonly special: Readonly<Record<string, string>>;
  readonly ids: readonly ShortIds[];
  /** By the string's place: what its ids decode to, where that is not the string. */
  readonly decoded: Readonly<Record<string, string>>;
  /** And without special tokens, where that differs. */
  readonly skipped: Readonly<Record<string, string>>;
  readonly with_special: readonly ShortIds[];
  /** Ids in no order, with what they decode to, with and without special tokens. */
  readonly loose: readonly (readonly [ids: ShortIds, all: string, words: string])[];
}

export interface Expected {
  readonly strings: readonly string[];
  readonly tokenizers: Readonly<Record<string, ExpectedTokens>>;
}

export interface ChatCase {
  /** The place of the conversation. */
  readonly messages: number;
  readonly generation: boolean;
  readonly extra: Readonly<Record<string, unknown>>;
  readonly text?: string;
  readonly ids?: ShortIds;
  readonly error?: string;
}

export interface Chats {
  readonly conversations: readonly (readonly Message[])[];
  readonly variables: Readonly<Record<string, unknown>>;
  /** Small templates with what they render to, or Python's error. */
  readonly expressions: readonly { readonly source: string; readonly text?: string; readonly error?: string }[];
  readonly chats: Readonly<
    Record<string, { readonly template: string; readonly tokenizer: string; readonly cases: readonly ChatCase[] }>
  >;
}

export function readFixture<T>(name: string): T {
  return JSON.parse(readFileSync(join(FIXTURES, name), 'utf8')) as T;
}

export function toIds(short: ShortIds): number[] {
  return short === '' ? [] : short.split(' ').map((id) => Number.parseInt(id, 36));
}
