/** The command `scripts/gpu_check`. */
import { writeFileSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { EditrlError, UsageError } from '../src/core/errors.js';
import { gpuCheck } from './bench/gpu_check.js';
import { sizes, type Size } from './bench/gpu_check_parts.js';

const PROVIDERS = ['cuda', 'webgpu', 'cpu'] as const;

const HELP = `scripts/gpu_check --provider ${PROVIDERS.join('|')} [--size ${Object.keys(sizes).join('|')} …] [--threads N] [--minutes 20] [--out FILE]

Runs this program's own engine on a provider with random weights: bare matrix products, sampling, log-probabilities and gradients, each
compared with the CPU provider. Writes a page (default: experiments/results/gpu_check_PROVIDER.md), and ends with 1 if a part failed;
the page names it. Without --size it measures all sizes: 1b needs 20 GB of memory, and 10 GB of a GPU's own.`;

/** Raises UsageError for anything but one of them. */
function oneOf<T extends string>(allowed: readonly T[], found: string | undefined, option: string): T {
  const one = allowed.find((value) => value === found);
  if (one !== undefined) return one;
  throw new UsageError(`${option}: found ${found ?? 'nothing'}; allowed: ${allowed.join(', ')}`, {
    next: '`scripts/gpu_check --help` lists the options.',
  });
}

/** Raises UsageError for anything but a number above 0. */
function above0(found: string, option: string): number {
  const value = Number(found);
  if (value > 0) return value;
  throw new UsageError(`${option}: found '${found}'; allowed: a number above 0`);
}

/** An error with a message for the user, for example about an unknown option. Raises any other error. */
function asUsage(error: unknown): EditrlError {
  if (error instanceof EditrlError) return error;
  const code = error instanceof TypeError && 'code' in error ? String(error.code) : '';
  if (!(error instanceof TypeError) || !code.startsWith('ERR_PARSE_ARGS')) throw error;
  return new UsageError(error.message, { next: '`scripts/gpu_check --help` lists the options.', cause: error });
}

async function main(): Promise<number> {
  const { values } = parseArgs({
    options: {
      provider: { type: 'string' },
      size: { type: 'string', multiple: true },
      threads: { type: 'string' },
      minutes: { type: 'string', default: '20' },
      out: { type: 'string' },
      help: { type: 'boolean' },
    },
  });
  if (values.help === true) {
    console.log(HELP);
    return 0;
  }
  const all = Object.keys(sizes) as Size[];
  const provider = oneOf(PROVIDERS, values.provider, '--provider');
  const asked = {
    provider,
    sizes: values.size?.map((size) => oneOf(all, size, '--size')) ?? all,
    threads: values.threads === undefined ? null : above0(values.threads, '--threads'),
    minutes: above0(values.minutes, '--minutes'),
  };
  const { page, succeeded } = await gpuCheck(asked, (line) => console.log(line));
  const file = values.out ?? `experiments/results/gpu_check_${provider}.md`;
  writeFileSync(file, page);
  console.log(`${succeeded ? 'everything succeeded' : 'something failed'}: see ${file}`);
  return succeeded ? 0 : 1;
}

try {
  process.exitCode = await main();
} catch (error) {
  const told = asUsage(error);
  console.error(told.toText());
  process.exitCode = told.exitCode;
}
