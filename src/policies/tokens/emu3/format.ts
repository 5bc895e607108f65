/** Emu3's answers: free text, then one image block whose structure is forced. */
import type { TokenPrompt } from '../batch.js';
import type { AllowedTokens, AnswerState, TokenFormat, WrittenRules } from '../format.js';
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
   * Starts an answer with an image of `height` by `width` codes. If headers are sampled, any language token may come until the image token, which
   * begins the rows, whatever precedes it.
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

  /** What may come from the token after the opening one on. */
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
