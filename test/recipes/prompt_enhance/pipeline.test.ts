/** The image model of prompt_enhance from the folder of a small Stable Diffusion 3; test/fixture_scripts/sd3_pipeline.py makes it. */
import { cpSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it, vi } from 'vitest';
import { floatsToHalves, HalfTensor, halvesToFloats } from '../../../src/core/half.js';
import { readSafetensors, safetensorsPieces } from '../../../src/core/safetensors.js';
import type { ImageModel } from '../../../src/train/environments/image_model.js';
import { AutoencoderCodec } from '../../../src/train/environments/image_codec.js';
import type { PromptEncoder } from '../../../src/train/environments/word_encoder.js';
import { PipelineTextEncoder } from '../../../src/train/environments/pipeline_text.js';
import { openRecipeOf } from '../../../src/recipes/open.js';
import { readPipeline } from '../../../src/models/pipeline.js';
import { openFlowTransformer } from '../../../src/models/networks/flow.js';
import { FlowImageModel } from '../../../src/train/policies/flow/image_model.js';
import { shiftedTwice } from '../../../src/train/policies/flow/model_types.js';
import { openImages } from '../../../src/recipes/prompt_enhance/open.js';
import type { OwnImageModel } from '../../../src/config/schema/image_model.js';
import { testFolders } from '../../support/folder.js';
import { smallSettings } from './small.js';

const folder = join(import.meta.dirname, '../../train/policies/flow/fixtures/sd3');
const environment = {
  type: 'model',
  model: folder,
  model_type: 'sd3',
  width: 12,
  height: 16,
  num_steps: 3,
  guidance_scale: 4.5,
  engine: { provider: 'cpu', threads: 1 },
} as const;
const settings = (changes: object = {}) => smallSettings({ environment: { ...environment, ...changes } });
const nobody = (): string => '';
const newFolder = testFolders('pipeline-held');

async function painted(images: ImageModel, prompt = 'a red door'): Promise<Uint8Array> {
  const [made] = await images.generate([{ key: 'a', prompt, seed: 7 }]);
  await images.close();
  if (made.kind !== 'made') throw new Error(made.detail);
  expect([made.image.width, made.image.height]).toEqual([12, 16]);
  return made.image.data;
}

/** The same by its parts. */
function assembled(
  encoder: PromptEncoder,
  guidance: number | null,
  dropout: number | null = null,
  transformer = join(folder, 'transformer'),
): FlowImageModel {
  const session = { provider: 'cpu', threads: 1 } as const;
  const { config, weights } = openFlowTransformer(transformer);
  return new FlowImageModel({
    model: { config: { ...config, condition_dropout: dropout }, weights },
    codec: AutoencoderCodec.open(join(folder, 'vae'), session),
    encoder,
    making: { width: 12, height: 16, batch: 4, guidance, sigmas: () => shiftedTwice(3, 3) },
    session,
  });
}

const words = (): PipelineTextEncoder => new PipelineTextEncoder(readPipeline(folder), { provider: 'cpu' });

it('paints with all that the folder has', async () => {
  const own = settings().environment as OwnImageModel;
  const image = await painted(openImages(own, nobody));
  expect(image).toEqual(await painted(assembled(words(), 4.5)));
  expect(image).not.toEqual(await painted(openImages(own, nobody), 'two signs'));
  // Parts that are named count before its own.
  const parts = { vae: join(folder, '..', 'flux', 'vae'), text_encoder: folder };
  const other = settings({ parts }).environment as OwnImageModel;
  expect(image).not.toEqual(await painted(openImages(other, nobody)));
});

it('paints as with float32 where its transformer and its text encoders are stored in float16', async () => {
  const copy = join(newFolder(), 'rounded');
  cpSync(folder, copy, { recursive: true });
  // Numbers that float16 has.
  const file = join(copy, 'transformer', 'diffusion_pytorch_model.safetensors');
  const rounded = [...readSafetensors(file)].map(
    ([name, { shape, data }]) => [name, { shape, data: halvesToFloats(floatsToHalves(data)) }] as const,
  );
  writeFileSync(file, Buffer.concat(safetensorsPieces(new Map(rounded))));
  const own = settings({ model: copy, engine: { ...environment.engine, dtype: 'float16' } }).environment;
  const widened = vi.spyOn(HalfTensor.prototype, 'data', 'get');
  const images = openImages(own as OwnImageModel, nobody);
  const encoder = new PipelineTextEncoder(readPipeline(copy), { provider: 'cpu' }, 'float16');
  const wanted = await painted(assembled(encoder, 4.5, null, join(copy, 'transformer')));
  await images.generate([{ key: 'a', prompt: 'two signs', seed: 7 }]);
  widened.mockClear();
  expect(await painted(images)).toEqual(wanted);
  expect(widened).not.toHaveBeenCalled();
  widened.mockRestore();
  // So the text encoders are not those of float32, whose weights are not rounded.
  expect(wanted).not.toEqual(await painted(assembled(words(), 4.5, null, join(copy, 'transformer'))));
  // What float16 does not hold is refused where it is to be held so.
  rounded.find(([, { shape }]) => shape.length > 1)![1].data[0] = 70_000;
  writeFileSync(file, Buffer.concat(safetensorsPieces(new Map(rounded))));
  expect(() => openImages(own as OwnImageModel, nobody)).toThrow('beyond 65504');
});

it('measures guidance from the prompt of no words, and reads that for nothing else', async () => {
  const encoder = words();
  let asked = 0;
  const told = (blank: boolean, summarised = true): PromptEncoder => ({
    width: encoder.width,
    pooledWidth: encoder.pooledWidth,
    encode: (prompt) => encoder.encode(prompt),
    unread: (prompt) => encoder.unread(prompt),
    dispose: () => Promise.resolve(),
    ...(blank
      ? {
          blank: async () => {
            asked += 1;
            const read = await encoder.encode('');
            return summarised ? read : { ...read, pooled: null };
          },
        }
      : {}),
  });
  expect(await painted(assembled(told(true), 4.5))).not.toEqual(await painted(assembled(told(false), 4.5)));
  expect(asked).toBe(1);
  expect(await painted(assembled(told(true), 4.5))).not.toEqual(await painted(assembled(told(true, false), 4.5)));
  asked = 1;
  expect(await painted(assembled(told(true), null))).toEqual(await painted(assembled(told(false), null)));
  expect(asked).toBe(1);
  // One that learnt here what no words look like was shown zeros.
  expect(await painted(assembled(told(true), 4.5, 0.1))).toEqual(await painted(assembled(told(false), 4.5)));
  expect(asked).toBe(1);
  await encoder.dispose();
});

it('is checked before a run starts', () => {
  const look = (changes: object = {}): void => {
    const changed = settings(changes);
    openRecipeOf(changed)
      .checks(changed, () => null)
      .forEach(({ run }) => run());
  };
  expect(() => look()).not.toThrow();
  expect(() => look({ model_type: 'tiny' })).toThrow("environment.model_type is 'tiny'");
  expect(() => look({ parts: { text_encoder: join(folder, 'text_encoder') } })).toThrow('not a supported text encoder');
  expect(() => openImages(settings({ model_type: 'flux' }).environment as OwnImageModel, nobody)).toThrow(
    "environment.model_type is 'flux'",
  );
  expect(() => openImages(settings({ width: 32 }).environment as OwnImageModel, nobody)).toThrow(
    'the model has positions for 6 tokens of 4 pixels on a side',
  );
});
