/**
 * The joint vocabulary of text and vision tokens, and how images are spelt in it (BAAI's Emu3):
 * image start, "height*width", image token, the rows of codes each with an end of line, end of frame, image end.
 */
import type { CodeGrid } from '../../../data/types.js';
import { CheckpointError } from '../../../core/errors.js';
import { wordTokenizerJson, type WordTokenizer } from '../../../models/tokenizer/words.js';

export const SPECIAL = {
  pad: '<|endoftext|>',
  bos: '<|extra_203|>',
  eos: '<|extra_204|>',
  imageStart: '<|image start|>',
  imageToken: '<|image token|>',
  endOfLine: '<|extra_200|>',
  endOfFrame: '<|extra_201|>',
  imageEnd: '<|image end|>',
  startThinking: '<|start thinking|>',
  endThinking: '<|end thinking|>',
} as const;

const USER = 'USER:';
const ASSISTANT = 'ASSISTANT:';

/** Words that prompts and image headers need besides those of the data. */
const STRUCTURE_WORDS: readonly string[] = [USER, ASSISTANT, '*', ...'0123456789'];

/** The words of EARL's thinking prefill. */
export const THINKING_WORDS: readonly string[] = ["Let's", 'think', 'step', 'by', 'step.'];

/** Emu3's spelling of a vision code's token. */
export function visualToken(code: number): string {
  return `<|visual token ${String(code).padStart(6, '0')}|>`;
}

/** `tokenizer.json` of a joint vocabulary: special tokens, the words, one token per vision code. */
export function jointVocabularyJson(words: readonly string[], visionCodes: number): string {
  const codes = Array.from({ length: visionCodes }, (_, code) => visualToken(code));
  return wordTokenizerJson(Object.values(SPECIAL), [...STRUCTURE_WORDS, ...words], codes);
}

type SpecialIds = { readonly [K in keyof typeof SPECIAL]: number };

/** What differs between the programs that train such policies. Prompts and answers of one policy always have the same. */
export interface Emu3Forms {
  /** Whether prompts say USER: and ASSISTANT: before their parts. */
  readonly chatWords: boolean;
  /** Who writes "height*width" of an answer's image. A sampled one may say anything: then the rows alone tell the size. */
  readonly imageHeader: 'sampled' | 'forced';
  /** Whether an answer ends with its image. */
  readonly endAfterImage: boolean;
}

/** An answer taken apart. `grid` is null where it holds no whole image. */
export interface ParsedAnswer {
  readonly text: string;
  readonly grid: CodeGrid | null;
}

export class TokenSpace {
  readonly special: SpecialIds;
  readonly visionStart: number;
  readonly visionCount: number;

  constructor(
    readonly tokenizer: WordTokenizer,
    readonly forms: Emu3Forms,
  ) {
    const ids: Record<string, number> = {};
    for (const [key, token] of Object.entries(SPECIAL)) ids[key] = tokenizer.id(token);
    this.special = ids as SpecialIds;
    this.visionStart = tokenizer.id(visualToken(0));
    this.visionCount = tokenizer.size - this.visionStart;
    if (tokenizer.decode([tokenizer.size - 1]) !== visualToken(this.visionCount - 1)) {
      throw new CheckpointError('the tokenizer must end with its vision tokens, in order');
    }
  }

  get size(): number {
    return this.tokenizer.size;
  }

  isVision(id: number): boolean {
    return id >= this.visionStart;
  }

  /** Ids of "height*width", digit by digit. */
  header(height: number, width: number): number[] {
    return [...`${height}*${width}`].map((character) => this.tokenizer.id(character));
  }

  image(grid: CodeGrid): number[] {
    const { imageStart, imageToken, endOfLine, endOfFrame, imageEnd } = this.special;
    const out = [imageStart, ...this.header(grid.height, grid.width), imageToken];
    for (let row = 0; row < grid.height; row++) {
      for (let column = 0; column < grid.width; column++) {
        out.push(this.visionStart + grid.codes[row * grid.width + column]);
      }
      out.push(endOfLine);
    }
    out.push(endOfFrame, imageEnd);
    return out;
  }

  /** Source image, instruction, and what the answer is made to begin with. */
  prompt(source: CodeGrid, instruction: string, prefill: string): number[] {
    const { tokenizer } = this;
    const chatWord = (word: string): number[] => (this.forms.chatWords ? [tokenizer.id(word)] : []);
    return [
      this.special.bos,
      ...chatWord(USER),
      ...this.image(source),
      ...tokenizer.encode(instruction),
      ...chatWord(ASSISTANT),
      ...tokenizer.encode(prefill),
    ];
  }

  /**
   * A labelled answer: the rationale with its end where the policy thinks, the image (without its start where the prompt opened
   * it), the end.
   */
  answer(target: CodeGrid, rationale: string | null, imageOpen: boolean): number[] {
    const thought = rationale === null ? [] : [...this.tokenizer.encode(rationale), this.special.endThinking];
    return [...thought, ...this.image(target).slice(imageOpen ? 1 : 0), this.special.eos];
  }

  /** Whether a prompt ends by opening the image block. */
  opensImage(prompt: readonly number[]): boolean {
    return prompt.at(-1) === this.special.imageStart;
  }

  /** Finds the first image block; anything irregular in it makes the grid null. */
  parse(answer: Int32Array, imageOpen: boolean): ParsedAnswer {
    const { imageStart, imageToken } = this.special;
    // A sampled header may lack its start: then the image begins with its image token.
    const openings = this.forms.imageHeader === 'sampled' ? [imageStart, imageToken] : [imageStart];
    const start = imageOpen ? 0 : answer.findIndex((id) => openings.includes(id));
    if (start < 0) return { text: this.tokenizer.decode(answer), grid: null };
    const text = this.tokenizer.decode(answer.subarray(0, start));
    return { text, grid: this.#parseImage(answer.subarray(start), imageOpen ? [] : [imageStart]) };
  }

  #parseImage(ids: Int32Array, start: readonly number[]): CodeGrid | null {
    const open = ids.indexOf(this.special.imageToken);
    const grid = open < 0 ? null : this.#parseRows(ids.subarray(open + 1));
    if (grid === null || this.forms.imageHeader === 'sampled') return grid;
    const expected = [...start, ...this.header(grid.height, grid.width)];
    return ids.subarray(0, open).join() === expected.join() ? grid : null;
  }

  /** Rows of equal length that each end with an end of line, then both ends. */
  #parseRows(ids: Int32Array): CodeGrid | null {
    const { endOfLine, endOfFrame, imageEnd } = this.special;
    const codes: number[] = [];
    const width = ids.indexOf(endOfLine);
    let at = 0;
    while (width > 0 && ids[at] !== endOfFrame) {
      const row = ids.subarray(at, at + width);
      if (!row.every((id) => this.isVision(id)) || ids[at + width] !== endOfLine) return null;
      codes.push(...row.map((id) => id - this.visionStart));
      at += width + 1;
    }
    if (codes.length === 0 || ids[at + 1] !== imageEnd) return null;
    return { height: codes.length / width, width, codes: Int32Array.from(codes) };
  }
}
