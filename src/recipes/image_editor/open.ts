/** Opens `image_editor`. */
import { existsSync } from 'node:fs';
import { DataError } from '../../core/errors.js';
import { sessionOptions } from '../../compute/onnx/session.js';
import { freshFlux, type FlowTransformerConfig } from '../../compute/nets/flow/config.js';
import { imageEditData } from '../../data/tiny/image_edits.js';
import { isPipeline, readPipeline } from '../../models/pipeline.js';
import { lacksHubBase } from '../../models/adapters/files.js';
import { modelFolder, type RunResolver } from '../../models/reference.js';
import { recordDatasets, type TrainingContext } from '../../train/context.js';
import type { ImageCodec } from '../../train/environments/image_codec.js';
import type { Training } from '../../train/loop.js';
import type { FlowAnswer } from '../../train/policies/flow/batch.js';
import { sourceInputOf } from '../../train/policies/flow/editor.js';
import {
  checkFlowModel,
  describeFlowModel,
  initFlow,
  loadFlow,
  requireUnconditional,
  type FlowModel,
} from '../../train/policies/flow/load.js';
import { requireModelType } from '../../train/policies/flow/model_types.js';
import { requireGuidable } from '../../train/policies/flow/pipeline.js';
import { FlowPolicy } from '../../train/policies/flow/policy.js';
import type { FlowSampling } from '../../train/policies/flow/sampler.js';
import type { OpenRecipe } from '../recipe.js';
import {
  checkOf,
  datasetChecks,
  flowPartChecks,
  guidanceChecks,
  languageModelChecks,
  rowsCheck,
} from '../shared/checks.js';
import { flowLabels } from '../shared/flow/answers.js';
import { openCodec } from '../shared/flow/parts.js';
import { flowRewards, requireSingleCopy, samplingsOf } from '../shared/flow/rewards.js';
import { finalDropout } from '../shared/flow/settings.js';
import { ImageFiles, openEditData, sampleVisionEdits, writeImageEdit } from '../shared/images/edits.js';
import { openTraining } from '../shared/training.js';
import { editColumns } from '../shared/words/settings.js';
import { comparedQuestion } from '../shared/words/task.js';
import { openInstructions, type Instructions } from './instructions.js';
import { NOTHING_TRAINS, type ImageEditorSettings } from './settings.js';
import { checkSources, editorSourceChecks } from './sources.js';
import { EditorTask, type EditorParts, type EditorPrompt } from './task.js';

async function open(settings: ImageEditorSettings, context: TrainingContext): Promise<Training> {
  const { algorithm, policy, optimizer, rollout, validation } = settings;
  const { group, resolveRun } = context;
  requireSingleCopy(policy.engine);
  const guidance = algorithm.type === 'sft' ? null : rollout.guidance_scale;
  const { task, config, data } = await openEditorTask(settings, resolveRun);
  requireUnconditional(config, guidance);
  if (policy.parts.text_encoder !== null) {
    requireGuidableIn(modelFolder(policy.parts.text_encoder, resolveRun), guidance);
  }
  await recordDatasets(context, settings, data.sources, { at: comparedQuestion, kept: 'memory' });
  const trained = new FlowPolicy({
    model: startingModel(settings, config, resolveRun),
    optimizer,
    guidance,
    session: sessionOptions(policy.engine),
    peers: group,
    keepReference: algorithm.type !== 'sft',
  });
  return openTraining<EditorPrompt, FlowAnswer, FlowSampling>(settings, context, {
    task,
    policy: trained,
    samplings: samplingsOf(settings),
    longestAnswer: null,
    ...(algorithm.type === 'sft'
      ? { labels: flowLabels(task, algorithm.sft, validation.prompts) }
      : { rewards: flowRewards(settings, algorithm) }),
  });
}

/** The initial model, in the dtype of the engine. Raises CheckpointError as `loadFlow` does. */
function startingModel(
  { policy, seed }: ImageEditorSettings,
  config: FlowTransformerConfig,
  resolveRun: RunResolver,
): FlowModel {
  const { model, lora, engine } = policy;
  const trains = lora === null ? 'all' : 'lora';
  if (model === null) return initFlow(config, 'all', seed);
  const loaded = loadFlow(modelFolder(model, resolveRun), { trains, lora, imagePrompt: null, seed }, engine.dtype);
  return { ...loaded, config };
}

