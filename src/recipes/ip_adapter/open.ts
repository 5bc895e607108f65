/** Opens `ip_adapter`: a flow-matching image model that paints into masked images. */
import { ConfigError, DataError, InternalError, must } from '../../core/errors.js';
import { sessionOptions } from '../../compute/onnx/session.js';
import { StyleEncoder } from '../../train/environments/style_encoder.js';
import type { ImageCodec } from '../../train/environments/image_codec.js';
import { modelFolder, type RunResolver } from '../../models/reference.js';
import type { FlowTransformerConfig, IpAdapterConfig } from '../../compute/nets/flow/config.js';
import { comparedInpaint } from '../../data/self_bench.js';
import { flowModelTypes } from '../../train/policies/flow/model_types.js';
import {
  checkFlowModel,
  describeFlowModel,
  loadFlow,
  requireUnconditional,
  initFlow,
  type FlowModel,
} from '../../train/policies/flow/load.js';
import { FlowPolicy } from '../../train/policies/flow/policy.js';
import type { NoisedImages, FlowSampling } from '../../train/policies/flow/sampler.js';
import { recordDatasets, type TrainingContext } from '../../train/context.js';
import { existsSync } from 'node:fs';
import { readsQuotedText } from '../../rewards/score/choice.js';
import { checkOf, datasetChecks, flowPartChecks, guidanceChecks, inpaintCheck } from '../shared/checks.js';
import type { ShapeOf } from '../shared/memory.js';
import type { Check, OpenRecipe } from '../recipe.js';
import type { Training } from '../../train/loop.js';
import { flowLabels } from '../shared/flow/answers.js';
import { openCodec, openTextEncoder } from '../shared/flow/parts.js';
import { openTraining, type RewardParts } from '../shared/training.js';
import type { FlowGrpoSettings } from '../../config/schema/algorithm.js';
import type { FlowAnswer } from '../../train/policies/flow/batch.js';
import { signData } from '../../data/tiny/sign_scenes.js';
import { ExportedConditions, tinyConditions, type Conditions } from './conditions.js';
import { COPIED_HALVES, finalDropout, shapeOfModel, type IpAdapterSettings } from './settings.js';
import { initConfig, InpaintTask, sampleInpaints, type InpaintPrompt } from './task.js';

const flowModelCheck = checkOf(
  'flow model',
  (folder: string, training: Parameters<typeof checkFlowModel>[1], guidance: number | null) => {
    if (existsSync(folder)) checkFlowModel(folder, training, guidance);
  },
);

function checks(settings: IpAdapterSettings, shapeOf: ShapeOf): Check[] {
  const { data, policy, algorithm, rollout, reward } = settings;
  const { model, train: trains, lora, ip_adapter, parts } = policy;
  const guidance = algorithm.type === 'sft' ? null : rollout.guidance_scale;
  // The model without a text encoder reads the quoted text, whatever scores it. A supervised run only scores held-out images.
  const [read, scored] = [parts.text_encoder === null, readsQuotedText(reward)];
  const side = shapeOfModel(settings, shapeOf)?.patch ?? 1;
  const lists = (sources: typeof data.train, quoted: boolean): Check[] =>
    datasetChecks(settings, (path) => inpaintCheck(path, { quoted, side, resolution: data.resolution }), sources);
  // The width of the style images' features does not matter here.
  const imagePrompt = ip_adapter === null ? null : { ...ip_adapter, image_embed_dim: 1 };
  return [
    ...lists(data.train, read || (scored && algorithm.type !== 'sft')),
    ...lists(data.validation, read || scored),
    ...flowPartChecks(parts),
    ...(typeof model === 'string' ? [flowModelCheck(model, { trains, lora, imagePrompt }, guidance)] : []),
    ...guidanceChecks('policy', model, guidance, shapeOf),
  ];
}

async function open(settings: IpAdapterSettings, context: TrainingContext): Promise<Training> {
  const { algorithm, policy, optimizer, rollout } = settings;
  const { resolveRun } = context;
  requireSingleCopy(policy.engine);
  const codec = openCodec(settings.policy.parts.vae, settings.policy.engine, resolveRun);
  const conditions = conditionsOf(settings, resolveRun);
  const model = startingModel(settings, resolveRun, codec, conditions);
  requireUnconditional(model.config, rollout.guidance_scale);
  const task = InpaintTask.open(settings, model.config, codec, conditions);
  await recordDatasets(context, settings, task.data.sources, { at: comparedInpaint, kept: 'files' });
  const trained = new FlowPolicy({
    model,
    optimizer,
    guidance: algorithm.type === 'sft' ? null : rollout.guidance_scale,
    session: sessionOptions(policy.engine),
    peers: context.group,
    keepReference: algorithm.type !== 'sft',
  });
  const samplings = samplingsOf(settings);
  return openTraining<InpaintPrompt, FlowAnswer, FlowSampling>(settings, context, {
    task,
    policy: trained,
    samplings,
    longestAnswer: null,
    ...(algorithm.type === 'sft'
      ? { labels: flowLabels(task, algorithm.sft, settings.validation.prompts) }
      : { rewards: rewardParts(settings, algorithm) }),
  });
}

function rewardParts(
  settings: IpAdapterSettings,
  algorithm: FlowGrpoSettings,
): RewardParts<InpaintPrompt, FlowAnswer, FlowSampling> {
  const nft = algorithm.surrogate === 'nft' ? must(algorithm.nft, "the settings of 'nft'") : null;
  return {
    algorithm: { ...algorithm, ...PLAIN },
    how: () => sampledIn(settings, nft),
    sampledBy: nft?.sampled_by ?? 'current',
    trained: (_iteration, _prompt, { actions }) => new Float32Array(actions.length).fill(1),
    minibatchesOf: 'actions',
    mismatchAlarm: mismatchAlarmOf(algorithm),
  };
}

