/** Memory, warnings and rules of recipes whose policy is a token decoder. */
import type { FlowGrpoSettings, GrpoSettings, WordsSftSettings } from '../../../config/schema/algorithm.js';
import type { ModelReference } from '../../../config/schema/model.js';
import type { TrainedSettings } from '../../../config/schema/run.js';
import type { DecoderSettings, VisionPolicySettings } from '../../../config/schema/token_policy.js';
import type { TrainerSettings } from '../../../config/schema/trainer.js';
import { chunkOf, type RolloutSettings } from '../../../config/schema/training.js';
import {
  adapterParameters,
  decoderBytes,
  decoderParameters,
  keptImages,
  seeingAdapterParameters,
  seeingParameters,
  trainingBytes,
  visionActivations,
  PACKED,
  type DecoderWork,
  type FrozenForm,
  type MicroBatch,
  type SampledBatch,
  type DecoderShape,
  type ShapeOf,
  type VisionShape,
} from '../memory.js';
import { mergersOf, withoutTables } from '../../../compute/nets/vision/config.js';
import { policyRules, remoteSampling } from './rules.js';
import { startMissing, stepsPerIteration, type Part } from '../../recipe.js';

/** The settings that the decoder's memory depends on. */
export type TokenRecipeSettings = TrainedSettings & {
  readonly algorithm: GrpoSettings | WordsSftSettings;
  readonly rollout: RolloutSettings;
  readonly policy: Pick<DecoderSettings, 'init' | 'lora' | 'model_context_size' | 'engine'> & {
    readonly model: ModelReference | null;
    readonly trainer?: TrainerSettings;
  };
};

/** A policy that is a decoder. */
export const decoderPart = {
  rules: policyRules,
  models: ['policy.tokenizer'],
  tokenizers: ['policy.tokenizer'],
  learns: {
    engine: 'policy.engine',
    start: 'policy.model',
    parameters: (settings, shapeOf) => {
      const shape = decoderShape(settings, shapeOf);
      return shape === null ? null : trainedParameters(settings, shape);
    },
    memory: (settings, shapeOf) => {
      if (isServed(settings)) return servedBytes;
      const shape = decoderShape(settings, shapeOf);
      if (shape === null) return null;
      const frozen = settings.policy.lora === null ? 0 : decoderParameters(shape);
      const trained = trainedParameters(settings, shape);
      return decoderBytes(shape, workOf(settings), {
        trained,
        frozen,
        copies: copiesOf(settings),
        frozenForm: frozenFormOf(settings),
      });
    },
    shape: decoderShape,
    sampler: remoteSampling,
    rows: ({ rollout }) => rollout.episodes_per_iteration,
  },
  warnings: (settings) => [...idleClip(settings), ...idlePacking(settings)],
  missing: (settings) => startMissing(settings),
} as const satisfies Part<TokenRecipeSettings>;

/** Whether a training server has the policy. */
function isServed({ policy }: Pick<TokenRecipeSettings, 'policy'>): boolean {
  return policy.trainer?.type === 'tinker';
}

/** Memory of a process without a policy. */
const servedBytes = trainingBytes(0, 0);

/**
 * Number of copies of the trained weights: moving averages, packed weights for sampling, and the frozen reference. A
 * model with an adapter shares its weights with the reference.
 */
function copiesOf(settings: TokenRecipeSettings): number {
  const { policy, optimizer, algorithm } = settings;
  const reference = algorithm.type !== 'sft' && policy.lora === null ? 1 : 0;
  const packed = policy.lora === null && packedWeights(settings) === 'all' ? PACKED : 0;
  return (optimizer.ema_decay === null ? 0 : 1) + reference + packed;
}

/** How this machine stores the frozen weights. With a device, one copy stays in host memory. */
function frozenFormOf(settings: TokenRecipeSettings): FrozenForm {
  const { policy, rollout } = settings;
  if (policy.engine.dtype === 'float16') return 'half';
  if (rollout.engine !== null || packsNothing(policy.engine)) return 'once';
  return policy.lora !== null && packedWeights(settings) === 'all' ? 'packed' : 'once';
}

export type VisionRecipeSettings = TokenRecipeSettings & {
  readonly policy: Omit<VisionPolicySettings, 'trainer'> & { readonly trainer: TrainerSettings };
};

