/** A render server draws, conditioned on hidden states. */
import { InternalError, RunError } from '../../core/errors.js';
import { encodePng, sha256, type RgbImage } from '../../core/image.js';
import { toStoredBytes, type StoredTensor } from '../../core/safetensors.js';
import { SEEDS } from '../../environments/image_model.js';
import { STATES_DTYPES, type RenderRequest, type RenderIdentity } from '../../environments/render_server/client.js';
import type { ServedPictures } from '../../environments/served/pictures.js';
import type { WeightsOf } from '../../policies/policy.js';
import type { HiddenStates } from '../../policies/tokens/hidden_states.js';
import type { RecordedEpisode } from '../../run/episodes.js';
import { SERVED_SIDE, type RenderEditor } from '../../schema/editor.js';
import {
  fittedTo,
  type Drawing,
  type DrawnEdit,
  type RecordedDrawing,
  type StatesReader,
  type WantedEdit,
} from './drawing.js';

/** In a run it sends the server the states it reads; from records it looks up stored pictures, and reads nothing. */
export type RenderSource =
  | { readonly images: ServedPictures<RenderRequest>; readonly reader: StatesReader }
  | { readonly images: ServedPictures<RenderIdentity>; readonly reader: null };

/** Digests of the states that a picture was drawn from. */
type Digests = Pick<RenderIdentity, 'statesDigest' | 'blankDigest'>;

export class RenderDrawing implements Drawing {
  readonly onlyOne = {
    why: "the protocol of environment.type 'render_server' has one",
    next: "Leave such rows out, or draw here, with environment.type 'model'.",
  };

  constructor(
    private readonly environment: Pick<RenderEditor, 'max_pixels' | 'states_dtype' | 'guidance_scale'>,
    private readonly from: RenderSource,
  ) {}

  get asksBlank(): boolean {
    return this.environment.guidance_scale !== null;
  }

  fitted(image: RgbImage, path: string, where: string): RgbImage {
    return fittedTo(image, { side: SERVED_SIDE, most: this.environment.max_pixels }, path, where);
  }

  async draw(edits: readonly WantedEdit[], weights: Exclude<WeightsOf, 'reference'>): Promise<DrawnEdit[]> {
    const { images, reader } = this.from;
    const files = new Map<RgbImage, Uint8Array>();
    for (const { source } of edits) if (!files.has(source)) files.set(source, await encodePng(source));
    const wanted = edits.map(({ key, source, random }) => ({
      key,
      source: files.get(source) as Uint8Array,
      size: { width: source.width, height: source.height },
      seed: random.integer(SEEDS),
    }));
    if (reader === null) {
      const digests = edits.map(({ answer }) => digestsOf(answer));
      return drawn(await images.generate(wanted.map((one, i) => ({ ...one, ...digests[i] }))), digests);
    }
    const sent = (await reader.read(edits, weights)).map(({ states, blank }) => {
      const of = { states: this.#sent(states), blank: blank === null ? null : this.#sent(blank) };
      const digests = { statesDigest: sha256(of.states.bytes) };
      return { of, digests: of.blank === null ? digests : { ...digests, blankDigest: sha256(of.blank.bytes) } };
    });
    const digests = sent.map((one) => one.digests);
    const asked = wanted.map((one, i) => ({ ...one, ...sent[i].of, ...digests[i] }));
    return drawn(await images.generate(asked), digests);
  }

  remembered({ key, states, blank_states: blank }: RecordedEpisode): RecordedDrawing {
    if (states === undefined) throw new RunError('the record of an episode has no digest of states', { where: key });
    return blank === undefined ? { statesDigest: states } : { statesDigest: states, blankDigest: blank };
  }

  async keep(): Promise<void> {
    await this.from.images.keep?.();
  }

  dispose(): Promise<void> {
    return this.from.images.close();
  }

  #sent({ states, width }: HiddenStates): StoredTensor {
    const dtype = STATES_DTYPES[this.environment.states_dtype];
    return { dtype, shape: [states.length / width, width], bytes: toStoredBytes(states, dtype) };
  }
}

/**
 * As recorded. An answer from before the run used guidance has no digest of a blank instruction: its picture is then not found, as after any other
 * change that affects pictures.
 */
function digestsOf({ statesDigest, blankDigest }: RecordedDrawing): Digests {
  if (statesDigest === undefined) throw new InternalError('an answer without its states, and no policy to read it');
  return blankDigest === undefined ? { statesDigest } : { statesDigest, blankDigest };
}

function drawn(
  made: Awaited<ReturnType<ServedPictures<RenderIdentity>['generate']>>,
  digests: readonly Digests[],
): DrawnEdit[] {
  return made.map((picture, i) => {
    const { statesDigest: states, blankDigest } = digests[i];
    return { picture, record: blankDigest === undefined ? { states } : { states, blank_states: blankDigest } };
  });
}
