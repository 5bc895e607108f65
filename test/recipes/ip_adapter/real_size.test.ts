/** What a sample of 512 x 512 pixels becomes for models of real size. */
import { describe, expect, it } from 'vitest';
import type { ImageCodec } from '../../../src/train/environments/image_codec.js';
import type { Planes } from '../../../src/core/images/planes.js';
import { encodePlainPng } from '../../../src/core/images/png.js';
import { validate } from '../../../src/config/validate.js';
import { readFlowConfig, type FluxConfig } from '../../../src/compute/nets/flow/config.js';
import { pack } from '../../../src/train/policies/flow/batch.js';
import { microBatches, modelFeeds } from '../../../src/train/policies/flow/rows.js';
import { shownAs, type Conditions } from '../../../src/recipes/ip_adapter/conditions.js';
import type { IpAdapterSettings } from '../../../src/recipes/ip_adapter/settings.js';
import { InpaintTask, paintedLatents } from '../../../src/recipes/ip_adapter/task.js';
import { writeFiles } from '../../data/image_files.js';
import { testFolders } from '../../support/folder.js';

const newFolder = testFolders('real-size');
const SIDE = 512;
const TEXT = 4;

/** FLUX.1 Fill's sizes at the edges, and next to nothing inside. */
const fill: FluxConfig = {
  architecture: 'flux',
  in_channels: 384,
  out_channels: 64,
  num_layers: 1,
  num_single_layers: 0,
  attention_head_dim: 16,
  num_attention_heads: 1,
  joint_attention_dim: 8,
  pooled_projection_dim: 6,
  guidance_embeds: true,
  prediction: 'velocity',
  condition_dropout: null,
  axes_dims_rope: [4, 6, 6],
  ip_adapter: { tokens: 4, image_embed_dim: 5, scale: 1 },
};

/** Sixteen channels for 8 x 8 pixels: each channel holds the mean of a colour. */
class Means implements ImageCodec {
  readonly channels = 16;
  readonly reduction = 8;
  encode: ImageCodec['encode'] = (images) =>
    Promise.resolve(
      images.map(({ width, height, data }): Planes => {
        const [w, h] = [width / 8, height / 8];
        const means = Float32Array.from({ length: 16 * w * h }, (_, at) => {
          const [channel, place] = [Math.floor(at / (w * h)) % 3, at % (w * h)];
          const pixel = Math.floor(place / w) * 8 * width + (place % w) * 8;
          return data[3 * pixel + channel] / 127.5 - 1;
        });
        return { channels: 16, width: w, height: h, data: means };
      }),
    );
  decode = (): never => {
    throw new Error('not asked for');
  };
  dispose = (): Promise<void> => Promise.resolve();
}

const conditions: Conditions = {
  styleWidth: 5,
  requireFit: () => undefined,
  check: () => undefined,
  text: () => Promise.resolve({ text: new Float32Array(TEXT * 8).fill(1), pooled: new Float32Array(6).fill(2) }),
  style: () => Promise.resolve(new Float32Array(5).fill(3)),
  dispose: () => Promise.resolve(),
};

/** A sample whose upper left quarter is to be painted. */
function dataset(): string {
  const image = (level: number) =>
    encodePlainPng({ width: SIDE, height: SIDE, data: new Uint8Array(SIDE * SIDE * 3).fill(level) });
  const mask = Uint8Array.from({ length: SIDE * SIDE * 3 }, (_, at) => {
    const pixel = Math.floor(at / 3);
    return pixel % SIDE < SIDE / 2 && pixel < (SIDE * SIDE) / 2 ? 255 : 0;
  });
  const folder = newFolder();
  writeFiles(folder, {
    '1_source.png': image(255),
    '1_mask.png': encodePlainPng({ width: SIDE, height: SIDE, data: mask }),
    '1_ref.png': image(0),
    'self_bench.txt': '1 a red door\n',
  });
  return folder;
}

