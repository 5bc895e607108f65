/**
 * SmolLM2-135M here and in Python's transformers and peft, one process each, in turns: float32, LoRA of rank 16 on all linear
 * layers. If Python lacks the packages for a part, the part is left out and the reason is printed.
 */
import { existsSync } from 'node:fs';
import { availableParallelism, cpus } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { UsageError } from '../../src/core/errors.js';
import type { BesidePython } from './python.js';
import { raceLearning } from './smollm2_gradient.js';
import { raceHeld, racePacking, raceSampling } from './smollm2_sampling.js';

const PARTS: Readonly<Record<string, (options: BesidePython) => Promise<void>>> = {
  sampling: raceSampling,
  packing: racePacking,
  held: raceHeld,
  learning: raceLearning,
};

export async function benchSmolLm2(): Promise<void> {
  const { values } = parseArgs({
    args: process.argv.slice(3),
    options: {
      model: { type: 'string' },
      python: { type: 'string', default: 'python3' },
      rounds: { type: 'string', default: '5' },
      threads: { type: 'string', default: '2' },
      tokens: { type: 'string', default: '64' },
      part: { type: 'string' },
    },
  });
  const { model, python, part } = values;
  const counts = { rounds: Number(values.rounds), threads: Number(values.threads), tokens: Number(values.tokens) };
  const parts = Object.entries(PARTS).flatMap(([name, run]) => (part === undefined || part === name ? [run] : []));
  const whole = Object.values(counts).every((count) => Number.isInteger(count) && count > 0);
  if (model === undefined || !existsSync(join(model, 'config.json')) || !whole || parts.length === 0) {
    throw new UsageError(
      'npm run bench -- smollm2 takes --model FOLDER [--python PATH] [--rounds N] [--threads N] [--tokens N] [--part sampling|packing|held|learning]',
      { next: 'Make the folder with scripts/fetch_smollm2.' },
    );
  }
  console.log(`${cpus()[0]?.model ?? 'unknown processor'}, ${availableParallelism()} threads, node ${process.version}`);
  for (const run of parts) await run({ model, python, ...counts });
}
