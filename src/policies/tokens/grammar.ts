/** Which tokens can follow in an answer: free text, then one image block whose structure is forced. */
import type { TokenPrompt } from './batch.js';
import type { TokenSpace } from './space.js';

/** A token that must come, or a mask [vocabulary] of those that may. */
export type Allowed = { readonly forced: number } | { readonly mask: Uint8Array };

/** The masks of a vocabulary, made once and shared by all answers. */
export class Grammar {
  readonly #beforeImage: Uint8Array;
  readonly #afterImage: Uint8Array;
  readonly #vision: Uint8Array;
  readonly #any: Uint8Array;

  constructor(
    readonly space: TokenSpace,
    /** False lifts every restriction, so that an answer may be anything (`emu3_use_logit_processor`). */
    readonly constrained: boolean,
  ) {
    const { imageToken, endOfLine, endOfFrame, imageEnd, bos, pad, imageStart } = space.special;
    const language = (excluded: readonly number[]): Uint8Array =>
      Uint8Array.from({ length: space.size }, (_, id) => (space.isVision(id) || excluded.includes(id) ? 0 : 1));
    const structure = [imageToken, endOfLine, endOfFrame, imageEnd, bos, pad];
    this.#beforeImage = language(structure);
    this.#afterImage = language([...structure, imageStart]);
    this.#vision = Uint8Array.from({ length: space.size }, (_, id) => (space.isVision(id) ? 1 : 0));
    this.#any = new Uint8Array(space.size).fill(1);
  }

  /** Starts an answer whose image is to be `height` by `width` codes, inside the image block where the prompt opened it. */
  start({ height, width, imageOpen }: TokenPrompt): AnswerState {
    const { space } = this;
    if (!this.constrained) {
      return new AnswerState(() => ({ mask: this.#any }), space.special.imageStart, null, imageOpen);
    }
    const { imageToken, endOfLine, endOfFrame, imageEnd } = space.special;
    const block: Allowed[] = [...space.header(height, width), imageToken].map((forced) => ({ forced }));
    for (let row = 0; row < height; row++) {
      for (let column = 0; column < width; column++) block.push({ mask: this.#vision });
      block.push({ forced: endOfLine });
    }
    block.push({ forced: endOfFrame }, { forced: imageEnd });
    return new AnswerState(
      (done) => ({ mask: done ? this.#afterImage : this.#beforeImage }),
      space.special.imageStart,
      block,
      imageOpen,
    );
  }
}

/** Where one answer is. */
export class AnswerState {
  #at: number;

  constructor(
    private readonly text: (imageDone: boolean) => Allowed,
    private readonly imageStart: number,
    private readonly block: readonly Allowed[] | null,
    imageOpen: boolean,
  ) {
    this.#at = imageOpen ? 0 : -1;
  }

  next(): Allowed {
    return this.block?.[this.#at] ?? this.text(this.#at >= 0);
  }

  accept(token: number): void {
    if (this.#at >= 0) this.#at++;
    else if (token === this.imageStart) this.#at = 0;
  }
}
