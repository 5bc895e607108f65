/**
 * The joint vocabulary of text and vision tokens, and its form of an image (BAAI's Emu3).
 * An image consists of: image start, "height*width", image token, rows of codes that each end with an end of line, end
 * of frame, image end.
 */
import type { CodeGrid } from '../../../data/types.js';
import { CheckpointError, DataError, EditrlError } from '../../../core/errors.js';
import type { Tokenizer } from '../../../models/tokenizer/tokenizer.js';
import { wordTokenizerJson } from '../../../models/tokenizer/words.js';
import type { TokenPrompt } from '../../../models/tokenizer/format.js';
import type { AllowedTokens, AnswerState, TokenFormat, WrittenRules } from '../../../models/tokenizer/format.js';

export const SPECIAL = {
  pad: '<|endoftext|>',
  bos: '<|extra_203|>',
  eos: '<|extra_204|>',
  imageStart: '<|image start|>',
  imageToken: '<|image token|>',
  endOfLine: '<|extra_200|>',
  endOfFrame: '<|extra_201|>',
  imageEnd: '<|image end|>',
} as const;

/** Delimiters of a thought. They are single tokens in vocabularies of the tiny world and ordinary words in Emu3's. */
export const THINKING = { start: '<|start thinking|>', end: '<|end thinking|>' } as const;

const USER = 'USER:';
const ASSISTANT = 'ASSISTANT:';

/** Words that prompts and image headers need in addition to the words of the data. */
const STRUCTURE_WORDS: readonly string[] = [USER, ASSISTANT, '*', ...'0123456789'];

/** The words of EARL's thinking prefill. */
export const THINKING_WORDS: readonly string[] = ["Let's", 'think', 'step', 'by', 'step.'];

/** Emu3's name of a vision code's token. */
export function visualToken(code: number): string {
  return `<|visual token ${String(code).padStart(6, '0')}|>`;
}

/** `tokenizer.json` of a joint vocabulary: special tokens, words, and one token per vision code. */
export function jointVocabularyJson(words: readonly string[], visionCodes: number): string {
  const codes = Array.from({ length: visionCodes }, (_, code) => visualToken(code));
  const special = [...Object.values(SPECIAL), ...Object.values(THINKING)];
  return wordTokenizerJson(special, [...STRUCTURE_WORDS, ...words], codes);
}

type SpecialIds = { readonly [K in keyof typeof SPECIAL]: number };

/** Variations of the format between training programs. All prompts and answers of a policy share them. */
export interface Emu3Forms {
  /** Whether prompts label their parts with USER: and ASSISTANT:. */
  readonly chatWords: boolean;
  /**
   * Whether an answer's "height*width" is sampled or forced. A sampled header may contain anything, so the rows
   * determine the size.
   */
  readonly imageHeader: 'sampled' | 'forced';
  /** Whether an answer ends with its image. */
  readonly endAfterImage: boolean;
}

const NEXT =
  'Set policy.tokenizer to a tokenizer of Emu3 or of the tiny world. It must have the tokens around an image, and end with the vision tokens.';

function idOf(tokenizer: Tokenizer, token: string): number {
  try {
    return tokenizer.id(token);
  } catch (cause) {
    if (!(cause instanceof EditrlError)) throw cause;
    throw new CheckpointError(`${cause.message}, which a vocabulary of text and images needs`, { next: NEXT, cause });
  }
}

/** The parts of an answer. `grid` is null without a complete image. */
export interface ParsedAnswer {
  readonly text: string;
  readonly grid: CodeGrid | null;
  /** Index of the image's first code in the answer. -1 without an image. */
  readonly firstCode: number;
}

export class TokenSpace {
  readonly special: SpecialIds;
  readonly visionStart: number;
  readonly visionCount: number;

