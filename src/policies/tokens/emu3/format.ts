/** Emu3's answers: free text, then one image block whose structure is forced. */
import type { TokenPrompt } from '../batch.js';
import type { Allowed, AnswerState, TokenFormat } from '../format.js';
import type { TokenSpace } from './space.js';

export interface Emu3Prompt extends TokenPrompt {
  /** The size of the image that the answer is to hold, in codes. */
  readonly height: number;
  readonly width: number;
  /** Whether the prompt ends by opening the image block, so that the answer begins inside it. */
  readonly imageOpen: boolean;
}

export class Emu3Format implements TokenFormat<Emu3Prompt> {
  readonly size: number;
  readonly endOfSequence: number;
  readonly secondPart: number;
  readonly tokenizerJson: string;
  readonly #beforeImage: Allowed;
  readonly #afterImage: Allowed;
  readonly #vision: Allowed;

  constructor(readonly space: TokenSpace) {
    const { imageToken, endOfLine, endOfFrame, imageEnd, bos, pad, imageStart, eos } = space.special;
    this.size = space.size;
    this.endOfSequence = eos;
    this.secondPart = space.visionStart;
    this.tokenizerJson = space.tokenizer.json;
    const masked = (allows: (id: number) => boolean): Allowed => ({
      mask: Uint8Array.from({ length: space.size }, (_, id) => (allows(id) ? 1 : 0)),
    });
    const structure = new Set([imageToken, endOfLine, endOfFrame, imageEnd, bos, pad]);
    const language = (id: number): boolean => !space.isVision(id) && !structure.has(id);
    this.#beforeImage = masked(language);
    this.#afterImage = masked((id) => language(id) && id !== imageStart);
    this.#vision = masked((id) => space.isVision(id));
  }

  /** Starts an answer whose image is to be `height` by `width` codes, inside the image block where the prompt opened it. */
  start({ height, width, imageOpen }: Emu3Prompt): AnswerState {
    const { imageToken, imageStart, endOfLine, endOfFrame, imageEnd } = this.space.special;
    const force = (forced: number): Allowed => ({ forced });
    const row = [...Array<Allowed>(width).fill(this.#vision), force(endOfLine)];
    const block = [
      ...[...this.space.header(height, width), imageToken].map(force),
      ...Array<Allowed[]>(height).fill(row).flat(),
      ...[endOfFrame, imageEnd].map(force),
    ];
    let at = imageOpen ? 0 : -1;
    return {
      next: () => block[at] ?? (at < 0 ? this.#beforeImage : this.#afterImage),
      accept: (token) => {
        if (at >= 0 || token === imageStart) at++;
      },
    };
  }
}
