/**
 * A micro-batch's gradient and an optimizer step at SmolLM2's size, each beside torch's in turns, in a process of its own each, so that
 * the peaks of their memory can be compared. Arguments: the model's folder, and a Python with torch, transformers and peft.
 */
import { spawn, type ChildProcessByStdio } from 'node:child_process';
import { existsSync } from 'node:fs';
import { createInterface } from 'node:readline';
import type { Readable, Writable } from 'node:stream';
import { fileURLToPath } from 'node:url';
import { UsageError } from '../../src/core/errors.js';
import { median } from './short_run.js';

/** What is measured, and by what name of the other side. */
export const WORKS = {
  lora: 'gradient of LoRA r 16 on all linear layers',
  all: 'gradient of all weights',
  adamw: 'clipping and AdamW over 134 M parameters',
} as const;

export type Work = keyof typeof WORKS;

/** One measurement: seconds, and MiB. */
export interface Measured {
  readonly wall: number;
  readonly cpu: number;
  readonly peak: number;
}

const THREADS = 2;
const ROUNDS = 5;
/** The first rounds compile sessions and fill arenas. */
const WARM_UP = 1;

/** A process that measures once for every line that it is sent. */
class Side {
  readonly #lines: AsyncIterator<string>;

  constructor(private readonly process: ChildProcessByStdio<Writable, Readable, null>) {
    this.#lines = createInterface({ input: process.stdout })[Symbol.asyncIterator]();
  }

  async measure(): Promise<Measured> {
    this.process.stdin.write('\n');
    const line = await this.#lines.next();
    if (line.done === true) throw new UsageError('a side of the benchmark ended before it had measured');
    return JSON.parse(line.value) as Measured;
  }

  end(): void {
    this.process.stdin.end();
  }
}

function open(command: string, args: readonly string[]): Side {
  return new Side(spawn(command, args, { stdio: ['pipe', 'pipe', 'inherit'] }));
}

export async function benchSmollm2Gradient(
  folder: string | undefined = process.argv[3],
  python: string | undefined = process.argv[4],
): Promise<void> {
  if (folder === undefined || python === undefined || !existsSync(python)) {
    throw new UsageError('this benchmark takes the folder of SmolLM2 and a Python with torch, transformers and peft');
  }
  const here = (name: string): string => fileURLToPath(new URL(name, import.meta.url));
  // The script is not compiled, so that it lies in the sources.
  const script = here('../../../scripts/bench/peft_gradient.py');
  for (const [work, title] of Object.entries(WORKS)) {
    const sides = {
      editrl: open(process.execPath, [here('smollm2_gradient_process.js'), folder, work, String(THREADS)]),
      torch: open(python, [script, folder, work, String(THREADS)]),
    };
    const found: Record<keyof typeof sides, Measured[]> = { editrl: [], torch: [] };
    for (let round = 0; round < WARM_UP + ROUNDS; round++) {
      for (const side of ['editrl', 'torch'] as const) found[side].push(await sides[side].measure());
    }
    console.log(`${title}, ${THREADS} threads, medians of ${ROUNDS} in turns:`);
    for (const [side, all] of Object.entries(found)) {
      const timed = all.slice(WARM_UP);
      const [wall, cpu] = (['wall', 'cpu'] as const).map((key) => median(timed.map((one) => one[key])).toFixed(2));
      const peak = Math.max(...all.map((one) => one.peak)).toFixed(0);
      console.log(`  ${side.padEnd(8)} ${wall} s, of processors ${cpu} s, peak ${peak} MiB`);
    }
    const ratios = found.editrl.slice(WARM_UP).map(({ wall }, i) => found.torch[WARM_UP + i].wall / wall);
    console.log(`  torch's time over editrl's: ${median(ratios).toFixed(2)}\n`);
    for (const side of Object.values(sides)) side.end();
  }
}
