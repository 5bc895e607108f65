/** Encodes prompts for an image model of the tiny world without weights, by each known word and its position. */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { z } from 'zod';
import { CheckpointError } from '../../core/errors.js';
import { readTextFile } from '../../core/text.js';

/** A prompt as an image model gets it. */
export interface EncodedPrompt {
  /** [T, width] */
  readonly text: Float32Array;
  /** [pooledWidth], if there is a summary. */
  readonly pooled: Float32Array | null;
  /** Number of tokens that were cut from its end. */
  readonly unread: number;
}

/** Encodes prompts as the tokens of a flow transformer. */
export interface PromptEncoder {
  /** Width of a token. */
  readonly width: number;
  /** Width of the pooled summary. 0 if there is none. */
  readonly pooledWidth: number;
  encode(prompt: string): Promise<EncodedPrompt>;
  /** The prompt of classifier-free guidance. Absent if text and summary are zeros. */
  blank?(): Promise<EncodedPrompt>;
  /** Number of tokens that `encode` cuts from the prompt's end. Uses only the tokenizer. */
  unread(prompt: string): Promise<number>;
  dispose(): Promise<void>;
}

export const WORDS_FILE = 'word_encoder.json';

const schema = z.object({ words: z.array(z.string().min(1)).min(1), length: z.int().positive() });
type Known = z.output<typeof schema>;

/** The words of a prompt, in lower case. */
export function wordsIn(prompt: string): string[] {
  return prompt.toLowerCase().match(/[\p{L}\p{N}]+/gu) ?? [];
}

export class WordEncoder implements PromptEncoder {
  readonly pooledWidth = 0;
  readonly #ids: ReadonlyMap<string, number>;

  /** `known.length` is the number of words that are read of a prompt. */
  constructor(private readonly known: Known) {
    this.#ids = new Map(known.words.map((word, id) => [word, id]));
  }

  /**
   * The encoder in a model's folder. Null if another kind of encoder encodes its prompts. Raises CheckpointError for an
   * invalid file.
   */
  static in(folder: string): WordEncoder | null {
    const file = join(folder, WORDS_FILE);
    if (!existsSync(file)) return null;
    try {
      return new WordEncoder(schema.parse(JSON.parse(readTextFile(file, CheckpointError))));
    } catch (cause) {
      throw new CheckpointError('found no vocabulary; allowed: {"words": […], "length": 16}', {
        where: file,
        next: 'Copy the model again, or retrain it.',
        cause,
      });
    }
  }

  /** Width of a token: one feature for each known word, one for other words, one for no word, and its position. */
  get width(): number {
    return this.known.words.length + 2 + this.known.length;
  }

  encode(prompt: string): Promise<EncodedPrompt> {
    const { words, length } = this.known;
    const [other, none] = [words.length, words.length + 1];
    const promptWords = wordsIn(prompt);
    const text = new Float32Array(length * this.width);
    for (let at = 0; at < length; at++) {
      text[at * this.width + (at < promptWords.length ? (this.#ids.get(promptWords[at]) ?? other) : none)] = 1;
      text[at * this.width + words.length + 2 + at] = 1;
    }
    return Promise.resolve({ text, pooled: null, unread: this.#over(promptWords) });
  }

  unread(prompt: string): Promise<number> {
    return Promise.resolve(this.#over(wordsIn(prompt)));
  }

  #over(words: readonly string[]): number {
    return Math.max(0, words.length - this.known.length);
  }

  /** The file that lists the words. */
  json(): string {
    return `${JSON.stringify(this.known)}\n`;
  }

  dispose(): Promise<void> {
    return Promise.resolve();
  }
}
