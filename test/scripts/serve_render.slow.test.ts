import { spawn, spawnSync, type ChildProcess } from 'node:child_process';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { systemClock } from '../../src/core/clock.js';
import { Deadline } from '../../src/core/deadline.js';
import { encodePng, sha256 } from '../../src/core/image.js';
import { RenderClient } from '../../src/environments/render_server/client.js';
import { testFolder } from '../support/folder.js';

/** A Python with diffusers, where there is one. */
const python = process.env['EDITRL_TEST_PYTHON'] ?? 'python3';
const probe = spawnSync(python, ['-c', 'import diffusers, torch, transformers'], { encoding: 'utf8' });
const missing = probe.status === 0 ? null : (probe.stderr?.trim().split('\n').at(-1) ?? `there is no ${python}`);
const why = missing === null ? '' : ` (skipped: ${missing}; EDITRL_TEST_PYTHON names another Python)`;

const WIDTH = 16;
/** A pipeline of random weights, without what reads words. */
const MAKE = `
import sys, torch
from diffusers import AutoencoderKLQwenImage, FlowMatchEulerDiscreteScheduler, QwenImageEditPipeline, QwenImageTransformer2DModel
torch.manual_seed(0)
transformer = QwenImageTransformer2DModel(
    patch_size=2, in_channels=16, out_channels=4, num_layers=1, attention_head_dim=16, num_attention_heads=2,
    joint_attention_dim=${WIDTH}, guidance_embeds=False, axes_dims_rope=(8, 4, 4))
vae = AutoencoderKLQwenImage(
    base_dim=8, z_dim=4, dim_mult=[1, 2, 4], num_res_blocks=1, temperal_downsample=[False, True],
    latents_mean=[0.0] * 4, latents_std=[1.0] * 4)
QwenImageEditPipeline(transformer=transformer, vae=vae, scheduler=FlowMatchEulerDiscreteScheduler(),
    text_encoder=None, tokenizer=None, processor=None).save_pretrained(sys.argv[1])
`;
const env = { ...process.env, HF_HUB_OFFLINE: '1', RENDER_API_KEY: 'a-key-of-some-length' };
const MINUTES = 60_000;

describe.skipIf(missing !== null)(`scripts/serve_render${why}`, () => {
  const folder = join(testFolder('serve-render'), 'tiny');
  let server: ChildProcess;
  let url: string;

  beforeAll(async () => {
    const made = spawnSync(python, ['-W', 'ignore', '-c', MAKE, folder], { encoding: 'utf8', env });
    expect(made.status, made.stderr).toBe(0);
    const script = join(import.meta.dirname, '../../scripts/serve_render');
    const args = ['-W', 'ignore', script, folder, '--model', 'tiny', '--port', '0', '--dtype', 'float32'];
    server = spawn(python, [...args, '--device', 'cpu'], { env, stdio: ['ignore', 'pipe', 'ignore'] });
    url = await new Promise<string>((resolve, reject) => {
      server.once('exit', (code) => reject(new Error(`it ended with ${code}`)));
      if (server.stdout !== null) createInterface(server.stdout).once('line', resolve);
    });
  }, 2 * MINUTES);
  afterAll(() => void server?.kill());

  const open = (width: number, apiKey?: string): RenderClient =>
    new RenderClient({
      settings: {
        ...{ base_url: url, served_model: 'tiny', num_inference_steps: 1, max_pixels: 4096 },
        ...{ concurrency: 1, timeout_s: 600, max_attempts: 1 },
      },
      width,
      apiKey,
    });
  const draw = async (client: RenderClient, width: number, side = 32) => {
    const bytes = new Uint8Array(new Float32Array(3 * width).fill(0.5).buffer);
    const source = await encodePng({ width: side, height: side, data: new Uint8Array(3 * side * side).fill(90) });
    const states = { dtype: 'F32', shape: [3, width], bytes } as const;
    const asked = { states, statesDigest: sha256(bytes), source, size: { width: side, height: side }, seed: 5 };
    try {
      return await client.draw(asked, new Deadline(systemClock, 10 * MINUTES));
    } finally {
      await client.close();
    }
  };

  it(
    'draws by hidden states, in the size of the source',
    async () => {
      const answered = await draw(open(WIDTH, env.RENDER_API_KEY), WIDTH);
      expect(answered).toMatchObject({ picture: { width: 32, height: 32 } });
      const colours = new Set('picture' in answered ? answered.picture.data : []);
      expect(colours.size).toBeGreaterThan(8);
    },
    10 * MINUTES,
  );

  it('refuses states of another width, sides that it cannot draw, and another key', async () => {
    await expect(draw(open(24, env.RENDER_API_KEY), 24)).rejects.toThrow('is told by hidden states of width 16');
    await expect(draw(open(WIDTH, env.RENDER_API_KEY), WIDTH, 40)).rejects.toThrow('multiples of 16');
    await expect(draw(open(WIDTH, 'another-key-as-long'), WIDTH)).rejects.toThrow('HTTP 401 the key is another');
  });
});