  /**
   * Raises CheckpointError for a tokenizer that lacks a special token or does not end with the vision tokens in order.
   */
  constructor(
    readonly tokenizer: Tokenizer,
    readonly forms: Emu3Forms,
  ) {
    const ids: Record<string, number> = {};
    for (const [key, token] of Object.entries(SPECIAL)) ids[key] = idOf(tokenizer, token);
    this.special = ids as SpecialIds;
    this.visionStart = idOf(tokenizer, visualToken(0));
    this.visionCount = tokenizer.size - this.visionStart;
    for (let code = 0; code < this.visionCount; code++) {
      if (idOf(tokenizer, visualToken(code)) === this.visionStart + code) continue;
      throw new CheckpointError(
        `the vision tokens are not in order: ${visualToken(code)} has id ${tokenizer.id(visualToken(code))}`,
        {
          next: NEXT,
        },
      );
    }
  }

  get size(): number {
    return this.tokenizer.size;
  }

  /** Raises DataError if the image tokenizer's number of codes differs from the number of vision tokens. */
  requireCodes(count: number): void {
    if (count === this.visionCount) return;
    throw new DataError(
      `the image tokenizer has ${count} codes, but the policy's vocabulary has ${this.visionCount} vision tokens`,
      { next: 'Set policy.tokenizer and environment.model to models that belong together.' },
    );
  }

  isVision(id: number): boolean {
    return id >= this.visionStart;
  }

  /** Ids of "height*width", one per digit. */
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

  /**
   * Tokens after a prompt's image: the instruction and the prefill, tokenized as one text if no chat word separates
   * them.
   */
  async words(instruction: string, prefill: string): Promise<number[]> {
    const { tokenizer } = this;
    if (!this.forms.chatWords) return [...(await tokenizer.encode(instruction + prefill))];
    return [...(await tokenizer.encode(instruction)), tokenizer.id(ASSISTANT), ...(await tokenizer.encode(prefill))];
  }

  /** The source image, followed by the words. */
  prompt(source: CodeGrid, words: readonly number[]): number[] {
    const chatWord = this.forms.chatWords ? [this.tokenizer.id(USER)] : [];
    return [this.special.bos, ...chatWord, ...this.image(source), ...words];
  }

  /** The thought before a labeled answer's image, with its end delimiter. */
  async thought(rationale: string): Promise<readonly number[]> {
    return this.tokenizer.encode(` ${rationale}${THINKING.end}`);
  }

  /**
   * A labeled answer: the thought if there is one, the image (without its start if the prompt opened it), and the end.
   */
  answer(target: CodeGrid, thought: readonly number[], imageOpen: boolean): number[] {
    return [...thought, ...this.image(target).slice(imageOpen ? 1 : 0), this.special.eos];
  }

  /** Whether a prompt ends with the start of an image block. */
  opensImage(prompt: readonly number[]): boolean {
    return prompt.at(-1) === this.special.imageStart;
  }

  /** Finds the first image block. The grid is null if the block is malformed. */
  parse(answer: Int32Array, imageOpen: boolean): ParsedAnswer {
    const { imageStart, imageToken } = this.special;
    // A sampled header may lack its start. The image then begins with its image token.
    const openings = this.forms.imageHeader === 'sampled' ? [imageStart, imageToken] : [imageStart];
    const start = imageOpen ? 0 : answer.findIndex((id) => openings.includes(id));
    if (start < 0) return { text: this.tokenizer.decode(answer), grid: null, firstCode: -1 };
    const text = this.tokenizer.decode(answer.subarray(0, start));
    const grid = this.#parseImage(answer.subarray(start), imageOpen ? [] : [imageStart]);
    return { text, grid, firstCode: grid === null ? -1 : answer.indexOf(imageToken, start) + 1 };
  }

  #parseImage(ids: Int32Array, start: readonly number[]): CodeGrid | null {
    const open = ids.indexOf(this.special.imageToken);
    const grid = open < 0 ? null : this.#parseRows(ids.subarray(open + 1));
    if (grid === null || this.forms.imageHeader === 'sampled') return grid;
    const expected = [...start, ...this.header(grid.height, grid.width)];
    return ids.subarray(0, open).join() === expected.join() ? grid : null;
  }

  /** Parses rows of equal length that each end with an end of line, and then the ends of frame and image. */
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

