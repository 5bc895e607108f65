/** Opens `prompt_enhance`. */
import { sessionOptions } from '../../compute/onnx/session.js';
import type { ImageModel } from '../../train/environments/image_model.js';
import { WordEncoder, type PromptEncoder } from '../../train/environments/word_encoder.js';
import { CheckpointError } from '../../core/errors.js';
import { isPipeline, partFolder, readPipeline } from '../../models/pipeline.js';
import { modelFolder, type RunResolver } from '../../models/reference.js';
import { FlowImageModel } from '../../train/policies/flow/image_model.js';
import { openFlowModel, requireUnconditional } from '../../train/policies/flow/load.js';
import { flowModelTypes } from '../../train/policies/flow/model_types.js';
import { pipelineSchedule, requireFamily, requireGuidable } from '../../train/policies/flow/pipeline.js';
import type { OwnImageModel } from '../../config/schema/image_model.js';
import type { TrainingContext } from '../../train/context.js';
import type { OpenRecipe } from '../recipe.js';
import { openImagesServer, openStoredImages } from '../../train/remote/remote_images.js';
import type { Training } from '../../train/loop.js';
import { openCodec, openTextEncoder, textEncoderIn } from '../shared/flow/parts.js';
import { openWordsTraining } from '../shared/words/training.js';
import { wordData } from '../../data/tiny/words.js';
import { openTextTask } from '../text_answers/task.js';
import { columnsOf } from '../text_answers/settings.js';
import { datasetChecks, frozenFlowChecks, languageModelChecks, rowsCheck } from '../shared/checks.js';
import type { PromptEnhanceSettings } from './settings.js';
import { checkPrompts, EnhanceTask, sampleRewrites } from './task.js';

async function open(settings: PromptEnhanceSettings, context: TrainingContext): Promise<Training> {
  const words = await openTextTask(settings, context.resolveRun);
  checkPrompts(settings, words.rowsUsed);
  const { environment } = settings;
  return openWordsTraining(settings, context, words, {
    around: async () => {
      const images =
        environment.type === 'model'
          ? openImages(environment, context.resolveRun)
          : await openImagesServer(settings, environment, context);
      return new EnhanceTask(settings, words, images);
    },
  });
}

/** Raises CheckpointError when the image model or one of its parts cannot be read, or when they do not match. */
export function openImages(environment: OwnImageModel, resolveRun: RunResolver): ImageModel {
  const { parts, engine, model_type, num_steps, guidance_scale, width, height, pictures_at_once } = environment;
  const folder = modelFolder(environment.model, resolveRun);
  const pipeline = isPipeline(folder) ? readPipeline(folder) : null;
  if (pipeline !== null) {
    requireFamily(pipeline, model_type);
    requireGuidable(pipeline, guidance_scale, 'environment.guidance_scale');
  }
  const session = sessionOptions(engine);
  const model = openFlowModel(pipeline === null ? folder : partFolder(pipeline, 'transformer'), () => engine.dtype);
  requireUnconditional(model.config, guidance_scale, 'environment');
  const { sigmas } = pipeline === null ? flowModelTypes[model_type] : pipelineSchedule(pipeline);
  const vae = parts.vae ?? (pipeline === null ? null : partFolder(pipeline, 'vae'));
  return new FlowImageModel({
    model,
    codec: openCodec(vae, engine, resolveRun),
    encoder: encoderOf(environment, folder, resolveRun),
    making: {
      width,
      height,
      batch: pictures_at_once,
      guidance: guidance_scale,
      sigmas: (tokens) => sigmas(num_steps, tokens),
    },
    session,
  });
}

/** The prompt encoder of the image model in this folder. Raises CheckpointError when there is none. */
export function encoderOf({ parts, engine }: OwnImageModel, folder: string, resolveRun: RunResolver): PromptEncoder {
  if (parts.text_encoder !== null) return openTextEncoder(parts.text_encoder, engine, resolveRun);
  if (isPipeline(folder)) return textEncoderIn(folder, sessionOptions(engine), engine.dtype);
  const known = WordEncoder.in(folder);
  if (known !== null) return known;
  throw new CheckpointError('the image model has no vocabulary, and no text encoder is set', {
    where: folder,
    next: 'Set environment.parts.text_encoder to the text encoder that the model was trained with.',
  });
}

export const promptEnhance: OpenRecipe<PromptEnhanceSettings> = {
  checks: (settings, shapeOf) => {
    // The reward compares with the user's own words, whichever columns the template uses.
    const columns = [...new Set([...columnsOf(settings), settings.data.columns.prompt])];
    return [
      ...datasetChecks(settings, (path) => rowsCheck(path, columns)),
      ...languageModelChecks(settings.policy, settings.prompt),
      ...frozenFlowChecks(settings.environment, shapeOf),
    ];
  },
  makeData: wordData.make,
  open,
  promptRoom: async (settings, resolveRun) => (await openTextTask(settings, resolveRun)).room(),
  openTask: async (settings, resolveRun) => {
    const words = await openTextTask(settings, resolveRun);
    const { environment } = settings;
    const images =
      environment.type === 'model' ? openImages(environment, resolveRun) : openStoredImages(settings, environment);
    return new EnhanceTask(settings, words, images);
  },
  sampleRows: sampleRewrites,
};
