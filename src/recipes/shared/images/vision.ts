/** Opens the image processor and the initial model of a vision-language policy. */
import { DataError, must } from '../../../core/errors.js';
import { openImageProcessor, plainProcessor, type PromptImages } from '../../../models/images/processor.js';
import { openSmolvlmProcessor, SMOLVLM_FAKE, smolvlmMarks } from '../../../models/images/smolvlm.js';
import { type ClipForm, layersOf, type VisionConfig } from '../../../compute/nets/vision/config.js';
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
  readonly processor: PromptImages;
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
    const processor = openPromptImages(folder, vision, pixels);
    const { clips } = layersOf[vision.family];
    if (clips !== 'frames') return { processor, tokens: vision, clips, marks: qwenMarks };
    // The encoder's config does not name the mark before an image.
    const mark = tokenizer.id(SMOLVLM_FAKE);
    const tokens = { ...vision, vision_start_token_id: mark, vision_end_token_id: mark };
    return { processor, tokens, clips, marks: smolvlmMarks };
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

/** The image processor of a model's folder. Raises CheckpointError for missing or unsupported files. */
export function openPromptImages(
  folder: string,
  vision: VisionConfig,
  pixels?: VisionPolicySettings['pixels'],
): PromptImages {
  const at = processorFolder(folder);
  const { clips } = layersOf[vision.family];
  return clips === 'frames'
    ? openSmolvlmProcessor(at, vision, pixels?.image.max_pixels)
    : openImageProcessor(at, pixels, clips);
}

/** The starting model of a vision-language policy. Raises the errors of `loadPolicy` and `initVisionPolicy`. */
export function startingVisionModel<P extends TokenPrompt>(
  { policy, seed }: { readonly policy: Omit<VisionPolicySettings, 'trainer'>; readonly seed: number },
  format: TokenFormat<P>,
  { tokens }: VisionInputs,
  resolveRun: RunResolver,
): PolicyModel<P> {
  const { model, init, lora, train: parts, engine, pixels } = policy;
  if (model !== null) {
    const fresh = lora === null ? null : { lora, seed };
    return loadPolicy(modelFolder(model, resolveRun), format, fresh, parts, engine.dtype);
  }
  if (init === null) throw new DataError('policy.model and policy.init are both null');
  const { vision, ...decoder } = init;
  const { settings: processor } = plainProcessor(vision, pixels.image, pixels.video);
  return initVisionPolicy(decoder, format, seed, { init: vision, parts, tokens, processor });
}
