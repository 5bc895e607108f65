/** Answers in words: any token of the vocabulary may come next, and some end the answer. */
import { unrestricted, type AnswerState, type TokenFormat } from './format.js';
import type { Tokenizer } from '../../models/tokenizer/tokenizer.js';

export class FreeText implements TokenFormat {
  readonly size: number;
  readonly secondPart = null;
  readonly tokenizerFiles: Readonly<Record<string, string>>;

  constructor(
    { size, files }: Pick<Tokenizer, 'size' | 'files'>,
    readonly ends: ReadonlySet<number>,
  ) {
    this.size = size;
    this.tokenizerFiles = files;
  }

  start(): AnswerState {
    return unrestricted;
  }
}