/** A policy that is a decoder with a vision encoder. */
export const seeingPart = {
  ...decoderPart,
  learns: {
    ...decoderPart.learns,
    parameters: (settings, shapeOf) => seeingSizes(settings, shapeOf)?.trained ?? null,
    memory: (settings, shapeOf) => {
      if (isServed(settings)) return servedBytes;
      const sizes = seeingSizes(settings, shapeOf);
      if (sizes === null) return null;
      const { shape, vision, trained, frozen } = sizes;
      const work = workOf(settings);
      const batch = work.trainBatch;
      // A prompt may be all images, apart from room for an answer. Labels may be short.
      const { pixels, train, model_context_size: context } = settings.policy;
      const most = Math.max(pixels.image.max_pixels, pixels.video.max_pixels);
      const tokens = settings.algorithm.type === 'sft' ? context : batch.promptTokens;
      const patches = tokens * vision.spatial_merge_size ** 2 * (train.mm_vision ? batch.prompts : 1);
      const visionValues = visionActivations(
        vision,
        patches,
        Math.ceil(most / vision.patch_size ** 2),
        train.mm_vision,
      );
      const [copies, frozenForm] = [copiesOf(settings), frozenFormOf(settings)];
      const bytes = decoderBytes(shape, work, {
        trained,
        frozen,
        copies,
        frozenForm,
        visionValues,
        isTrained: train.mm_llm,
      });
      return bytes + keptImages(vision, { ...promptsOf(settings), tokens, made: madePerToken(shape, vision, train) });
    },
    shape: seeingShape,
  },
} as const satisfies Part<VisionRecipeSettings>;

/** Numbers of trained parameters, or of those of their adapters, and of frozen parameters. */
function seeingSizes(
  settings: Pick<VisionRecipeSettings, 'policy'>,
  shapeOf: ShapeOf,
): {
  readonly shape: DecoderShape;
  readonly vision: VisionShape;
  readonly trained: number;
  readonly frozen: number;
} | null {
  const shape = seeingShape(settings, shapeOf);
  const vision = shape?.vision;
  if (shape === null || vision === undefined) return null;
  const { lora, train } = settings.policy;
  const parts = seeingParameters(shape, vision);
  const of = (sizes: typeof parts, isTrained: boolean): number =>
    (['mm_vision', 'mm_mlp', 'mm_llm'] as const).reduce(
      (sum, part) => sum + (train[part] === isTrained ? sizes[part] : 0),
      0,
    );
  if (lora === null) return { shape, vision, trained: of(parts, true), frozen: of(parts, false) };
  const adapters = of(seeingAdapterParameters(shape, vision, lora.rank), true);
  return { shape, vision, trained: adapters, frozen: of(parts, true) + of(parts, false) };
}

/** Number of prompts that a run may use, and of prompts that it processes together. */
function promptsOf({ algorithm, rollout, num_iterations, validation, data }: VisionRecipeSettings): {
  readonly prompts: number;
  readonly together: number;
} {
  const perIteration =
    algorithm.type === 'sft'
      ? algorithm.sft.batch_size
      : rollout.episodes_per_iteration / rollout.generations_per_sample;
  const heldOut = validation.prompts * Math.max(1, data?.validation.length ?? 1);
  // Datasets are evaluated one after another.
  return { prompts: num_iterations * perIteration + heldOut, together: Math.max(perIteration, validation.prompts) };
}

/** Values kept per image token: the outputs of all frozen parts. */
function madePerToken(shape: DecoderShape, vision: VisionShape, train: VisionPolicySettings['train']): number {
  if (train.mm_vision) return 0;
  return mergersOf(vision).length * (train.mm_mlp ? vision.spatial_merge_size ** 2 * vision.width : shape.hidden_size);
}

function seeingShape(settings: Pick<VisionRecipeSettings, 'policy'>, shapeOf: ShapeOf): DecoderShape | null {
  const { init } = settings.policy;
  if (init === null) return decoderShape(settings, shapeOf);
  const { hidden_size: width, intermediate_size: inner, ...vision } = init.vision;
  return { ...init, vision: { family: 'qwen2_5_vl', ...withoutTables, ...vision, width, inner } };
}

interface LearningSettings {
  readonly algorithm: GrpoSettings | FlowGrpoSettings | WordsSftSettings;
}