/** Raises ConfigError for half precision on CUDA, which provider 'auto' may resolve to. */
export function requireSingleCopy({
  dtype,
  provider,
}: Pick<IpAdapterSettings['policy']['engine'], 'dtype' | 'provider'>): void {
  if (dtype === 'float32' || provider !== 'cuda') return;
  throw new ConfigError(COPIED_HALVES, { where: 'policy.engine.dtype', next: "Set policy.engine.dtype to 'float32'." });
}

/** Every answer has equally many steps. */
const PLAIN = { ratio: 'token', aggregation: 'token' } as const;

/** Default clip range for log-probabilities that are means over an image. */
const CLIP_RANGE = 1e-4;

/** The difference between rollout and training graph that raises an alarm: one that clipping would notice. */
export function mismatchAlarmOf({ clip_range }: { readonly clip_range: number | null }): number {
  return (clip_range ?? CLIP_RANGE) / 10;
}

/** How answers are sampled in training; `noised` for a loss on the forward process. */
export function sampledIn(settings: SamplingSettings, noised: NoisedImages | null = null): FlowSampling {
  const { sampled } = samplingsOf(settings);
  return noised === null ? sampled : { ...sampled, noised: { levels: noised.levels } };
}

type SamplingSettings = Pick<IpAdapterSettings, 'rollout'> & {
  readonly validation: Pick<IpAdapterSettings['validation'], 'greedy'>;
  readonly policy: Pick<IpAdapterSettings['policy'], 'model_type'>;
};

/** How held-out answers are sampled, in every evaluation alike: as in training, and without noise. */
export function samplingsOf({
  policy,
  rollout,
  validation,
}: SamplingSettings): Record<'sampled', FlowSampling> & Partial<Record<'greedy', FlowSampling>> {
  const { num_steps, eval_num_steps, noise_level, timestep_fraction, sde_window, guidance_scale, same_latent } =
    rollout;
  const { sigmas } = flowModelTypes[policy.model_type];
  const sampled: FlowSampling = {
    sigmas: (tokens) => sigmas(num_steps, tokens),
    noiseLevel: noise_level,
    fraction: timestep_fraction,
    window: sde_window,
    guidance: guidance_scale,
    sameLatent: same_latent,
  };
  if (!validation.greedy) return { sampled };
  return { sampled, greedy: { ...sampled, sigmas: (tokens) => sigmas(eval_num_steps, tokens), noiseLevel: 0 } };
}

/** Encoders of prompts and style images. Raises CheckpointError when an encoder cannot be read. */
function conditionsOf({ policy }: Pick<IpAdapterSettings, 'policy'>, resolveRun: RunResolver): Conditions {
  const { text_encoder: words, image_encoder: images } = policy.parts;
  if (words === null) return tinyConditions;
  const options = sessionOptions(policy.engine);
  const looks = images === null ? null : new StyleEncoder(modelFolder(images, resolveRun), options);
  return new ExportedConditions(openTextEncoder(words, policy.engine, resolveRun), looks);
}

/** The initial model, in the dtype of the engine. Raises CheckpointError as `loadFlow` does. */
export function startingModel(
  settings: IpAdapterSettings,
  resolveRun: RunResolver,
  codec: ImageCodec,
  conditions: Conditions,
): FlowModel {
  const model = loadedModel(settings, resolveRun, codec, conditions);
  const { config } = model;
  return { ...model, config: { ...config, condition_dropout: finalDropout(config.condition_dropout, settings) } };
}

function loadedModel(
  { policy, seed }: IpAdapterSettings,
  resolveRun: RunResolver,
  codec: ImageCodec,
  conditions: Conditions,
): FlowModel {
  const { model, init, train, lora } = policy;
  if (model !== null) {
    const imagePrompt = imagePromptOf(policy, conditions);
    return loadFlow(modelFolder(model, resolveRun), { trains: train, lora, imagePrompt, seed }, policy.engine.dtype);
  }
  if (init === null) throw new DataError('policy.model and policy.init are both null');
  if (train === 'lora') throw new InternalError('LoRA over random weights');
  return initFlow(initConfig(init, codec), train, seed);
}

/** The new IP-Adapter for a model without one. */
function imagePromptOf(
  { ip_adapter }: IpAdapterSettings['policy'],
  { styleWidth }: Pick<Conditions, 'styleWidth'>,
): IpAdapterConfig | null {
  if (ip_adapter === null) return null;
  if (styleWidth !== null) return { ...ip_adapter, image_embed_dim: styleWidth };
  throw new DataError('policy.ip_adapter begins an IP-Adapter, and policy.parts.image_encoder is null');
}

/** Only its architecture. */
function startingConfig(
  { policy }: Pick<IpAdapterSettings, 'policy'>,
  resolveRun: RunResolver,
  codec: ImageCodec,
  conditions: Conditions,
): FlowTransformerConfig {
  if (policy.model !== null) {
    const config = describeFlowModel(modelFolder(policy.model, resolveRun));
    return { ...config, ip_adapter: config.ip_adapter ?? imagePromptOf(policy, conditions) };
  }
  if (policy.init === null) throw new DataError('policy.model and policy.init are both null');
  return initConfig(policy.init, codec);
}

export const ipAdapter: OpenRecipe<IpAdapterSettings> = {
  checks,
  makeData: signData.make,
  open,
  openTask: async (settings, resolveRun) => {
    const codec = openCodec(settings.policy.parts.vae, settings.policy.engine, resolveRun);
    const conditions = conditionsOf(settings, resolveRun);
    return InpaintTask.open(settings, startingConfig(settings, resolveRun, codec, conditions), codec, conditions);
  },
  sampleRows: sampleInpaints,
};
