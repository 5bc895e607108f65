/** Opens `text_to_image`. */
import { comparedCaption, openCaptioned } from '../../data/captioned.js';
import { Datasets } from '../../data/datasets.js';
import { sessionOptions } from '../../engines/onnx/session_options.js';
import type { PictureCodec } from '../../environments/picture_codec.js';
import { PICTURE_WORDS_FILE, PictureWords, wordsIn, type PromptEncoder } from '../../environments/picture_words.js';
import type { RunResolver } from '../../models/reference.js';
import { freshFlux, type FluxConfig } from '../../nets/flow/config.js';
import { initFlow } from '../../policies/flow/load.js';
import { requireFit } from '../../policies/flow/image_model.js';
import { FlowPolicy } from '../../policies/flow/policy.js';
import { recordDatasets, type TrainingContext } from '../../train/context.js';
import type { Training } from '../../train/loop.js';
import type { OpenRecipe } from '../../train/opener.js';
import { captionedData } from '../../tiny/world/captioned.js';
import { flowLabels } from '../open_flow_labels.js';
import { openCodec, openTextEncoder } from '../open_flow_parts.js';
import { openSupervised } from '../open_training.js';
import type { TextToImageSettings } from './settings.js';
import { CaptionedTask } from './task.js';

async function open(settings: TextToImageSettings, context: TrainingContext): Promise<Training> {
  const { seed, environment, optimizer, algorithm, validation } = settings;
  const { group, resolveRun } = context;
  const placed = captionedData.placesOf(settings);
  const datasets = await Datasets.open(settings, ({ path }) => openCaptioned(placed(path)));
  await recordDatasets(context, settings, datasets.sources, { at: comparedCaption, kept: 'memory' });
  const codec = openCodec(environment.parts.vae, environment.engine, resolveRun);
  const captions = datasets.train.flatMap((source) =>
    Array.from({ length: source.length }, (_, i) => source.read(i).text),
  );
  const encoder = encoderOf(settings, resolveRun, captions);
  const config = configOf(settings, codec, encoder);
  requireFit({ model: { config }, codec, encoder, making: environment });
  const policy = new FlowPolicy({
    model: initFlow(config, 'all', seed),
    optimizer,
    guidance: null,
    session: sessionOptions(environment.engine),
    peers: group,
    keepReference: false,
  });
  const task = new CaptionedTask(settings, codec, encoder, datasets);
  const besides = encoder instanceof PictureWords ? { [PICTURE_WORDS_FILE]: encoder.json() } : {};
  const labels = flowLabels(task, algorithm.sft, validation.prompts);
  return openSupervised(settings, { task, policy, heldOut: null, besides, ...labels });
}

function encoderOf(
  { environment: { parts, init, engine } }: TextToImageSettings,
  resolveRun: RunResolver,
  captions: readonly string[],
): PromptEncoder {
  if (parts.text_encoder !== null) return openTextEncoder(parts.text_encoder, engine, resolveRun);
  const words = [...new Set(captions.flatMap(wordsIn))].sort();
  return new PictureWords({ words, length: init.text_length });
}

function configOf(
  { environment: { init }, algorithm }: TextToImageSettings,
  { channels }: Pick<PictureCodec, 'channels'>,
  { width, pooledWidth }: PromptEncoder,
): FluxConfig {
  const latents = channels * init.patch ** 2;
  return freshFlux(init, {
    in_channels: latents,
    out_channels: latents,
    joint_attention_dim: width,
    pooled_projection_dim: pooledWidth,
    condition_dropout: algorithm.sft.condition_dropout,
    ip_adapter: null,
  });
}

export const textToImage: OpenRecipe<TextToImageSettings> = {
  makeData: captionedData.make,
  open,
  openTask: async () => null,
  sampleRows: async () => [],
};
