/** A render server draws, told by hidden states. */
import { InternalError, RunError } from '../../core/errors.js';
import { encodePng, sha256, type RgbImage } from '../../core/image.js';
import { narrow, type StoredTensor } from '../../core/safetensors.js';
import { SEEDS } from '../../environments/image_model.js';
import type { RenderAsked, RenderWanted } from '../../environments/render_server/client.js';
import type { ServedPictures } from '../../environments/served/pictures.js';
import type { WeightsOf } from '../../policies/policy.js';
import type { HiddenStates } from '../../policies/tokens/hidden_states.js';
import type { RecordedEpisode } from '../../run/episodes.js';
import { SERVED_SIDE, type RenderEditor } from '../../schema/editor.js';
import {
  fittedTo,
  type Drawing,
  type DrawnEdit,
  type ReadStates,
  type Remembered,
  type WantedEdit,
} from './drawing.js';

/** In a run it asks the server by what it reads; from records it finds what was stored, and reads nothing. */
export type RenderSource =
  | { readonly images: ServedPictures<RenderAsked>; readonly read: ReadStates }
  | { readonly images: ServedPictures<RenderWanted>; readonly read: null };

const DTYPES = { float32: 'F32', bfloat16: 'BF16' } as const;

export class RenderDrawing implements Drawing {
  constructor(
    private readonly environment: Pick<RenderEditor, 'max_pixels' | 'states_dtype'>,
    private readonly from: RenderSource,
  ) {}

  fitted(image: RgbImage, path: string, where: string): RgbImage {
    return fittedTo(image, { side: SERVED_SIDE, most: this.environment.max_pixels }, path, where);
  }

  async draw(edits: readonly WantedEdit[], weights: Exclude<WeightsOf, 'reference'>): Promise<DrawnEdit[]> {
    const { images, read } = this.from;
    const files = new Map<RgbImage, Uint8Array>();
    for (const { source } of edits) if (!files.has(source)) files.set(source, await encodePng(source));
    const wanted = edits.map(({ key, source, random }) => ({
      key,
      source: files.get(source) as Uint8Array,
      size: { width: source.width, height: source.height },
      seed: random.integer(SEEDS),
    }));
    if (read === null) {
      const digests = edits.map(({ answer: { statesDigest } }) => {
        if (statesDigest === undefined) {
          throw new InternalError('an answer without its states, and no policy to read it');
        }
        return statesDigest;
      });
      return drawn(await images.generate(wanted.map((one, i) => ({ ...one, statesDigest: digests[i] }))), digests);
    }
    const states = (
      await read(
        edits.map((edit) => edit.read),
        weights,
      )
    ).map((one) => this.#sent(one));
    const digests = states.map(({ bytes }) => sha256(bytes));
    const asked = wanted.map((one, i) => ({ ...one, states: states[i], statesDigest: digests[i] }));
    return drawn(await images.generate(asked), digests);
  }

  remembered({ key, states }: RecordedEpisode): Remembered {
    if (states === undefined) throw new RunError('the record of an episode has no digest of states', { where: key });
    return { statesDigest: states };
  }

  async keep(): Promise<void> {
    await this.from.images.keep?.();
  }

  dispose(): Promise<void> {
    return this.from.images.close();
  }

  #sent({ states, width }: HiddenStates): StoredTensor {
    const dtype = DTYPES[this.environment.states_dtype];
    return { dtype, shape: [states.length / width, width], bytes: narrow(states, dtype) };
  }
}

function drawn(
  made: Awaited<ReturnType<ServedPictures<RenderWanted>['generate']>>,
  digests: readonly string[],
): DrawnEdit[] {
  return made.map((picture, i) => ({ picture, record: { states: digests[i] } }));
}
