/** `npm run bench -- NAME`: a table of benchmarks, each a file beside this one. */
import { UsageError } from '../../src/core/errors.js';

const benches: Readonly<Record<string, { readonly summary: string; readonly run: () => Promise<void> }>> = {
  iteration: {
    summary: "one GRPO iteration's time split, and the training graph beside its bare matrix products",
    run: async () => (await import('./iteration.js')).benchIteration(),
  },
};

const name = process.argv[2] ?? '';
const bench = benches[name];
if (bench === undefined) {
  const lines = Object.entries(benches).map(([key, { summary }]) => `  ${key}: ${summary}`);
  console.error(new UsageError(`npm run bench -- takes one of:\n${lines.join('\n')}`).toText());
  process.exitCode = 2;
} else await bench.run();
