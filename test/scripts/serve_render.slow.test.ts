import { spawn, spawnSync, type ChildProcess } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Deadline, systemClock } from '../../src/core/clock.js';
import { decodeImage, encodePng, type RgbImage } from '../../src/core/images/image.js';
import { RandomStream } from '../../src/core/random.js';
import { storedSafetensors, type StoredTensor } from '../../src/core/safetensors.js';
import { RenderClient } from '../../src/train/environments/render_server.js';
import { loadConfig } from '../../src/config/load.js';
import { testFolder } from '../support/folder.js';

/** A Python with diffusers, where there is one. */
const python = process.env['EDITRL_TEST_PYTHON'] ?? 'python3';
const probe = spawnSync(python, ['-c', 'import diffusers, torch, transformers'], { encoding: 'utf8' });
const missing = probe.status === 0 ? null : (probe.stderr?.trim().split('\n').at(-1) ?? `there is no ${python}`);
const why = missing === null ? '' : ` (skipped: ${missing}; EDITRL_TEST_PYTHON names another Python)`;

const [WIDTH, STEPS, SCALE] = [16, 1, 4];
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
/** What it draws when it is called as its own documentation says. */
const DRAW = `
import sys, torch
from diffusers import QwenImageEditPipeline
from PIL import Image
from safetensors.torch import load_file
pipeline = QwenImageEditPipeline.from_pretrained(sys.argv[1], text_encoder=None, tokenizer=None, processor=None)
asked = load_file(sys.argv[2])
states = lambda name, prefix: {prefix + "prompt_embeds": asked[name][None], prefix + "prompt_embeds_mask": torch.ones(1, len(asked[name]), dtype=torch.long)}
guided = dict(states("blank", "negative_"), true_cfg_scale=${SCALE}) if "blank" in asked else dict(true_cfg_scale=1.0)
pipeline(image=Image.new("RGB", (32, 32), (90, 90, 90)), width=32, height=32, num_inference_steps=${STEPS}, generator=torch.Generator().manual_seed(5),
    **states("told", ""), **guided).images[0].save(sys.argv[3])
`;
const ASKS = `
import sys
from diffusers import QwenImageEditPipeline
print(QwenImageEditPipeline.from_pretrained(sys.argv[1], text_encoder=None, tokenizer=None, processor=None).prompt_template_encode)
`;
const env = { ...process.env, HF_HUB_OFFLINE: '1', RENDER_API_KEY: 'a-key-of-some-length' };
const MINUTES = 60_000;
const plain = (side: number): RgbImage => ({
  width: side,
  height: side,
  data: new Uint8Array(3 * side * side).fill(90),
});

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

  const open = (width: number, apiKey?: string, guidance: number | null = null): RenderClient =>
    new RenderClient({
      settings: {
        ...{
          base_url: url,
          served_model: 'tiny',
          num_inference_steps: STEPS,
          guidance_scale: guidance,
          max_pixels: 4096,
        },
        ...{ states_dtype: 'float32' as const, concurrency: 1, timeout_s: 600, max_attempts: 1 },
      },
      width,
      apiKey,
    });
  /** As many states as a run of edit_response may send: of a square of 1024 pixels, an instruction and a response. */
  const TOLD = 1400;
  const statesOf = (seed: string, tokens: number, width: number): StoredTensor => {
    const stream = new RandomStream('serve_render', seed);
    const numbers = Float32Array.from({ length: tokens * width }, () => stream.normal());
    return { dtype: 'F32', shape: [tokens, width], bytes: new Uint8Array(numbers.buffer) };
  };
  const draw = async (
    client: RenderClient,
    { width = WIDTH, side = 32, states = statesOf('told', TOLD, width), blank = null as StoredTensor | null } = {},
  ) => {
    const source = await encodePng(plain(side));
    const asked = { states, statesDigest: '', source, size: { width: side, height: side }, seed: 5, blank };
    try {
      return await client.draw(asked, new Deadline(systemClock, 10 * MINUTES));
    } finally {
      await client.close();
    }
  };
  /** What the pipeline itself draws by the same numbers. */
  async function byThePipeline(states: StoredTensor, blank: StoredTensor | null): Promise<RgbImage> {
    const file = join(folder, '..', 'asked.safetensors');
    const tensors = new Map([['told', states], ...(blank === null ? [] : ([['blank', blank]] as const))]);
    writeFileSync(file, storedSafetensors(tensors, {}));
    const drawn = join(folder, '..', 'drawn.png');
    const made = spawnSync(python, ['-W', 'ignore', '-c', DRAW, folder, file, drawn], { encoding: 'utf8', env });
    expect(made.status, made.stderr).toBe(0);
    return decodeImage(readFileSync(drawn), drawn);
  }

  it(
    'draws as the pipeline does, guided and not, by all of 1400 states',
    async () => {
      const states = statesOf('told', TOLD, WIDTH);
      const blank = statesOf('blank', 1373, WIDTH);
      const guided = await draw(open(WIDTH, env.RENDER_API_KEY, SCALE), { states, blank });
      expect(guided).toEqual({ picture: await byThePipeline(states, blank), revised: null });
      const unguided = await draw(open(WIDTH, env.RENDER_API_KEY), { states });
      expect(unguided).toEqual({ picture: await byThePipeline(states, null), revised: null });
      expect(unguided).not.toEqual(guided);
      // States past the 1024th count, too.
      const bytes = states.bytes.slice();
      for (let at = 1024; at < TOLD; at++) bytes.copyWithin(4 * at * WIDTH, 0, 4 * WIDTH);
      const other = await draw(open(WIDTH, env.RENDER_API_KEY), { states: { ...states, bytes } });
      expect(other).not.toEqual(unguided);
    },
    10 * MINUTES,
  );

  it("'s pipeline asks under the system message that the shipped config has", async () => {
    const asked = spawnSync(python, ['-W', 'ignore', '-c', ASKS, folder], { encoding: 'utf8', env });
    expect(asked.status, asked.stderr).toBe(0);
    const file = join(import.meta.dirname, '../../configs/edit_response.jsonnet');
    const env1 = { APP__REWARD_FUNCTION_API_BASE: 'http://judge/v1' };
    const { settings } = await loadConfig({ file, env: env1 });
    const { system } = (settings as unknown as { readonly prompt: { readonly system: string } }).prompt;
    expect(asked.stdout).toContain(`<|im_start|>system\n${system}<|im_end|>\n<|im_start|>user\n<|vision_start|>`);
  });

  it('explains how many states it takes', async () => {
    const many = statesOf('many', 4096, WIDTH);
    await expect(draw(open(WIDTH, env.RENDER_API_KEY), { states: many })).rejects.toThrow(
      'found states [4096, 16]; allowed: 1 to 4032 tokens of width 16',
    );
  });

  it('rejects states of another width, sides that it cannot draw, and another key', async () => {
    await expect(draw(open(24, env.RENDER_API_KEY), { width: 24 })).rejects.toThrow(
      'is told by hidden states of width 16',
    );
    await expect(draw(open(WIDTH, env.RENDER_API_KEY), { side: 40 })).rejects.toThrow('multiples of 16');
    await expect(draw(open(WIDTH, 'another-key-as-long'))).rejects.toThrow('HTTP 401 the key is wrong');
  });
});