/** Raises DataError and CheckpointError for files that are missing or do not match. */
async function openEditorTask(
  settings: ImageEditorSettings,
  resolveRun: RunResolver,
): Promise<Pick<EditorParts, 'data' | 'config'> & { readonly task: EditorTask }> {
  const { policy } = settings;
  const data = await openEditData(settings);
  const instructions = await openInstructions(settings, data, resolveRun);
  const codec = openCodec(policy.parts.vae, policy.engine, resolveRun);
  const config = configOf(settings, codec, instructions, resolveRun);
  const where = policy.model === null ? 'policy.init' : 'policy.model';
  const sourceInput = sourceInputOf(config, codec, where);
  instructions.requireFit(config, where);
  const parts = { data, images: new ImageFiles(), instructions, codec, config, sourceInput };
  await checkSources(settings, parts);
  return { task: new EditorTask(settings, parts), data, config };
}

/** The architecture of the initial model, with the share of edits without words that it has seen by the end of the run. */
function configOf(
  settings: ImageEditorSettings,
  { channels }: Pick<ImageCodec, 'channels'>,
  { width }: Pick<Instructions, 'width'>,
  resolveRun: RunResolver,
): FlowTransformerConfig {
  const { init, model, model_type: type } = settings.policy;
  if (model !== null) {
    const config = describeFlowModel(modelFolder(model, resolveRun));
    requireModelType(config, type);
    return { ...config, condition_dropout: finalDropout(config.condition_dropout, settings) };
  }
  if (init === null) throw new DataError('policy.model and policy.init are both null');
  const latents = channels * init.patch ** 2;
  return freshFlux(init, {
    in_channels: 2 * latents,
    out_channels: latents,
    joint_attention_dim: width,
    pooled_projection_dim: 0,
    condition_dropout: finalDropout(null, settings),
    ip_adapter: null,
  });
}

/** If the text encoder is a whole pipeline, it records whether its model was distilled. Raises the CheckpointErrors of `requireGuidable`. */
function requireGuidableIn(folder: string, guidance: number | null): void {
  if (isPipeline(folder)) requireGuidable(readPipeline(folder), guidance, 'rollout.guidance_scale');
}

const guidableCheck = checkOf('guidance of a pipeline', requireGuidableIn);

const editorCheck = checkOf(
  'image editor',
  (
    folder: string,
    { lora, model_type: type }: Pick<ImageEditorSettings['policy'], 'lora' | 'model_type'>,
    guidance: number | null,
  ) => {
    if (!existsSync(folder) || lacksHubBase(folder)) return;
    requireModelType(describeFlowModel(folder), type);
    checkFlowModel(folder, { trains: lora === null ? 'all' : 'lora', lora, imagePrompt: null }, guidance);
  },
);

export const imageEditor: OpenRecipe<ImageEditorSettings> = {
  makeData: imageEditData.make,
  checks: (settings, shapeOf) => {
    const { algorithm, reader, policy, rollout, prompt, data } = settings;
    const guidance = algorithm.type === 'sft' ? null : rollout.guidance_scale;
    const { lora, model_type } = policy;
    const columns = [...editColumns(data), ...(algorithm.type === 'sft' ? [data.columns.target] : [])];
    return [
      ...datasetChecks(settings, (path) => rowsCheck(path, columns)),
      ...editorSourceChecks(settings),
      ...(reader === null
        ? []
        : languageModelChecks({ ...reader, tokenizer: null, lora: null, train: NOTHING_TRAINS }, prompt)),
      ...flowPartChecks(policy.parts),
      ...(typeof policy.parts.text_encoder === 'string' ? [guidableCheck(policy.parts.text_encoder, guidance)] : []),
      ...(typeof policy.model === 'string' ? [editorCheck(policy.model, { lora, model_type }, guidance)] : []),
      ...guidanceChecks('policy', policy.model, guidance, shapeOf),
    ];
  },
  open,
  writeEdit: (settings, _resolveRun, edit) => writeImageEdit(settings, edit),
  openTask: async (settings, resolveRun) => (await openEditorTask(settings, resolveRun)).task,
  sampleRows: sampleVisionEdits,
};
