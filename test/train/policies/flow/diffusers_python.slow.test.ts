/** Exports of flow runs as diffusers loads them. Skipped where no Python has diffusers; EDITRL_TEST_PYTHON names another one. */
import { spawnSync } from 'node:child_process';
import { cpSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { RandomStream } from '../../../../src/core/random.js';
import { GivenNoise } from '../../../support/given_noise.js';
import { encodeSafetensors, readSafetensors, type FloatTensor } from '../../../../src/core/safetensors.js';
import { exportAdapter, exportFiles, exportMerged } from '../../../../src/models/adapters/export.js';
import { partFolder, readPipeline } from '../../../../src/models/pipeline.js';
import { optimizer } from '../../../../src/config/schema/training.js';
import { AutoencoderCodec } from '../../../../src/train/environments/image_codec.js';
import { PipelineTextEncoder } from '../../../../src/train/environments/pipeline_text.js';
import { editCondition, sourceInputOf } from '../../../../src/train/policies/flow/editor.js';
import { loadFlow, openFlowModel } from '../../../../src/train/policies/flow/load.js';
import { pipelineSchedule } from '../../../../src/train/policies/flow/pipeline.js';
import { FlowPolicy } from '../../../../src/train/policies/flow/policy.js';
import { takesGuidance } from '../../../../src/train/policies/flow/rows.js';
import { FlowSampler } from '../../../../src/train/policies/flow/sampler.js';
import { writeCheckpoint } from '../../../support/checkpoint.js';
import { testFolders } from '../../../support/folder.js';
import { loraCheckpoint } from './lora_checkpoint.js';

const python = process.env['EDITRL_TEST_PYTHON'] ?? 'python3';
const probe = spawnSync(python, ['-c', 'import diffusers, peft, transformers'], { encoding: 'utf8' });
const missing = probe.status === 0 ? null : (probe.stderr?.trim().split('\n').at(-1) ?? `there is no ${python}`);
const why = missing === null ? '' : ` (skipped: ${missing}; EDITRL_TEST_PYTHON names another Python)`;

const newFolder = testFolders('diffusers-python');
const fixtures = join(import.meta.dirname, 'fixtures');
const cpu = { provider: 'cpu', threads: 1 } as const;
const PROMPT = 'a red door by the sea';
const [WIDTH, HEIGHT, STEPS, GUIDANCE] = [12, 16, 4, 2.5];
const LORA = { rank: 3, alpha: 5, targets: 'all-linear' } as const;

/** Draws with a pipeline, loads or makes an adapter, draws again, and saves both results. */
const program = `
import sys, torch
from PIL import Image
from diffusers import Flux2KleinPipeline, Flux2Transformer2DModel, FluxKontextPipeline, QwenImageEditPlusPipeline, QwenImageTransformer2DModel
from peft import LoraConfig
from peft.utils import get_peft_model_state_dict
from safetensors.torch import load_file, save_file
from transformers import PreTrainedTokenizerFast
kind, folder, lora, inputs, out = sys.argv[1:]
given = load_file(inputs)
targets = ['to_q', 'to_qkv_mlp_proj' if kind == 'klein' else 'proj_mlp']
if kind == 'kontext':
    pipe = FluxKontextPipeline.from_pretrained(folder)
    pipe.set_progress_bar_config(disable=True)
    image = Image.fromarray(given['image'].to(torch.uint8).numpy())
    sizes = dict(height=image.height, width=image.width, max_area=image.height * image.width, _auto_resize=False)
    draw = lambda: pipe(
        image, '${PROMPT}', latents=given['noise'][None].clone(), num_inference_steps=${STEPS}, guidance_scale=${GUIDANCE},
        output_type='latent', **sizes,
    ).images[0]
elif kind == 'klein':
    # The class of the published tokenizer would make another one of these letters.
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder + '/tokenizer')
    pipe = Flux2KleinPipeline.from_pretrained(folder, tokenizer=tokenizer)
    pipe.set_progress_bar_config(disable=True)
    pipe.image_processor.check_image_input = lambda image: None
    image = Image.fromarray(given['image'].to(torch.uint8).numpy())
    noise = given['noise'].T.reshape(1, -1, image.height // 4, image.width // 4)
    # Only a callback sees latents before their normalization is undone.
    def draw():
        steps = []
        keep = lambda pipe, step, time, found: steps.append(found['latents'][0]) or found
        pipe(
            image, '${PROMPT}', latents=noise.clone(), num_inference_steps=${STEPS}, guidance_scale=${GUIDANCE}, height=image.height,
            width=image.width, output_type='latent', callback_on_step_end=keep,
        )
        return steps[-1]
elif kind == 'flux2':
    transformer = Flux2Transformer2DModel.from_pretrained(folder)
    pipe = Flux2KleinPipeline(transformer=transformer, vae=None, scheduler=None, text_encoder=None, tokenizer=None)
    size = torch.zeros(1, 1, 2, 3)
    ids = torch.cat((pipe._prepare_latent_ids(size), pipe._prepare_image_ids([size])), 1)
    draw = lambda: transformer(
        hidden_states=torch.cat((given['x'], given['source']))[None], encoder_hidden_states=given['text'][None],
        timestep=torch.tensor([0.75]), img_ids=ids, txt_ids=pipe._prepare_text_ids(given['text'][None]), return_dict=False,
    )[0][0, : len(given['x'])]
else:
    transformer = QwenImageTransformer2DModel.from_pretrained(folder)
    pipe = QwenImageEditPlusPipeline(transformer=transformer, vae=None, scheduler=None, text_encoder=None, tokenizer=None, processor=None)
    draw = lambda: transformer(
        hidden_states=torch.cat((given['x'], given['source']))[None], encoder_hidden_states=given['text'][None],
        timestep=torch.tensor([0.75]), img_shapes=[[(1, 2, 3), (1, 2, 3)]], return_dict=False,
    )[0][0, : len(given['x'])]
with torch.no_grad():
    plain = draw()
    if lora.startswith('new:'):
        torch.manual_seed(0)
        pipe.transformer.add_adapter(LoraConfig(r=4, lora_alpha=6, target_modules=targets))
        for name, value in pipe.transformer.named_parameters():
            if 'lora_' in name:
                value.normal_(0, 0.2)
        metadata = {'transformer_lora_adapter_metadata': pipe.transformer.peft_config['default'].to_dict()}
        type(pipe).save_lora_weights(lora[4:], transformer_lora_layers=get_peft_model_state_dict(pipe.transformer), **metadata)
    elif lora != 'none':
        pipe.load_lora_weights(lora)
    save_file({'plain': plain.contiguous(), 'adapted': draw().contiguous()}, out)
`;

const random = (name: string, shape: readonly number[]): FloatTensor => {
  const stream = new RandomStream('diffusers', name);
  return { shape, data: Float32Array.from({ length: shape.reduce((a, b) => a * b) }, () => stream.normal()) };
};

/** What diffusers draws without an adapter and with it. */
function drawn(
  kind: 'kontext' | 'klein' | 'flux2' | 'qwen',
  folder: string,
  lora: string,
  inputs: Readonly<Record<string, FloatTensor>>,
): Record<'plain' | 'adapted', Float32Array> {
  const at = newFolder();
  mkdirSync(at, { recursive: true });
  const [given, out] = [join(at, 'given.safetensors'), join(at, 'out.safetensors')];
  writeFileSync(given, encodeSafetensors(new Map(Object.entries(inputs))));
  const env = { ...process.env, HF_HUB_OFFLINE: '1' };
  const ran = spawnSync(python, ['-c', program, kind, folder, lora, given, out], { encoding: 'utf8', env });
  expect(ran.status, ran.stderr).toBe(0);
  const found = readSafetensors(out, ['plain', 'adapted']);
  return { plain: found.get('plain')!.data, adapted: found.get('adapted')!.data };
}

/** The largest difference, of the largest number that is expected. */
function worst(found: ArrayLike<number>, wanted: Float32Array): number {
  expect(found.length).toBe(wanted.length);
  const largest = wanted.reduce((most, x) => Math.max(most, Math.abs(x)), 0);
  return wanted.reduce((most, x, i) => Math.max(most, Math.abs(x - found[i])), 0) / largest;
}

function exported(checkpoint: string, write = exportAdapter): string {
  const out = join(newFolder(), 'out');
  mkdirSync(out, { recursive: true });
  write(checkpoint, out);
  return out;
}

const pixels = Float32Array.from({ length: WIDTH * HEIGHT * 3 }, (_, i) => (i * 37) % 256);
const image = { shape: [HEIGHT, WIDTH, 3], data: pixels };

/** The small FLUX as a FLUX.1-Kontext. */
function kontextFolder(): string {
  const folder = join(newFolder(), 'pipeline');
  cpSync(join(fixtures, 'flux'), folder, { recursive: true });
  const index = join(folder, 'model_index.json');
  writeFileSync(index, readFileSync(index, 'utf8').replace('"FluxPipeline"', '"FluxKontextPipeline"'));
  return folder;
}

/** The edited latents by this program. */
async function edited(folder: string, model: string, drawn: FloatTensor): Promise<Float32Array> {
  const pipeline = readPipeline(folder);
  const { config, weights } = openFlowModel(model);
  const codec = AutoencoderCodec.open(partFolder(pipeline, 'vae'), cpu);
  const encoder = new PipelineTextEncoder(pipeline, cpu);
  const [source] = await codec.encode([{ width: WIDTH, height: HEIGHT, data: Uint8Array.from(pixels) }]);
  const [text, blank] = [await encoder.encode(PROMPT), takesGuidance(config) ? null : await encoder.blank()];
  const flow = editCondition(text, [source], sourceInputOf(config, codec, 'here'), config, blank);
  const stream = new GivenNoise(drawn.data);
  const sigmas = pipelineSchedule(pipeline).sigmas(STEPS, 12);
  const how = { sigmas: () => sigmas, guidance: GUIDANCE, noiseLevel: 0, fraction: 1, window: null, sameLatent: false };
  const sampler = new FlowSampler({ config, batch: 1, session: cpu });
  const request = { prompts: [{ flow }], answersPerPrompt: 1, how, random: () => stream };
  const [[{ latents }]] = await sampler.sample(request, weights);
  await Promise.all([sampler.dispose(), codec.dispose(), encoder.dispose()]);
  return latents;
}

describe.skipIf(missing !== null).each([
  ['FLUX.1-Kontext', 'kontext', kontextFolder, 16],
  ['FLUX.2-klein', 'klein', () => join(fixtures, 'klein'), 12],
] as const)(`%s in diffusers${why}`, (_name, kind, makeFolder, width) => {
  const inputs = { image, noise: random('noise', [12, width]) };

  it('edits with an exported LoRA, and with the sum of two, as this program does', async () => {
    const folder = makeFolder();
    const transformer = join(folder, 'transformer');
    const first = await loraCheckpoint(newFolder(), transformer, LORA);
    const second = await loraCheckpoint(newFolder(), first, { rank: 2, alpha: 3, rslora: true, targets: ['to_q'] }, 2);
    for (const checkpoint of [first, second]) {
      const { plain, adapted } = drawn(kind, folder, exported(checkpoint), inputs);
      expect(worst(await edited(folder, transformer, inputs.noise), plain)).toBeLessThan(1e-4);
      expect(worst(adapted, plain)).toBeGreaterThan(0.1);
      expect(worst(await edited(folder, checkpoint, inputs.noise), adapted)).toBeLessThan(1e-4);
    }
  });

  it('saves a LoRA that this program reads', async () => {
    const folder = makeFolder();
    const lora = newFolder();
    const { plain, adapted } = drawn(kind, folder, `new:${lora}`, inputs);
    expect(worst(adapted, plain)).toBeGreaterThan(0.1);
    const base = { base_model_name_or_path: join(folder, 'transformer') };
    writeFileSync(join(lora, 'adapter_config.json'), JSON.stringify(base));
    expect(worst(await edited(folder, lora, inputs.noise), adapted)).toBeLessThan(1e-4);
  });
});

describe.skipIf(missing !== null).each([
  ['Qwen-Image-Edit-2511', 'qwen', join(fixtures, 'several_edit'), 16, 12],
  ['FLUX.2', 'flux2', join(fixtures, 'klein', 'transformer'), 12, 24],
] as const)(`the transformer of %s in diffusers${why}`, (_name, kind, transformer, width, textWidth) => {
  const inputs = {
    x: random('x', [6, width]),
    source: random('source', [6, width]),
    text: random('text', [9, textWidth]),
  };

  async function velocity(model: string): Promise<Float32Array> {
    const { config, weights } = openFlowModel(model);
    const sampler = new FlowSampler({ config, batch: 1, session: cpu });
    const kept = { shown: inputs.source.data, painted: new Float32Array(6 * width).fill(1) };
    const nothing = { pooled: null, imageFeatures: null, context: new Float32Array(0) };
    const condition = { rows: 2, columns: 3, text: inputs.text.data, kept, ...nothing };
    const [found] = await sampler.velocities([{ condition, sigma: 0.75, x: inputs.x.data }], null, weights);
    await sampler.dispose();
    return found;
  }

  it('has the same velocity with an exported LoRA, and with it merged', async () => {
    const checkpoint = await loraCheckpoint(newFolder(), transformer, LORA);
    const { plain, adapted } = drawn(kind, transformer, exported(checkpoint), inputs);
    expect(worst(await velocity(transformer), plain)).toBeLessThan(1e-5);
    expect(worst(adapted, plain)).toBeGreaterThan(0.1);
    expect(worst(await velocity(checkpoint), adapted)).toBeLessThan(1e-4);
    const merged = exported(checkpoint, (from, to) => exportMerged(from, to, { dtype: 'float32' }));
    expect(worst(await velocity(checkpoint), drawn('qwen', merged, 'none', inputs).plain)).toBeLessThan(1e-5);
  });

  it('has the same velocity when all weights were trained and exported', async () => {
    const model = loadFlow(transformer, { trains: 'all', lora: null, imagePrompt: null, seed: 1 });
    const stream = new RandomStream('trained');
    for (const { data } of model.weights.values()) data.forEach((x, i) => (data[i] = x + 0.05 * stream.normal()));
    const settings = optimizer.parse({ learning_rate: 1e-3, per_device_batch_size: 1 });
    const policy = new FlowPolicy({ model, optimizer: settings, guidance: null, session: cpu, keepReference: false });
    const checkpoint = writeCheckpoint(newFolder(), await policy.files());
    await policy.dispose();
    const { plain } = drawn(kind, exported(checkpoint, exportFiles), 'none', inputs);
    expect(worst(await velocity(checkpoint), plain)).toBeLessThan(1e-5);
    expect(worst(await velocity(transformer), plain)).toBeGreaterThan(0.01);
  });
});
