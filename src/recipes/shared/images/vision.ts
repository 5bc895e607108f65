/** Opens the image processor and the initial model of a vision-language policy. */
import { DataError, must } from '../../../core/errors.js';
import { openImageProcessor, plainProcessor, type ImageProcessor } from '../../../models/images/processor.js';
import { type ClipForm, layersOf } from '../../../compute/nets/vision/config.js';
import { modelFolder, type RunResolver } from '../../../models/reference.js';
import type { Tokenizer } from '../../../models/tokenizer/tokenizer.js';
import { describeModel } from '../../../models/adapters/decoder.js';
import type { TokenPrompt } from '../../../models/tokenizer/format.js';
import type { TokenFormat } from '../../../models/tokenizer/format.js';
import {
  initVisionPolicy,
  loadPolicy,
  processorFolder,
  type NewVisionSettings,
} from '../../../train/policies/tokens/load.js';
import type { PolicyModel } from '../../../models/adapters/policy_model.js';
import { type ImageMarks, qwenMarks } from '../../../models/images/vision_input.js';
import type { ModelReference } from '../../../config/schema/model.js';
import type { TrainerSettings } from '../../../config/schema/trainer.js';
import type { VisionPolicySettings } from '../../../config/schema/token_policy.js';

/** Converts images into model inputs and into the tokens that represent them. */
export interface VisionInputs {
  readonly processor: ImageProcessor;
  readonly tokens: NewVisionSettings['tokens'];
  /** The form of a clip in a prompt. */
  readonly clips: ClipForm;
  readonly marks: ImageMarks;
}

/** Settings that determine how a policy reads images. */
type VisionSettings = Pick<VisionPolicySettings, 'model' | 'init' | 'pixels'> & {
  readonly trainer?: TrainerSettings;
  readonly tokenizer?: ModelReference | null;
};

/**
 * Opens a policy's image inputs. If a training server has the model, the model's description comes from the tokenizer's
 * folder.
 * Raises CheckpointError for a model without a vision encoder, DataError for a tokenizer without image tokens.
 */
export function openVisionInputs(
  { model, init, pixels, trainer, tokenizer: words = null }: VisionSettings,
  tokenizer: Pick<Tokenizer, 'id'>,
  resolveRun: RunResolver,
): VisionInputs {
  const described = trainer?.type === 'tinker' ? words : model;
  if (described !== null) {
    const folder = modelFolder(described, resolveRun);
    const vision = must(describeModel(folder, 'words and images').vision, 'a vision encoder');
    const { clips } = layersOf[vision.family];
    return {
      processor: openImageProcessor(processorFolder(folder), pixels, clips),
      tokens: vision,
      clips,
      marks: qwenMarks,
    };
  }
  if (init === null) throw new DataError('policy.model and policy.init are both null');
  const tokens = {
    vision_start_token_id: tokenizer.id(qwenMarks.start),
    vision_end_token_id: tokenizer.id(qwenMarks.end),
    image_token_id: tokenizer.id(qwenMarks.image),
    video_token_id: tokenizer.id(qwenMarks.video),
  };
  return {
    processor: plainProcessor(init.vision, pixels.image, pixels.video),
    tokens,
    clips: 'one input',
    marks: qwenMarks,
  };
}

/** The starting model of a vision-language policy. Raises the errors of `loadPolicy` and `initVisionPolicy`. */
export function startingVisionModel<P extends TokenPrompt>(
  { policy, seed }: { readonly policy: Omit<VisionPolicySettings, 'trainer'>; readonly seed: number },
  format: TokenFormat<P>,
  { processor, tokens }: VisionInputs,
  resolveRun: RunResolver,
): PolicyModel<P> {
  const { model, init, lora, train: parts, engine } = policy;
  if (model !== null) {
    const fresh = lora === null ? null : { lora, seed };
    return loadPolicy(modelFolder(model, resolveRun), format, fresh, parts, engine.dtype);
  }
  if (init === null) throw new DataError('policy.model and policy.init are both null');
  const { vision, ...decoder } = init;
  return initVisionPolicy(decoder, format, seed, { init: vision, parts, tokens, processor: processor.settings });
}
