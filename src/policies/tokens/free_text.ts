/** Answers in words: any token of the vocabulary may follow, and one ends the answer. */
import { unrestricted, type AnswerState, type TokenFormat } from './format.js';
import type { Tokenizer } from '../../models/tokenizer/tokenizer.js';

export class FreeText implements TokenFormat {
  readonly size: number;
  readonly endOfSequence: number;
  readonly secondPart = null;
  readonly tokenizerJson: string;

  /** Raises DataError where the vocabulary lacks the end token. */
  constructor(tokenizer: Pick<Tokenizer, 'size' | 'id' | 'json'>, end: string) {
    this.size = tokenizer.size;
    this.endOfSequence = tokenizer.id(end);
    this.tokenizerJson = tokenizer.json;
  }

  start(): AnswerState {
    return unrestricted;
  }
}
