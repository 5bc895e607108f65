/** How a session may get weights that never change: milliseconds of a run, and memory of the process, each form in one of its own. */
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { InternalError } from '../../src/core/errors.js';
import { median } from './short_run.js';
import type * as Ort from 'onnxruntime-node';

/** As held_forms.py has them. */
const [LAYERS, WIDTH, INNER] = [8, 2048, 8192];
const ROWS = 16;
const ROUNDS = 9;

interface Form {
  readonly title: string;
  readonly model: string;
  /** What the weights are fed as; null: they lie in the model's file. */
  readonly fed: { readonly type: 'float32' | 'float16' | 'uint16'; readonly file: string } | null;
  readonly packs: boolean;
}

const file = (model: string, title: string): Form => ({ title, model, fed: null, packs: false });
const FORMS: readonly Form[] = [
  { title: 'float32, fed', model: 'float32_fed', fed: { type: 'float32', file: 'float32.bin' }, packs: true },
  { title: 'float32, packed', model: 'float32_file', fed: null, packs: true },
  file('float32_file', 'float32, in a mapped file'),
  { title: 'float16, fed', model: 'float16_fed', fed: { type: 'float16', file: 'float16.bin' }, packs: true },
  {
    title: 'float16, fed, widened first in the file',
    model: 'float16_fed_first',
    fed: { type: 'float16', file: 'float16.bin' },
    packs: true,
  },
  file('float16_file_first', 'float16, in a mapped file, widened first in the file'),
  file('bfloat16_file_first', 'bfloat16, in a mapped file, widened first in the file'),
  {
    title: 'bfloat16 as integers, fed, shifted first in the file',
    model: 'integers_fed_first',
    fed: { type: 'uint16', file: 'bfloat16.bin' },
    packs: true,
  },
];

export function benchHeldForms(): void {
  const { values } = parseArgs({
    args: process.argv.slice(3),
    options: { python: { type: 'string', default: 'python3' } },
  });
  const folder = mkdtempSync(join(tmpdir(), 'editrl-bench-held-'));
  try {
    run(values.python, ['scripts/bench/held_forms.py', folder]);
    for (const [i, { title }] of FORMS.entries()) {
      const [ms, bytes] = run(process.execPath, [fileURLToPath(import.meta.url), folder, String(i)]).split(' ');
      console.log(
        `${title.padEnd(54)} ${Number(ms).toFixed(0).padStart(5)} ms ${(Number(bytes) / 2 ** 20).toFixed(0).padStart(6)} MiB`,
      );
    }
  } finally {
    rmSync(folder, { recursive: true });
  }
}

function run(program: string, options: readonly string[]): string {
  const { stdout, stderr, status } = spawnSync(program, options, { encoding: 'utf8' });
  if (status !== 0) throw new InternalError(`${program} ${options.join(' ')} failed: ${stderr}`);
  return stdout.trim();
}

/** Prints the median of the milliseconds of a run, and the bytes of this process that no file holds. */
async function measure(folder: string, { model, fed, packs }: Form): Promise<void> {
  const ort = await import('onnxruntime-node');
  const session = await ort.InferenceSession.create(join(folder, `${model}.onnx`), {
    graphOptimizationLevel: 'all',
    enableMemPattern: false,
    intraOpNumThreads: 2,
    extra: {
      session: { set_denormal_as_zero: '1', force_spinning_stop: '1', ...(packs ? {} : { disable_prepacking: '1' }) },
      // Otherwise what is widened would be kept in its place.
      ...(packs ? {} : { optimization: { disable_specified_optimizers: 'ConstantFolding' } }),
    },
  });
  const feeds: Record<string, Ort.Tensor> = {
    x: new ort.Tensor('float32', new Float32Array(ROWS * WIDTH).fill(0.01), [ROWS, WIDTH]),
  };
  if (fed !== null) {
    const { buffer } = readFileSync(join(folder, fed.file));
    const count = WIDTH * INNER;
    for (let i = 0; i < LAYERS; i++) {
      const data =
        fed.type === 'float32'
          ? new Float32Array(buffer, 4 * i * count, count)
          : new Uint16Array(buffer, 2 * i * count, count);
      feeds[`w${i}`] = new ort.Tensor(fed.type, data as Uint16Array, [INNER, WIDTH]);
    }
  }
  const times: number[] = [];
  for (let i = 0; i < ROUNDS; i++) {
    const start = performance.now();
    await session.run(feeds);
    times.push(performance.now() - start);
  }
  const kilobytes = Number(/^RssAnon:\s+(\d+) kB/m.exec(readFileSync('/proc/self/status', 'utf8'))?.[1]);
  console.log(`${median(times)} ${kilobytes * 1024}`);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) await measure(process.argv[2], FORMS[Number(process.argv[3])]);