/** A warning about a clip range that never clips. */
export function idleClip(settings: LearningSettings): string[] {
  const { algorithm } = settings;
  if (algorithm.type === 'sft' || algorithm.clip_range === null || stepsPerIteration(settings) > 1) return [];
  return [
    'algorithm.clip_range has no effect, because the ratio is 1 with one optimizer step per iteration. Raise algorithm.minibatches or inner_epochs, or set it to null.',
  ];
}

/** Settings that decide which weights are packed for decoding. */
type SamplingSettings = Pick<TokenRecipeSettings, 'algorithm' | 'rollout'> & {
  readonly policy: Pick<DecoderSettings, 'engine' | 'lora'>;
};

/** Which weights are packed for sampling. */
export function packedWeights(settings: SamplingSettings): RolloutSettings['packed_weights'] {
  return whyUnpacked(settings) === null ? settings.rollout.packed_weights : 'none';
}

function whyUnpacked({ algorithm, rollout, policy: { engine, lora } }: SamplingSettings): string | null {
  if (algorithm.type === 'sft' && lora === null) return 'supervised training samples only held-out answers';
  if (rollout.engine !== null) return `${rollout.engine.type} samples, not the engine of the policy`;
  if (engine.dtype === 'float16') return 'weights in float16 cannot be packed';
  return packsNothing(engine) ? `weights are packed only on the CPU, not on ${engine.provider}` : null;
}

/** Whether an engine computes on a device, where weights are not packed. 'auto' may still choose the CPU. */
function packsNothing({ provider }: Pick<DecoderSettings['engine'], 'provider'>): boolean {
  return provider === 'webgpu' || provider === 'cuda';
}

function idlePacking(settings: SamplingSettings): string[] {
  const why = whyUnpacked(settings);
  if (settings.rollout.packed_weights !== 'all' || why === null) return [];
  return [`rollout.packed_weights has no effect: ${why}`];
}

/** The largest micro-batch: a full context with the longest possible answer. */
function largestBatch({ algorithm, rollout, optimizer, policy }: TokenRecipeSettings): MicroBatch {
  const { per_device_batch_size: answers, gradient_checkpointing: gradientCheckpointing } = optimizer;
  const context = policy.model_context_size;
  // A label is one answer per prompt, of any length.
  const [together, longest] =
    algorithm.type === 'sft' ? [1, context] : [rollout.generations_per_sample, rollout.max_response_tokens];
  const answersPerPrompt = Math.min(answers, together);
  const answerTokens = Math.min(context, longest);
  return {
    prompts: Math.ceil(answers / answersPerPrompt),
    answersPerPrompt,
    promptTokens: context - answerTokens,
    answerTokens,
    gradientCheckpointing,
  };
}

/** A process's largest micro-batch, and the answers that it samples together. */
function workOf(settings: TokenRecipeSettings): DecoderWork {
  return { trainBatch: largestBatch(settings), sampled: sampledBatch(settings) };
}

/**
 * The answers that decode together: those of a rollout chunk, or of a held-out evaluation. A supervised run samples
 * only in evaluations. Null if another program samples.
 */
function sampledBatch({ rollout, policy, algorithm, validation }: TokenRecipeSettings): SampledBatch | null {
  if (rollout.engine !== null) return null;
  const groups = Math.ceil(rollout.episodes_per_iteration / rollout.generations_per_sample);
  const perPrompt = rollout.generations_per_sample;
  const inChunk = Math.min(rollout.chunk_groups ?? groups, groups) * perPrompt;
  const heldOut = Math.min(chunkOf(rollout), validation.prompts);
  const answerTokens = Math.min(policy.model_context_size, rollout.max_response_tokens);
  const promptTokens = policy.model_context_size - answerTokens;
  return algorithm.type === 'sft' || heldOut > inChunk
    ? { prompts: heldOut, answersPerPrompt: 1, promptTokens, answerTokens }
    : { prompts: Math.ceil(inChunk / perPrompt), answersPerPrompt: perPrompt, promptTokens, answerTokens };
}

function trainedParameters({ policy: { lora } }: Pick<TokenRecipeSettings, 'policy'>, shape: DecoderShape): number {
  return lora === null ? decoderParameters(shape) : adapterParameters(shape, lora.rank);
}

function decoderShape(
  { policy: { init, model } }: Pick<TokenRecipeSettings, 'policy'>,
  shapeOf: ShapeOf,
): DecoderShape | null {
  const shape = init ?? (model === null ? null : shapeOf(model));
  return shape === null || 'kind' in shape ? null : shape;
}
