/**
 * What `editrl plan` says a run takes, beside the peak of its worker's resident memory, each less that of a worker of a model of no size. `plan-memory
 * FOLDER` runs two iterations of each case: SmolLM2 from this folder (`scripts/fetch_smollm2` makes it), a language model of a billion random bfloat16
 * weights, and one that sees with 0.3 billion; with a text behind it, the cases that have it in their names. One of 7.6 billion, which takes 20 GiB of memory
 * and 15 of disk, is run only so (`plan-memory FOLDER '7.6 B'`). Linux alone tells the peak of another process.
 */
import { spawn, spawnSync } from 'node:child_process';
import {
  closeSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
  writeSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { InternalError, UsageError } from '../../src/core/errors.js';
import { RandomStream } from '../../src/core/random.js';
import { safetensorsHeader } from '../../src/core/safetensors.js';
import { sizeOf } from '../../src/graph/ir.js';
import { decoderParameters } from '../../src/nets/decoder/config.js';
import { describeDecoder } from '../../src/nets/decoder/files.js';
import { mebibytes } from './memory.js';

const COMMAND = fileURLToPath(new URL('../../src/cli/main.js', import.meta.url));
const WORDS = 'red blue circle square above below left right green yellow small large'.split(' ');
const ROWS = 64;
const LOOK_MS = 100;

interface Case {
  readonly name: string;
  /** The config as Jsonnet. */
  readonly config: string;
  /** Whether it is run only where it is named; default: no. */
  readonly isNamed?: true;
}

/** Random models that cases are about, by their folders: their sizes beside those of SmolLM2. */
const MADE = {
  // TinyLlama's.
  billion: {
    hidden_size: 2048,
    intermediate_size: 5632,
    num_hidden_layers: 22,
    num_attention_heads: 32,
    num_key_value_heads: 4,
    head_dim: 64,
  },
  // Those of the decoder of Qwen2.5-VL-7B.
  seven: {
    vocab_size: 152_064,
    hidden_size: 3584,
    intermediate_size: 18_944,
    num_hidden_layers: 28,
    num_attention_heads: 28,
    num_key_value_heads: 4,
    head_dim: 128,
    tie_word_embeddings: false,
  },
} as const;

/** Two iterations on prompts of so many words, which fill the context beside the answers. */
function words(
  name: string,
  policy: string,
  {
    prompt,
    answer,
    checkpointing = false,
    dtype = 'float32',
    packed = 'frozen',
    episodes = 64,
  }: { prompt: number; answer: number; checkpointing?: boolean; dtype?: string; packed?: string; episodes?: number },
): Case {
  const config = `{
    run_name: 'measured', base_exp_dir: 'runs', task: 'text_answers', num_iterations: 2,
    algorithm: { type: 'grpo', kl_coeff: 0.001 },
    optimizer: { learning_rate: 1e-5, per_device_batch_size: 16, gradient_checkpointing: ${checkpointing} },
    rollout: { episodes_per_iteration: ${episodes}, generations_per_sample: 8, max_response_tokens: ${answer}, packed_weights: '${packed}' },
    policy: { model_context_size: ${prompt + answer}, engine: { provider: 'cpu', dtype: '${dtype}' } } + ${policy},
    prompt: { chat: false, template: '{prompt}' },
    data: { columns: { expected: 'answer' }, train: [{ path: 'words_${prompt}.jsonl' }], validation: [] },
    reward: { terms: [{ name: 'word_overlap', weight: 1 }] },
    validation: { every_n_iterations: null, prompts: 8 },
    checkpoint: { save_every_n_iterations: 100, keep_every_n_iterations: null },
  }`;
  return { name, config };
}

/** Two iterations on clips whose prompts are of 31 or 47 tokens, so that the longer ones fill the context beside the answers. */
function seeing(name: string, train: string): Case {
  const root = resolve('.');
  const config = `(import '${root}/configs/video_actions.jsonnet') + (import '${root}/configs/lib/video_tiny.libsonnet') + {
    run_name: 'measured', base_exp_dir: 'runs', num_iterations: 2,
    optimizer+: { learning_rate: 1e-6, per_device_batch_size: 16 },
    rollout+: { episodes_per_iteration: 64 },
    policy+: {
      model: null,
      init: {
        hidden_size: 1024, intermediate_size: 2816, num_hidden_layers: 24, num_attention_heads: 16, num_key_value_heads: 16, embedding_std: 0.5,
        vision: { depth: 2, hidden_size: 256, intermediate_size: 512, num_heads: 4, patch_size: 4 },
      },
      train: ${train},
      model_context_size: 64,
    },
    validation+: { every_n_iterations: null, prompts: 8 },
  }`;
  return { name, config };
}

function casesOf(folder: string, made: (model: keyof typeof MADE) => string): readonly Case[] {
  const model = `{ model: '${folder}'`;
  const lora = `${model}, lora: { rank: 16, alpha: 32, targets: 'all-linear' } }`;
  const adapted = (model: keyof typeof MADE): string =>
    `{ model: '${made(model)}', lora: { rank: 16, alpha: 32, targets: 'all-linear' } }`;
  const billion = adapted('billion');
  const least = { prompt: 48, answer: 8, episodes: 16, checkpointing: true, dtype: 'float16' };
  const few = { prompt: 40, answer: 24, episodes: 16 };
  return [
    words('SmolLM2, LoRA, 40 + 24 tokens', lora, { prompt: 40, answer: 24 }),
    words('SmolLM2, LoRA, 200 + 56 tokens', lora, { prompt: 200, answer: 56 }),
    words('SmolLM2, LoRA, 200 + 56 tokens, checkpointed', lora, { prompt: 200, answer: 56, checkpointing: true }),
    words('SmolLM2, LoRA, 40 + 24 tokens, nothing packed', lora, { prompt: 40, answer: 24, packed: 'none' }),
    words('SmolLM2, LoRA, 40 + 24 tokens, held in float16', lora, { prompt: 40, answer: 24, dtype: 'float16' }),
    words('SmolLM2, all weights, 40 + 24 tokens', `${model} }`, { prompt: 40, answer: 24 }),
    words('1.1 B, LoRA, 16 answers, 40 + 24 tokens', billion, few),
    words('1.1 B, LoRA, 16 answers, 40 + 24 tokens, nothing packed', billion, { ...few, packed: 'none' }),
    words('1.1 B, LoRA, 16 answers, 40 + 24 tokens, held in float16', billion, { ...few, dtype: 'float16' }),
    { ...words('7.6 B, LoRA, 16 answers, 48 + 8 tokens, held in float16', adapted('seven'), least), isNamed: true },
    seeing('0.3 B that sees, its language model trains', '{ mm_vision: false, mm_mlp: true, mm_llm: true }'),
    seeing('0.3 B that sees, its connector trains', '{ mm_vision: false, mm_mlp: true, mm_llm: false }'),
  ];
}

/** A model with this folder's tokenizer, its matrices random bfloat16 numbers between 1/64 and 1/32, of either sign. */
function makeModel(folder: string, out: string, sizes: object): void {
  mkdirSync(out);
  for (const name of ['tokenizer.json', 'tokenizer_config.json']) copyFileSync(join(folder, name), join(out, name));
  const config = { ...(JSON.parse(readFileSync(join(folder, 'config.json'), 'utf8')) as object), ...sizes };
  writeFileSync(join(out, 'config.json'), JSON.stringify(config));
  const shapes = new Map(
    [...decoderParameters(describeDecoder(out).config)].map(([name, { shape }]) => [name, shape] as const),
  );
  const file = openSync(join(out, 'model.safetensors'), 'w');
  try {
    writeSync(file, safetensorsHeader(shapes, 'BF16'));
    let state = 1;
    for (const shape of shapes.values()) {
      const numbers = new Uint16Array(sizeOf(shape));
      for (let i = 0; i < numbers.length; i++) {
        // A linear congruential generator (Numerical Recipes), whose upper bits are random enough.
        state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
        numbers[i] = shape.length === 1 ? BRAIN_ONE : BRAIN_64TH | ((state >>> 16) & 0x807f);
      }
      writeSync(file, new Uint8Array(numbers.buffer));
    }
  } finally {
    closeSync(file);
  }
}

/** 1 and 1/64 in bfloat16. */
const BRAIN_ONE = 0x3f80;
const BRAIN_64TH = 0x3c80;

/** A model of next to no size, with the same tokenizer. */
const idlePolicy = (folder: string): string => `{
  tokenizer: '${folder}',
  init: { hidden_size: 32, intermediate_size: 32, num_hidden_layers: 1, num_attention_heads: 1, num_key_value_heads: 1, embedding_std: 0.5 },
}`;

/** Prints a line for each case: the peak, the estimate, and the ratio of both, each less an idle worker. */
export async function benchPlanMemory(): Promise<void> {
  const folder = resolve(process.argv[3] ?? '');
  if (process.argv[3] === undefined || !existsSync(join(folder, 'config.json'))) {
    throw new UsageError('npm run bench -- plan-memory takes the folder of SmolLM2', {
      next: 'scripts/fetch_smollm2 FOLDER makes it.',
    });
  }
  const work = mkdtempSync(join(tmpdir(), 'editrl-bench-plan-memory-'));
  try {
    for (const length of [40, 48, 200]) writeFileSync(join(work, `words_${length}.jsonl`), rowsOf(length));
    const idle = await peakOf(work, words('idle', idlePolicy(folder), { prompt: 40, answer: 24 }));
    console.log(`a worker of a model of no size: ${mebibytes(idle)} MiB`);
    const madeIn = (model: string): string => join(work, model);
    const asked = process.argv[4];
    for (const one of casesOf(folder, madeIn)) {
      if (asked === undefined ? one.isNamed === true : !one.name.includes(asked)) continue;
      for (const [model, sizes] of Object.entries(MADE)) {
        const out = madeIn(model);
        if (one.config.includes(`'${out}'`) && !existsSync(out)) makeModel(folder, out, sizes);
      }
      const planned = plannedFor(work, one);
      const peak = await peakOf(work, one);
      const ratio = (planned - idle) / (peak - idle);
      console.log(`${one.name}: peak ${mebibytes(peak)} MiB, plan ${mebibytes(planned)}, ${ratio.toFixed(2)} of it`);
    }
  } finally {
    rmSync(work, { recursive: true });
  }
}

function rowsOf(length: number): string {
  const random = new RandomStream('bench', 'plan-memory', length);
  const rows = Array.from({ length: ROWS }, () => {
    const prompt = Array.from({ length }, () => random.pick(WORDS)).join(' ');
    return `${JSON.stringify({ prompt, answer: 'a red circle' })}\n`;
  });
  return rows.join('');
}

function configIn(work: string, { config }: Case): string {
  const file = join(work, 'measured.jsonnet');
  writeFileSync(file, config);
  return file;
}

function plannedFor(work: string, one: Case): number {
  const { stdout, stderr, status } = spawnSync(process.execPath, [COMMAND, 'plan', configIn(work, one), '--json'], {
    cwd: work,
    encoding: 'utf8',
    env: environmentIn(work),
  });
  if (status !== 0) throw new InternalError(`no plan of ${one.name}: ${stderr}`);
  const plan = JSON.parse(stdout) as { readonly cells: readonly { readonly memory_bytes: number | null }[] };
  const bytes = plan.cells[0]?.memory_bytes ?? null;
  if (bytes === null) throw new InternalError(`no estimate for ${one.name}: ${stderr}`);
  return bytes;
}

/** The peak of the worker's resident memory, in bytes. */
async function peakOf(work: string, one: Case): Promise<number> {
  rmSync(join(work, 'runs'), { recursive: true, force: true });
  const command = spawn(process.execPath, [COMMAND, 'run', configIn(work, one)], {
    cwd: work,
    env: environmentIn(work),
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let said = '';
  for (const stream of [command.stdout, command.stderr]) stream.on('data', (text: Buffer) => (said += String(text)));
  let peak = 0;
  const look = setInterval(() => (peak = Math.max(peak, peakBelow(command.pid ?? 0))), LOOK_MS);
  const code = await new Promise<number | null>((ended) => command.on('close', ended));
  clearInterval(look);
  if (code !== 0 || peak === 0) throw new InternalError(`the run of ${one.name} failed: ${said.slice(-2000)}`);
  return peak;
}

const environmentIn = (work: string): NodeJS.ProcessEnv => ({
  ...process.env,
  APP__BASE_EXP_DIR: join(work, 'runs'),
  APP__DATA_DIR: join(work, 'data'),
});

/** The largest peak among the workers that this process started. */
function peakBelow(parent: number): number {
  const statuses = new Map<number, string>();
  for (const name of readdirSync('/proc')) {
    if (!/^\d+$/.test(name)) continue;
    try {
      statuses.set(Number(name), readFileSync(`/proc/${name}/status`, 'utf8'));
    } catch {
      // It has ended.
    }
  }
  const field = (status: string, name: string): number =>
    Number(new RegExp(`^${name}:\\s+(\\d+)`, 'm').exec(status)?.[1] ?? 0);
  const isBelow = (pid: number): boolean => {
    const status = statuses.get(pid);
    if (status === undefined) return false;
    const above = field(status, 'PPid');
    return above === parent || (above > 1 && isBelow(above));
  };
  return Math.max(0, ...[...statuses].filter(([pid]) => isBelow(pid)).map(([, text]) => field(text, 'VmHWM') * 1024));
}