export interface Emu3Prompt extends TokenPrompt {
  /** Size of the answer's image, in codes. */
  readonly height: number;
  readonly width: number;
  /** Whether the prompt ends with the start of an image block, so that the answer begins inside it. */
  readonly imageOpen: boolean;
}

export class Emu3Format implements TokenFormat<Emu3Prompt> {
  readonly size: number;
  readonly ends: ReadonlySet<number>;
  readonly secondPart: number;
  readonly tokenizerFiles: Readonly<Record<string, string>>;
  readonly #text: AllowedTokens;
  readonly #textAfterImage: AllowedTokens;
  readonly #vision: AllowedTokens;
  readonly #excluded: Pick<WrittenRules, 'before' | 'after'>;

  constructor(readonly space: TokenSpace) {
    const { imageToken, endOfLine, endOfFrame, imageEnd, bos, pad, imageStart, eos } = space.special;
    this.size = space.size;
    this.ends = new Set([eos]);
    this.secondPart = space.visionStart;
    this.tokenizerFiles = space.tokenizer.files;
    const language = (excluded: readonly number[]): AllowedTokens => ({
      mask: Uint8Array.from({ length: space.size }, (_, id) => (space.isVision(id) || excluded.includes(id) ? 0 : 1)),
    });
    const structure = [imageToken, endOfLine, endOfFrame, imageEnd, bos, pad];
    this.#excluded = {
      before: space.forms.imageHeader === 'sampled' ? [] : structure,
      after: [...structure, imageStart],
    };
    this.#text = language(this.#excluded.before);
    this.#textAfterImage = language(this.#excluded.after);
    this.#vision = { mask: new Uint8Array(space.size).fill(1, space.visionStart) };
  }

  /**
   * Starts an answer with an image of `height` by `width` codes. If headers are sampled, any language token may come
   * before the image token. The rows begin after the image token, whatever precedes it.
   */
  start(prompt: Emu3Prompt): AnswerState {
    const block = this.#block(prompt);
    const { opening, begins } = this.#opening(prompt);
    let at = begins ? 0 : -1;
    return {
      next: () => block[at] ?? (at < 0 ? this.#text : this.#textAfterImage),
      accept: (token) => {
        if (at >= 0 || token === opening) at++;
      },
    };
  }

  rules(prompt: Emu3Prompt): WrittenRules {
    const { opening, begins } = this.#opening(prompt);
    const block: [id: number | null, times: number][] = [];
    for (const allowed of this.#block(prompt)) {
      const id = 'forced' in allowed ? allowed.forced : null;
      const last = block.at(-1);
      if (last?.[0] === id) last[1] += 1;
      else block.push([id, 1]);
    }
    return { second: [this.space.visionStart, this.size], opening: begins ? null : opening, ...this.#excluded, block };
  }

  /** The allowed tokens of an image block, from the token after the opening one. */
  #block({ height, width }: Emu3Prompt): AllowedTokens[] {
    const { imageToken, endOfLine, endOfFrame, imageEnd, eos } = this.space.special;
    const { imageHeader, endAfterImage } = this.space.forms;
    const force = (...ids: number[]): AllowedTokens[] => ids.map((forced) => ({ forced }));
    const row = [...Array<AllowedTokens>(width).fill(this.#vision), ...force(endOfLine)];
    return [
      ...(imageHeader === 'sampled' ? [] : force(...this.space.header(height, width), imageToken)),
      ...Array<AllowedTokens[]>(height).fill(row).flat(),
      ...force(endOfFrame, imageEnd, ...(endAfterImage ? [eos] : [])),
    ];
  }

  #opening({ imageOpen }: Emu3Prompt): { readonly opening: number; readonly begins: boolean } {
    const { imageToken, imageStart } = this.space.special;
    const sampled = this.space.forms.imageHeader === 'sampled';
    return { opening: sampled ? imageToken : imageStart, begins: imageOpen && !sampled };
  }
}
