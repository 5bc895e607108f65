/** Small models that nothing trains, each with what it makes of the same things on a provider. */
import { cpSync } from 'node:fs';
import { join } from 'node:path';
import { toPlanes } from '../../../src/core/images/planes.js';
import { RandomStream } from '../../../src/core/random.js';
import type { RgbImage } from '../../../src/core/images/png.js';
import type { StorageDtype } from '../../../src/core/safetensors.js';
import type { Provider } from '../../../src/compute/onnx/session.js';
import { pixelCodec } from '../../../src/train/environments/image_codec.js';
import { TrainedVisionTokenizer } from '../../../src/train/environments/trained_vision_tokens.js';
import { loadVisionTokenizer } from '../../../src/train/environments/vision_tokens.js';
import { initImageTokenizer } from '../../../src/compute/nets/image_tokenizer.js';
import type { FluxConfig } from '../../../src/compute/nets/flow/config.js';
import { FlowEditor } from '../../../src/train/policies/flow/editor.js';
import { openImages } from '../../../src/recipes/prompt_enhance/open.js';
import { EmbeddingModel } from '../../../src/rewards/terms/clip/model.js';
import type { OwnImageModel } from '../../../src/config/schema/image_model.js';
import { config, smallFlow } from '../../train/policies/flow/small_flow.js';
import { emu3Folder } from '../../recipes/image_edit_tokens/emu3_fixture.js';
import { smallSettings } from '../../recipes/prompt_enhance/small.js';
import { drawPicture, tinyClip } from '../../rewards/terms/clip/pictures.js';

/** What a model makes: numbers of the size of 1. It asks the model twice at least, and closes it. */
type Made = (provider: Provider, folder: string) => Promise<number[]>;

/** The pictures of a pipeline's folder: its text encoders, its transformer and its autoencoder. */
function drawing(dtype: StorageDtype): Made {
  return async (provider) => {
    const model = join(import.meta.dirname, '../../train/policies/flow/fixtures/sd3');
    const sizes = { width: 12, height: 16, num_steps: 3, guidance_scale: 4.5 };
    const engine = { provider, threads: 1, dtype };
    const { environment } = smallSettings({ environment: { model, model_type: 'sd3', ...sizes, engine } });
    const images = openImages(environment as OwnImageModel, () => '');
    const made: number[] = [];
    for (const prompt of ['a red door', 'two signs']) {
      const [picture] = await images.generate([{ key: 'a', prompt, seed: 7 }]);
      if (picture.kind !== 'made') throw new Error(picture.detail);
      made.push(...colours(picture.image));
    }
    await images.close();
    return made;
  };
}

const colours = ({ data }: RgbImage): number[] => [...data].map((level) => level / 255);

const editing: Made = async (provider) => {
  const of: FluxConfig = { ...config, in_channels: 24, out_channels: 12, ip_adapter: null };
  const how = { type: 'tiny', steps: 3, guidance: null, batch: 1, session: { provider, threads: 1 } } as const;
  const editor = new FlowEditor(smallFlow('all', 1, of), pixelCodec, how, 'here');
  const width = of.joint_attention_dim;
  const edits = [1, 2].map((seed) => ({
    source: toPlanes(drawPicture({ width: 8, height: 8, kind: 'noise' })),
    states: {
      width,
      states: Float32Array.from({ length: 3 * width }, (_, i) => Math.sin(seed * i)),
      ids: new Int32Array(3),
    },
    random: new RandomStream('edit', seed),
  }));
  const made = await editor.draw(edits);
  await editor.dispose();
  return made.flatMap(({ data }) => [...data]);
};

const comparing: Made = async (provider, folder) => {
  cpSync(tinyClip, folder, { recursive: true });
  const model = await EmbeddingModel.open(folder, { provider, threads: 1 });
  const pictures = (['bands', 'noise'] as const).map((kind) => drawPicture({ width: 40, height: 32, kind }));
  const made: number[] = [];
  for (const picture of pictures) made.push(...(await model.imageEmbedding(picture)));
  for (const words of ['the sky', 'the sea']) made.push(...(await model.textEmbedding(words)));
  await model.close();
  return made;
};

/** The codes of pictures, and the pictures of codes. */
const tokenizing =
  (open: (provider: Provider) => ReturnType<typeof loadVisionTokenizer>): Made =>
  async (provider) => {
    const tokenizer = open(provider);
    const made: number[] = [];
    for (const kind of ['bands', 'noise'] as const) {
      const grids = await tokenizer.encode([drawPicture({ width: 8, height: 8, kind })]);
      const [picture] = await tokenizer.decode(grids);
      made.push(...grids[0].codes, ...colours(picture));
    }
    await tokenizer.dispose();
    return made;
  };

const own = { codebook_size: 8, patch: 4, hidden: 12, code_dim: 4, commitment_weight: 0.25 };

export const frozenModels: Readonly<Record<string, Made>> = {
  'an image model with its pipeline': drawing('float32'),
  'an image model with its pipeline, in float16': drawing('float16'),
  'an editor': editing,
  'the halves of CLIP': comparing,
  "Emu3's image tokenizer": tokenizing((provider) =>
    loadVisionTokenizer(emu3Folder('model'), { provider, threads: 1 }),
  ),
  'an image tokenizer that was trained here': tokenizing(
    (provider) => new TrainedVisionTokenizer(own, initImageTokenizer(own, 1), { provider, threads: 1 }),
  ),
};
