/** Opens `image_editor`. */
import { sampleVisionEdits, writeImageEdit, openVisionEditTask } from '../shared/images/edits.js';
import { sessionOptions } from '../../compute/onnx/session.js';
import type { ImageCodec } from '../../train/environments/image_codec.js';
import { modelFolder, type RunResolver } from '../../models/reference.js';
import { freshFlux, type FluxConfig } from '../../compute/nets/flow/config.js';
import { sourceInputOf } from '../../train/policies/flow/editor.js';
import { initFlow } from '../../train/policies/flow/load.js';
import { comparedQuestion } from '../shared/words/task.js';
import { flowModelTypes } from '../../train/policies/flow/model_types.js';
import { FlowPolicy } from '../../train/policies/flow/policy.js';
import type { FlowSampling } from '../../train/policies/flow/sampler.js';
import { Reader } from '../../train/policies/tokens/hidden_states.js';
import { loadPolicy } from '../../train/policies/tokens/load.js';
import { recordDatasets, type TrainingContext } from '../../train/context.js';
import type { OpenRecipe } from '../recipe.js';
import type { Training } from '../../train/loop.js';
import { flowLabels } from '../shared/flow/answers.js';
import { openCodec } from '../shared/flow/parts.js';
import { openTraining } from '../shared/training.js';
import { imageEditData } from '../../data/tiny/image_edits.js';
import { datasetChecks, flowPartChecks, languageModelChecks, rowsCheck } from '../shared/checks.js';
import { editColumns } from '../shared/words/settings.js';
import { NOTHING_TRAINS, type ImageEditorSettings } from './settings.js';
import { EditorTask } from './task.js';

/** Each held-out answer is one action, and nothing else is sampled. */
const ONE_EACH = {
  episodes_per_iteration: 1,
  generations_per_sample: 1,
  refill: null,
  max_response_tokens: 1,
  chunk_groups: null,
} as const;

async function open(settings: ImageEditorSettings, context: TrainingContext): Promise<Training> {
  const { optimizer, environment, algorithm, validation } = settings;
  const { group, resolveRun } = context;
  const { task, config, sources } = await openEditorTask(settings, resolveRun);
  await recordDatasets(context, settings, sources, { at: comparedQuestion, kept: 'memory' });
  const policy = new FlowPolicy({
    model: initFlow(config, 'all', settings.seed),
    optimizer,
    guidance: null,
    session: sessionOptions(environment.engine),
    peers: group,
    keepReference: false,
  });
  const how: FlowSampling = {
    sigmas: () => flowModelTypes.tiny.sigmas(environment.num_steps),
    guidance: null,
    sameLatent: false,
    noiseLevel: 0,
    fraction: 0,
    window: null,
  };
  return openTraining({ ...settings, rollout: ONE_EACH }, context, {
    task,
    policy,
    samplings: { greedy: how },
    longestAnswer: null,
    labels: flowLabels(task, algorithm.sft, validation.prompts),
  });
}

/** Raises DataError and CheckpointError naming what is missing or does not match. */
async function openEditorTask(settings: ImageEditorSettings, resolveRun: RunResolver) {
  const { reader, environment, prompt } = settings;
  const { model, pixels, model_context_size } = reader;
  const asking = { model, init: null, tokenizer: null, pixels, model_context_size, assistant_prefill: '' };
  const asked = { ...settings, rollout: ONE_EACH, policy: asking, prompt };
  const { words, seeing, images } = await openVisionEditTask(asked, resolveRun);
  if (reader.told === 'response') await words.checkPrompts();
  const read = loadPolicy(modelFolder(model, resolveRun), words.format, null, NOTHING_TRAINS);
  const codec = openCodec(environment.parts.vae, environment.engine, resolveRun);
  const config = configOf(settings, codec, read.config.hidden_size);
  const sourceInput = sourceInputOf(config, codec, 'environment.init');
  const session = sessionOptions(reader.engine);
  const parts = { words, seeing, images, codec, config, sourceInput, reader: new Reader(read, { session }) };
  return { task: new EditorTask(settings, parts), config, sources: words.data.sources };
}

function configOf(
  { environment: { init }, algorithm }: ImageEditorSettings,
  { channels }: Pick<ImageCodec, 'channels'>,
  textWidth: number,
): FluxConfig {
  const latents = channels * init.patch ** 2;
  return freshFlux(init, {
    in_channels: 2 * latents,
    out_channels: latents,
    joint_attention_dim: textWidth,
    pooled_projection_dim: 0,
    condition_dropout: algorithm.sft.condition_dropout,
    ip_adapter: null,
  });
}

export const imageEditor: OpenRecipe<ImageEditorSettings> = {
  makeData: imageEditData.make,
  checks: (settings) => {
    const { reader, environment, prompt, data } = settings;
    return [
      ...datasetChecks(settings, (path) => rowsCheck(path, [...editColumns(data), data.columns.target])),
      ...languageModelChecks({ ...reader, tokenizer: null, lora: null, train: NOTHING_TRAINS }, prompt),
      ...flowPartChecks(environment.parts),
    ];
  },
  open,
  writeEdit: (settings, _resolveRun, edit) => writeImageEdit(settings, edit),
  openTask: async (settings, resolveRun) => (await openEditorTask(settings, resolveRun)).task,
  sampleRows: sampleVisionEdits,
};
