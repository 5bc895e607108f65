/** A frozen flow model that edits pictures, instructed by the hidden states of a vision-language model. */
import type { Planes } from '../../core/planes.js';
import type { RandomStream } from '../../core/random.js';
import type { HeldDtype } from '../../core/safetensors.js';
import { overFrozen } from '../../engines/onnx/frozen_graph.js';
import type { SessionOptions } from '../../engines/onnx/session.js';
import type { PictureCodec } from '../../environments/picture_codec.js';
import type { HiddenStates } from '../tokens/hidden_states.js';
import { editCondition, sourceInputOf, type SourceInput } from './edit_condition.js';
import type { LoadedFlowTransformer } from '../../models/networks/flow.js';
import { openFlowModel, requireUnconditional } from './load.js';
import { flowModelTypes, type FlowModelTypeName } from './model_types.js';
import { unpack } from './packing.js';
import { takesGuidance } from './rows.js';
import { FlowSampler } from './sampler.js';

export interface EditorOptions {
  /** Decides the spacing of its noise levels. */
  readonly type: FlowModelTypeName;
  /** Steps of the solver. */
  readonly steps: number;
  /** Scale of classifier-free guidance; null for none. */
  readonly guidance: number | null;
  /** Number of pictures that the model processes at once. */
  readonly batch: number;
  readonly session: SessionOptions;
  /** What its matrices are held in; default: float32. */
  readonly held?: HeldDtype;
}

/** A request for an edit. */
export interface Edit {
  /** Latents of the picture to edit. */
  readonly source: Planes;
  /** Latents of further pictures that it is shown, if `takesSeveral`. Absent: none. */
  readonly further?: readonly Planes[];
  /** States in place of text: as many tokens as there are, none of them padding. */
  readonly states: HiddenStates;
  /** The states of a blank instruction, if `asksBlank`. */
  readonly blank?: HiddenStates | null;
  /** Source of the initial noise. */
  readonly random: RandomStream;
}

export class FlowEditor {
  readonly #sampler: FlowSampler;
  readonly #sourceInput: SourceInput;

  /** Raises CheckpointError as `sourceInputOf` and `requireUnconditional`. */
  constructor(
    private readonly model: LoadedFlowTransformer,
    codec: Pick<PictureCodec, 'channels'>,
    private readonly options: EditorOptions,
    where: string,
  ) {
    this.#sourceInput = sourceInputOf(model.config, codec, where);
    requireUnconditional(model.config, options.guidance, 'environment');
    const session = overFrozen(options.session, model.weights);
    this.#sampler = new FlowSampler({ ...model, batch: options.batch, session });
  }

  /** Raises CheckpointError as `openFlowModel` and `sourceInputOf` do. */
  static open(folder: string, codec: Pick<PictureCodec, 'channels'>, options: EditorOptions): FlowEditor {
    return new FlowEditor(
      openFlowModel(folder, () => options.held ?? 'float32'),
      codec,
      options,
      folder,
    );
  }

  /** Both sides of a picture's latents are multiples of this. */
  get patch(): number {
    return this.#sourceInput.patch;
  }

  /** Whether it can be shown further pictures. */
  get takesSeveral(): boolean {
    return this.#sourceInput.several;
  }

  /**
   * Whether guidance is measured from the states of a blank instruction, as diffusers' pipelines do. A model that this program trained with a share
   * of edits without words learnt to treat zeros as no instruction instead.
   */
  get asksBlank(): boolean {
    const { config } = this.model;
    return this.options.guidance !== null && !takesGuidance(config) && config.condition_dropout === null;
  }

  /**
   * Latents of the edited pictures. Raises CheckpointError when states do not have the width of the model's text; RunError as `FlowSampler.sample`
   * does.
   */
  async draw(edits: readonly Edit[]): Promise<Planes[]> {
    const { type, steps, guidance } = this.options;
    const prompts = edits.map(({ states, blank, source, further = [] }) => ({
      flow: editCondition(states, [source, ...further], this.#sourceInput, this.model.config, blank),
    }));
    const how = {
      sigmas: (tokens: number) => flowModelTypes[type].sigmas(steps, tokens),
      guidance,
      sameLatent: false,
      noiseLevel: 0,
      fraction: 0,
      window: null,
    };
    const random = (at: number): RandomStream => edits[at].random;
    const answers = await this.#sampler.sample({ prompts, answersPerPrompt: 1, how, random }, this.model.weights);
    return answers.map(([{ latents }], i) => unpack(latents, edits[i].source, this.patch));
  }

  async dispose(): Promise<void> {
    await this.#sampler.dispose();
  }
}
