/** A server of the OpenAI images API draws, prompted with words. */
import { DataError } from '../../core/errors.js';
import { encodePng, type RgbImage } from '../../core/image.js';
import { resizeCubic } from '../../core/resize.js';
import { SEEDS } from '../../environments/image_model.js';
import type { ImagesRequest } from '../../environments/images_api/client.js';
import type { ServedPictures } from '../../environments/served/pictures.js';
import { SERVED_SIDE, type TextPromptEditor } from '../../schema/editor.js';
import { pictureSize, sizeText } from '../../schema/images_api.js';
import { fittedTo, type Drawing, type DrawnEdit, type RecordedDrawing, type WantedEdit } from './drawing.js';

export class TextPromptDrawing implements Drawing {
  readonly asksBlank = false;
  readonly onlyOne = {
    why: "a server of environment.type 'images_api_text_prompt' is sent one",
    next: "Leave such rows out, or draw here, with environment.type 'model'.",
  };

  constructor(
    private readonly environment: Pick<TextPromptEditor, 'size' | 'max_pixels'>,
    private readonly images: ServedPictures<ImagesRequest>,
  ) {}

  fitted(image: RgbImage, path: string, where: string): RgbImage {
    const { size, max_pixels: most } = this.environment;
    if (size === null) return fittedTo(image, { side: SERVED_SIDE, most }, path, where);
    const { width, height } = pictureSize(size);
    if (image.width * height !== image.height * width) {
      throw new DataError(`${path}: found ${image.width}x${image.height} pixels; allowed: the shape of ${size}`, {
        where,
        next: 'Crop the picture, or set environment.size to null, where the server takes any size.',
      });
    }
    return image.width === width ? image : resizeCubic(image, width, height);
  }

  async draw(edits: readonly WantedEdit[]): Promise<DrawnEdit[]> {
    const files = new Map<RgbImage, Promise<Uint8Array>>();
    const requests = edits.map(async ({ key, source, words: prompt, random }) => {
      const file = files.get(source) ?? encodePng(source);
      files.set(source, file);
      return { key, prompt, seed: random.integer(SEEDS), source: await file, size: sizeText(source) };
    });
    const made = await this.images.generate(await Promise.all(requests));
    return made.map((picture) => ({ picture, record: {} }));
  }

  /** Empty: pictures are found by their words. */
  remembered(): RecordedDrawing {
    return {};
  }

  async keep(): Promise<void> {
    await this.images.keep?.();
  }

  dispose(): Promise<void> {
    return this.images.close();
  }
}
