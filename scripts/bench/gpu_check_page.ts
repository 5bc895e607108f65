/** The results of `scripts/gpu_check`, as a page. */
import type { Provider } from '../../src/compute/onnx/session.js';
import { MISMATCH_ALARM } from '../../src/recipes/shared/tokens/policy.js';
import { sizes, type Learning, type ProductSpeed, type Sampling, type Size } from './gpu_check_parts.js';

export interface Asked {
  readonly provider: Provider;
  readonly sizes: readonly Size[];
  /** Threads of the CPU provider. Null: the number of cores. */
  readonly threads: number | null;
  /** Minutes after which no part starts and none is waited for. */
  readonly minutes: number;
}

/** How a provider's numbers differ from the CPU provider's. */
export interface Agreement {
  /** The largest difference of a log-probability. */
  readonly logProbs: number;
  /** The norm of the difference of the gradients, relative to the CPU provider's. */
  readonly gradient: number;
}

/** The results of one model. Null for failures. */
export interface OfModel {
  readonly size: Size;
  readonly sampling: Sampling | null;
  readonly learning: Learning | null;
  readonly agreement: Agreement | null;
  /** Peak bytes of the process that sampled and learned, and the increase of its GPU's memory use. */
  readonly peakBytes: number | null;
  readonly gpuBytes: number | null;
}

export interface Checked {
  readonly asked: Asked;
  readonly machine: readonly string[];
  readonly products: readonly ProductSpeed[];
  readonly models: readonly OfModel[];
  /** One sentence for each part that gave no numbers, or numbers that are too far off. */
  readonly failed: readonly string[];
}

/**
 * Log-probabilities may differ by less than the alarm limit of runs, and gradients by the error of products with 11
 * bits.
 */
export const TOLERATED: Agreement = { logProbs: MISMATCH_ALARM, gradient: 1e-2 };

type Column<T> = readonly [title: string, cell: (one: T) => string];

const NONE = '–';

function shown<T>(value: T | null | undefined, text: (value: T) => string): string {
  return value === null || value === undefined ? NONE : text(value);
}

const mebibytes = (bytes: number): string => (bytes / 2 ** 20).toFixed(bytes < 2 ** 24 ? 2 : 0);
const seconds = (value: number): string => value.toFixed(3);
const gflops = (value: number): string => value.toFixed(value < 100 ? 1 : 0);

/** The page, with a line for everything that failed. */
export function pageOf(checked: Checked): string {
  const { asked, machine, products, models, failed } = checked;
  const best = products.length === 0 ? null : Math.max(...products.map(({ chained }) => chained));
  const command = [
    'scripts/gpu_check',
    '--provider',
    asked.provider,
    ...asked.sizes.flatMap((size) => ['--size', size]),
    ...(asked.threads === null ? [] : ['--threads', String(asked.threads)]),
  ];
  const speed = ({ learning }: OfModel): number | null =>
    learning === null || learning.gradientSeconds === null ? null : learning.flops / learning.gradientSeconds / 1e9;
  const columns: readonly Column<OfModel>[] = [
    ['decoder, random weights, LoRA r 16', ({ size }) => sizes[size].title],
    ['answer tokens/s', ({ sampling }) => shown(sampling?.tokensPerSecond, (value) => value.toFixed(0))],
    ['MiB of inputs per decoding step', ({ sampling }) => shown(sampling?.fedBytes, mebibytes)],
    ['log-probabilities (s)', ({ learning }) => shown(learning?.logProbSeconds, seconds)],
    ['largest difference', ({ agreement }) => shown(agreement?.logProbs, (value) => value.toExponential(1))],
    ['gradient (s)', ({ learning }) => shown(learning?.gradientSeconds, seconds)],
    ['relative difference', ({ agreement }) => shown(agreement?.gradient, (value) => value.toExponential(1))],
    ['GFLOP/s of its products', (one) => shown(speed(one), gflops)],
    ['of the bare product', (one) => shown(best === null ? null : speed(one), (value) => (value / best!).toFixed(2))],
    ['process, peak (MiB)', ({ peakBytes }) => shown(peakBytes, mebibytes)],
    ['GPU, peak (MiB)', ({ gpuBytes }) => shown(gpuBytes, mebibytes)],
  ];
  return `${[
    `# The engine on ${asked.provider}`,
    `\`${command.join(' ')}\` wrote this page.`,
    machine.map((line) => `- ${line}`).join('\n'),
    '## Bare products',
    table(
      [
        ['square product of', ({ side }) => String(side)],
        ['GFLOP/s, one a run', ({ single }) => gflops(single)],
        ['GFLOP/s, eight a run', ({ chained }) => gflops(chained)],
      ],
      products,
    ),
    'Products are in float32. Times include the copies to the device and back, once per run.',
    '## Sampling and learning',
    table(columns, models),
    [
      `There are two prompts. The batch has ${asked.sizes.map((size) => `${2 * sizes[size].answers} answers of ${sizes[size].answerTokens} tokens (${size})`).join(', ')}.`,
      'Medians of three, after a run that compiles. Differences are from the CPU provider under the same weights:',
      `at most ${TOLERATED.logProbs} for log-probabilities, and for the gradient ${TOLERATED.gradient} of its norm are allowed.`,
      'A device copies the inputs of a decoding step at every token. The CPU provider reads them in place.',
      'The bare product is the fastest of the first table. GPU memory is the increase that nvidia-smi reports, read once a second.',
    ].join(' '),
    ...(failed.length === 0 ? [] : ['## What failed', failed.map((line) => `- ${line}`).join('\n')]),
  ].join('\n\n')}\n`;
}

function table<T>(columns: readonly Column<T>[], rows: readonly T[]): string {
  const line = (cells: readonly string[]): string => `| ${cells.join(' | ')} |`;
  return [
    line(columns.map(([title]) => title)),
    line(columns.map((_, i) => (i === 0 ? '---' : '---:'))),
    ...rows.map((row) => line(columns.map(([, cell]) => cell(row)))),
  ].join('\n');
}
