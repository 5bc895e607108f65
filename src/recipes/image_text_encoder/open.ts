/** Opens `image_text_encoder`. */
import { comparedCaption, openCaptioned } from '../../data/captioned.js';
import { clipNetwork } from '../../train/contrastive.js';
import type { OpenRecipe } from '../../train/opener.js';
import { captionedData } from '../../tiny/world/captioned.js';
import { wholeBatchOpener } from '../open_whole_batch.js';
import type { ImageTextEncoderSettings } from './settings.js';

export const imageTextEncoder: OpenRecipe<ImageTextEncoderSettings> = wholeBatchOpener(
  captionedData,
  openCaptioned,
  comparedCaption,
  ({ seed, environment: { init }, algorithm: { matched_cosine: matchedCosine, sft } }, { train }, { checkpoint }) =>
    clipNetwork({ seed, init, matchedCosine, size: sft.batch_size, checkpoint }, train),
);
