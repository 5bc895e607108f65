/** Emu3's answers: free text, then one image block whose structure is forced. */
import type { TokenPrompt } from '../batch.js';
import type { AllowedTokens, AnswerState, TokenFormat } from '../format.js';
import type { TokenSpace } from './space.js';

export interface Emu3Prompt extends TokenPrompt {
  /** The size of the image in the answer, in codes. */
  readonly height: number;
  readonly width: number;
  /** Whether the prompt ends by opening the image block, so that the answer begins inside it. */
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
    this.#text = language(space.forms.imageHeader === 'sampled' ? [] : structure);
    this.#textAfterImage = language([...structure, imageStart]);
    this.#vision = { mask: new Uint8Array(space.size).fill(1, space.visionStart) };
  }

  /**
   * Starts an answer with an image of `height` by `width` codes. If headers are sampled, any language token may come until the image token, which
   * begins the rows, whatever precedes it.
   */
  start({ height, width, imageOpen }: Emu3Prompt): AnswerState {
    const { imageToken, imageStart, endOfLine, endOfFrame, imageEnd, eos } = this.space.special;
    const { imageHeader, endAfterImage } = this.space.forms;
    const sampled = imageHeader === 'sampled';
    const force = (...ids: number[]): AllowedTokens[] => ids.map((forced) => ({ forced }));
    const row = [...Array<AllowedTokens>(width).fill(this.#vision), ...force(endOfLine)];
    const block = [
      ...(sampled ? [] : force(...this.space.header(height, width), imageToken)),
      ...Array<AllowedTokens[]>(height).fill(row).flat(),
      ...force(endOfFrame, imageEnd, ...(endAfterImage ? [eos] : [])),
    ];
    const opening = sampled ? imageToken : imageStart;
    let at = imageOpen && !sampled ? 0 : -1;
    return {
      next: () => block[at] ?? (at < 0 ? this.#text : this.#textAfterImage),
      accept: (token) => {
        if (at >= 0 || token === opening) at++;
      },
    };
  }
}
