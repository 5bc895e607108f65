/** `npm run bench -- NAME`: a table of benchmarks, each in its own file in this folder. */
import { UsageError } from '../../src/core/errors.js';

const benches: Readonly<Record<string, { readonly summary: string; readonly run: () => Promise<void> }>> = {
  iteration: {
    summary: "one GRPO iteration's time split, and the training graph compared with its bare matrix products",
    run: async () => (await import('./iteration.js')).benchIteration(),
  },
  flow: {
    summary:
      "a flow transformer's training and sampling graphs compared with their bare matrix products, where the time goes, and an iteration beside torch and diffusers; `flow [--python PATH]`",
    run: async () => (await import('./flow.js')).benchFlow(),
  },
  sweep: {
    summary: "the overhead of a sweep: until the first worker's first line, and between runs",
    run: async () => (await import('./sweep.js')).benchSweep(),
  },
  plan: {
    summary: 'editrl plan of 10,000 cells: seconds and peak memory, by the shape of the axes',
    run: async () => (await import('./plan.js')).benchPlan(),
  },
  smollm2: {
    summary:
      "SmolLM2-135M beside Python's transformers and peft, in turns: sampling, gradients, an optimizer step; `smollm2 --model FOLDER [--python PATH] [--rounds N] [--part NAME]`",
    run: async () => (await import('./smollm2.js')).benchSmolLm2(),
  },
  tinker: {
    summary:
      "the overhead of a training server's client: CPU for a datum, and memory beyond its own arrays for a batch of 5 MB, in both dialects",
    run: async () => (await import('./tinker.js')).benchTinker(),
  },
};

const name = process.argv[2] ?? '';
const bench = benches[name];
if (bench === undefined) {
  const lines = Object.entries(benches).map(([key, { summary }]) => `  ${key}: ${summary}`);
  console.error(new UsageError(`npm run bench -- takes one of:\n${lines.join('\n')}`).toText());
  process.exitCode = 2;
} else await bench.run();
