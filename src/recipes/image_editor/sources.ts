/** Checks of a run's source images before anything trains. */
import { DataError } from '../../core/errors.js';
import { imageSize } from '../../core/images/image.js';
import { mostSources } from '../../compute/nets/flow/config.js';
import { sourcesOf } from '../../data/image_edits.js';
import {
  judgedAlone,
  requireSources,
  rowsUsedOf,
  type SourceLimit,
  type VisionEditSource,
} from '../shared/images/edits.js';
import type { ImageEditorSettings } from './settings.js';
import type { EditorParts } from './task.js';

type Checked = Pick<EditorParts, 'data' | 'instructions' | 'codec' | 'config' | 'sourceInput'>;

/** Raises DataError for the first row with too many source images, and for the first image of a size that cannot be edited. */
export async function checkSources(settings: ImageEditorSettings, parts: Checked): Promise<void> {
  const rowsUsed = rowsUsedOf(parts.data, settings.validation.prompts);
  requireSources(rowsUsed, limitOf(settings, parts));
  // Other images are scaled to fit, and scenes of the tiny world are whole tokens.
  if (settings.policy.max_pixels === null && settings.data.tiny === null) await requireSizes(rowsUsed, parts);
}

/** Maximum number of source images of a row. */
function limitOf(
  settings: ImageEditorSettings,
  { instructions, config, sourceInput }: Pick<Checked, 'instructions' | 'config' | 'sourceInput'>,
): SourceLimit {
  const model = {
    why: 'the model of policy.model reads one',
    next: 'Remove such rows, or use a model of several images, such as Qwen-Image-Edit-2511 or FLUX.2-klein.',
  };
  const one = (sourceInput.several ? null : model) ?? instructions.onlyOne ?? judgedAlone(settings);
  if (one !== null) return { ...one, most: 1 };
  const most = mostSources(config);
  return { most, why: `models of this kind were trained with up to ${most}`, next: 'Remove such rows.' };
}

/** Maximum number of pixels of an edited image, because attention over more takes memory without limit. */
const MOST_PIXELS = 2048 ** 2;

/** Raises DataError for the first image whose sides are not whole tokens, or that has too many pixels. Reads the headers of files only. */
async function requireSizes(
  rowsUsed: ReadonlyMap<VisionEditSource, number>,
  { codec, sourceInput }: Pick<Checked, 'codec' | 'sourceInput'>,
): Promise<void> {
  const side = sourceInput.patch * codec.reduction;
  const checked = new Set<string>();
  for (const [{ edits }, length] of rowsUsed) {
    for (let index = 0; index < length; index++) {
      const edit = edits.read(index);
      for (const path of sourcesOf(edit).filter((one) => !checked.has(one))) {
        checked.add(path);
        // An image that cannot be opened is reported when it is read.
        const size = await imageSize(path);
        if (size === null) continue;
        const { width, height } = size;
        const isWhole = width % side === 0 && height % side === 0;
        if (isWhole && width * height <= MOST_PIXELS) continue;
        const allowed = isWhole ? `at most ${MOST_PIXELS} pixels` : `multiples of ${side}`;
        throw new DataError(`${path}: found ${width}x${height} pixels; allowed: ${allowed}`, {
          where: edit.where,
          next: 'Resize the image, or set policy.max_pixels, which resizes images to fit.',
        });
      }
    }
  }
}