async function promptFor(config: FluxConfig) {
  const path = dataset();
  const validated = validate({
    run_name: 'r',
    task: 'ip_adapter',
    num_iterations: 1,
    algorithm: { type: 'grpo' },
    optimizer: { learning_rate: 1e-3 },
    policy: { model_type: 'flux', model: 'folder' },
    data: { train: [{ path }], validation: [{ path }] },
    reward: { mode: 'ocr' },
  });
  if ('problems' in validated) throw new Error(JSON.stringify(validated.problems));
  const task = InpaintTask.open(validated.settings as IpAdapterSettings, config, new Means(), conditions);
  const prompt = await task.prompt(0);
  const rows = [{ condition: prompt.flow, sigma: 1, x: new Float32Array(1024 * 64) }];
  const [{ shape }] = microBatches(rows, config, 1);
  return { prompt, shape, feeds: modelFeeds(rows, config, shape, 3.5) };
}

describe('an image of 512 x 512 pixels', () => {
  it('is 16 x 64 x 64 latents, which are 1,024 tokens of 64 numbers', async () => {
    const { prompt } = await promptFor(fill);
    expect(prompt.size).toEqual({ channels: 16, width: 64, height: 64 });
    expect(await prompt.wanted()).toHaveLength(1024 * 64);
    expect(prompt.flow).toMatchObject({ rows: 32, columns: 32 });
  });

  it('is shown to FLUX.1 Fill as 384 numbers a token: latents, what stays, and the mask', async () => {
    const { prompt, shape, feeds } = await promptFor(fill);
    expect(prompt.flow.context).toHaveLength(1024 * (64 + 256));
    expect(prompt.flow.kept).toBeUndefined();
    expect(shape).toEqual({ batch: 1, rows: 32, columns: 32, textTokens: TEXT });
    expect(feeds['hidden']).toHaveLength(1024 * 384);
    const token = (at: number): Float32Array => (feeds['hidden'] as Float32Array).subarray(at * 384, (at + 1) * 384);
    // The first token is painted, the last one stays: noise, gray or the white source, and 256 places of the mask.
    expect([...new Set(token(0).subarray(64, 128))]).toEqual([Math.fround(128 / 127.5 - 1)]);
    expect([...new Set(token(0).subarray(128))]).toEqual([1]);
    expect([...new Set(token(1023).subarray(64, 128))]).toEqual([1]);
    expect([...new Set(token(1023).subarray(128))]).toEqual([0]);
    expect(feeds).toMatchObject({ pooled: new Float32Array(6).fill(2), guidance: Float32Array.of(3.5) });
  });

  it('is shown to a model of 64 numbers a token as 1,024 tokens more, and blended by a mask of 1 x 64 x 64 latents', async () => {
    const { prompt, shape, feeds } = await promptFor({ ...fill, in_channels: 64 });
    expect(prompt.flow.context).toHaveLength(0);
    expect(shape).toEqual({ batch: 1, rows: 32, columns: 32, textTokens: TEXT, hasSecond: true });
    expect(feeds['hidden']).toHaveLength(1024 * 64);
    expect(feeds['second']).toHaveLength(1024 * 64);
    const mask = Float32Array.from({ length: 64 * 64 }, (_, at) => (at % 64 < 32 && at < 32 * 64 ? 1 : 0));
    const all = {
      channels: 16,
      width: 64,
      height: 64,
      data: Float32Array.from({ length: 16 * 4096 }, (_, at) => mask[at % 4096]),
    };
    expect(prompt.flow.kept!.painted).toEqual(pack(all, 2));
  });

  it('is rejected by models that take other numbers', () => {
    const sd3 = readFlowConfig({ _class_name: 'SD3Transformer2DModel' }, '');
    expect(() => shownAs(sd3, new Means())).toThrow('the model has no positions for the kept image');
    expect(() => shownAs({ ...fill, in_channels: 128 }, new Means())).toThrow(
      'the model takes 128 numbers for a token and gives 64, and latents have 16 channels for 8x8 pixels',
    );
  });
});

describe('a mask of latents', () => {
  it('is painted if any pixel is', () => {
    const places = { channels: 4, width: 2, height: 1, data: Float32Array.of(0, 0, 0, 1, 0, 0, 0, 0) };
    expect([...paintedLatents(places, 2)]).toEqual([0, 1, 0, 1]);
  });
});
