/** Checks of a run's source images before anything trains. */
import { existsSync } from 'node:fs';
import { DataError } from '../../core/errors.js';
import { imageSize } from '../../core/images/image.js';
import { sourcesOf } from '../../data/image_edits.js';
import { lacksHubBase } from '../../models/adapters/files.js';
import { imagesRead } from '../../train/policies/flow/editor.js';
import { describeFlowModel } from '../../train/policies/flow/load.js';
import type { Check } from '../recipe.js';
import {
  imagesIn,
  judgedAlone,
  requireSources,
  rowsUsedOf,
  sourceChecks,
  unnamedImages,
  type SingleImage,
  type SourceLimit,
  type VisionEditSource,
} from '../shared/images/edits.js';
import type { ImageEditorSettings } from './settings.js';
import type { EditorParts } from './task.js';

type Checked = Pick<EditorParts, 'data' | 'codec' | 'config' | 'sourceInput'>;

/** Raises DataError for the first row with too many source images, and for the first image of a size that cannot be edited. */
export async function checkSources(settings: ImageEditorSettings, parts: Checked): Promise<void> {
  const rowsUsed = rowsUsedOf(parts.data, settings.validation.prompts);
  const limit = limitOf(imagesRead(parts.config), singleImage(settings));
  if (limit !== null) requireSources(imagesIn(rowsUsed), limit);
  // Other images are scaled to fit, and scenes of the tiny world are whole tokens.
  if (settings.policy.max_pixels === null && settings.data.tiny === null) await requireSizes(rowsUsed, parts);
}

/** Checks the number of source images before anything trains. */
export function editorSourceChecks(settings: ImageEditorSettings): Check[] {
  const { model } = settings.policy;
  const folder = typeof model === 'string' ? model : null;
  // A model with random weights reads one.
  return sourceChecks(settings, limitIn, folder, model === null ? 1 : null, singleImage(settings));
}

function limitIn(folder: string | null, most: number | null, one: SingleImage | null): SourceLimit | null {
  const isKnown = folder !== null && existsSync(folder) && !lacksHubBase(folder);
  return limitOf(isKnown ? imagesRead(describeFlowModel(folder)) : most, one);
}

/** Why a row may have one source image, apart from the model. Null if it may have several. */
function singleImage(settings: ImageEditorSettings): SingleImage | null {
  return (settings.reader === null ? null : unnamedImages(settings.prompt)) ?? judgedAlone(settings);
}

/** The limit for a model of at most `most` images, which is null if it is not known. */
function limitOf(most: number | null, one: SingleImage | null): SourceLimit | null {
  if (most === 1) {
    return {
      most,
      why: 'the model of policy.model reads one',
      next: 'Remove such rows, or use a model of several images, such as Qwen-Image-Edit-2511 or FLUX.2-klein.',
    };
  }
  if (one !== null) return { ...one, most: 1 };
  if (most === null) return null;
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
