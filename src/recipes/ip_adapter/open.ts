/** Opens `ip_adapter`: a flow-matching image model that paints into masked images. */
import { DataError, InternalError } from '../../core/errors.js';
import { sessionOptions } from '../../compute/onnx/session.js';
import { StyleEncoder } from '../../train/environments/style_encoder.js';
import type { ImageCodec } from '../../train/environments/image_codec.js';
import { modelFolder, type RunResolver } from '../../models/reference.js';
import type { FlowTransformerConfig, IpAdapterConfig } from '../../compute/nets/flow/config.js';
import { comparedInpaint } from '../../data/self_bench.js';
import {
  checkFlowModel,
  describeFlowModel,
  loadFlow,
  requireUnconditional,
  initFlow,
  type FlowModel,
} from '../../train/policies/flow/load.js';
import { FlowPolicy } from '../../train/policies/flow/policy.js';
import type { FlowSampling } from '../../train/policies/flow/sampler.js';
import { recordDatasets, type TrainingContext } from '../../train/context.js';
import { existsSync } from 'node:fs';
import { readsQuotedText } from '../../rewards/score/choice.js';
import { checkOf, datasetChecks, flowPartChecks, guidanceChecks, inpaintCheck } from '../shared/checks.js';
import type { ShapeOf } from '../shared/memory.js';
import type { Check, OpenRecipe } from '../recipe.js';
import type { Training } from '../../train/loop.js';
import { flowLabels } from '../shared/flow/answers.js';
import { openCodec, openTextEncoder } from '../shared/flow/parts.js';
import { finalDropout } from '../shared/flow/settings.js';
import { flowRewards, requireSingleCopy, samplingsOf } from '../shared/flow/rewards.js';
import { openTraining } from '../shared/training.js';
import type { FlowAnswer } from '../../train/policies/flow/batch.js';
import { signData } from '../../data/tiny/sign_scenes.js';
import { ExportedConditions, tinyConditions, type Conditions } from './conditions.js';
import { shapeOfModel, type IpAdapterSettings } from './settings.js';
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
      : { rewards: flowRewards(settings, algorithm) }),
  });
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
