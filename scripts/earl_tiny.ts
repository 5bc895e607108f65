/**
 * Measures part of EARL's family at laptop size over several seeds and writes the table of experiments/results/earl_tiny.md.
 *
 *   npm run build && node dist/scripts/earl_tiny.js --seeds 1,2,3
 *
 * Every seed has a folder of its own (runs/earl_tiny/seed_N), so that its starts are its own too. Finished runs are taken as they are:
 * the command may be stopped and given again.
 */
import { spawn } from 'node:child_process';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { UsageError } from '../src/core/errors.js';
import { writeFileAtomic } from '../src/core/files.js';
import { readMetrics, type Metrics } from '../src/run/metrics.js';
import { RunPaths } from '../src/run/paths.js';
import { readState } from '../src/run/state.js';

const COMMAND = 'npm run build && node dist/scripts/earl_tiny.js';
const ROOT = 'runs/earl_tiny';
const FAMILY = [
  { run: 'sft_s__rl_s', start: 'sft_s', sets: ['s'] },
  { run: 'sft_s__rl_c', start: 'sft_s', sets: ['c', 's'] },
  { run: 'sft_sc__rl_sc', start: 'sft_sc', sets: ['s', 'c'] },
  { run: 'sft_think_s__rl_s', start: 'sft_think_s', sets: ['s'] },
] as const;

interface Measured {
  readonly mean: number;
  readonly stderr: number;
}

/** One seed of one run: held-out reward before, after, and after supervised training for the same seconds. */
interface Row {
  readonly seed: number;
  readonly before: Readonly<Record<string, Measured>>;
  readonly after: Readonly<Record<string, Measured>>;
  readonly continued: Readonly<Record<string, Measured>>;
  readonly seconds: number;
}

async function main(): Promise<void> {
  const { values } = parseArgs({
    options: {
      seeds: { type: 'string', default: '1,2,3' },
      threads: { type: 'string', default: '0' },
      runs: { type: 'string', default: FAMILY.map(({ run }) => run).join(',') },
    },
  });
  const seeds = values.seeds.split(',').map(Number);
  if (seeds.some((seed) => !Number.isInteger(seed))) {
    throw new UsageError(`--seeds takes whole numbers, got ${values.seeds}`);
  }
  const wanted = values.runs.split(',');
  const unknown = wanted.filter((name) => !FAMILY.some(({ run }) => run === name));
  if (unknown.length > 0) {
    throw new UsageError(
      `--runs does not know ${unknown.join(', ')}; allowed: ${FAMILY.map(({ run }) => run).join(', ')}`,
    );
  }
  const runs = FAMILY.filter(({ run }) => wanted.includes(run));
  const lanes = Number(values.threads) === 1 ? 2 : 1;
  const jobs = runs.flatMap(({ run, start }) =>
    seeds.map((seed) => async (): Promise<void> => {
      await train(seed, run, values.threads);
      await train(seed, start, values.threads, continuation(seed, run, start));
    }),
  );
  await Promise.all(
    Array.from({ length: lanes }, async () => {
      for (let job = jobs.shift(); job !== undefined; job = jobs.shift()) await job();
    }),
  );
  const command = [COMMAND, `--seeds ${values.seeds}`, `--runs ${values.runs}`, `--threads ${values.threads}`].join(
    ' ',
  );
  const tables = runs.map(({ run, start, sets }) =>
    table(
      run,
      sets,
      seeds.map((seed) => measure(seed, run, start)),
    ),
  );
  writeFileAtomic(join('experiments', 'results', 'earl_tiny.md'), page(tables, command));
}

/** Goes on with SFT from the same start for as many seconds as the first RL run from it trained. */
function continuation(seed: number, run: string, start: string): string[] {
  const budget = trainingSeconds(seed, run);
  const perStep = trainingSeconds(seed, start) / steps(seed, start);
  return [
    `run_name=${continuedName(start)}`,
    `policy.model={"run":"${start}","config":"${start}.jsonnet"}`,
    'policy.init=null',
    'algorithm.sft.patience=null',
    'algorithm.warmup_steps=0',
    `num_iterations=${Math.max(1, Math.round(budget / perStep))}`,
  ];
}

const continuedName = (start: string): string => `${start}__continued`;

function paths(seed: number, run: string): RunPaths {
  return new RunPaths(join(ROOT, `seed_${seed}`), run);
}

async function train(seed: number, config: string, threads: string, sets: readonly string[] = []): Promise<void> {
  const name = sets[0]?.split('=')[1] ?? config;
  if (readState(paths(seed, name))?.state === 'finished') return;
  const editrl = fileURLToPath(new URL('../src/cli/main.js', import.meta.url));
  const overlays = ['configs/lib/tiny.libsonnet', 'experiments/seed.libsonnet'];
  if (sets.length > 0) overlays.push('experiments/on_both.libsonnet');
  const flags = [...sets, `policy.engine.threads=${threads}`].flatMap((set) => ['--set', set]);
  const child = spawn(
    process.execPath,
    [editrl, 'run', `configs/${config}.jsonnet`, ...overlays.flatMap((file) => ['--with', file]), ...flags],
    {
      stdio: ['ignore', 'inherit', 'inherit'],
      env: {
        ...process.env,
        APP__SEED: String(seed),
        APP__BASE_EXP_DIR: join(ROOT, `seed_${seed}`),
      },
    },
  );
  const code = await new Promise<number | null>((resolve, reject) => child.once('exit', resolve).once('error', reject));
  if (code !== 0) {
    throw new UsageError(`${name} of seed ${seed} ended with code ${code}`, { next: 'Its own message is above.' });
  }
}

function trainingSeconds(seed: number, run: string): number {
  return readMetrics(paths(seed, run)).reduce((sum, { metrics }) => sum + (metrics['time/total'] ?? 0), 0);
}

function steps(seed: number, run: string): number {
  return readMetrics(paths(seed, run)).at(-1)!.iteration;
}

function measure(seed: number, run: string, start: string): Row {
  const lines = readMetrics(paths(seed, run));
  return {
    seed,
    before: heldOut(lines[0].metrics),
    after: heldOut(lines.at(-1)!.metrics),
    continued: heldOut(readMetrics(paths(seed, continuedName(start))).at(-1)!.metrics),
    seconds: trainingSeconds(seed, run),
  };
}

/** `<set>/<manner>` to mean and standard error. */
function heldOut(metrics: Metrics): Record<string, Measured> {
  const out: Record<string, Measured> = {};
  for (const [name, mean] of Object.entries(metrics)) {
    const match = /^validation\/([a-z]+\/(?:sampled|greedy))\/mean$/.exec(name);
    if (match !== null) out[match[1]] = { mean, stderr: metrics[name.replace(/mean$/, 'stderr')] ?? NaN };
  }
  return out;
}

function table(run: string, sets: readonly string[], rows: readonly Row[]): string {
  const columns = sets.flatMap((set) => [`${set}/sampled`, `${set}/greedy`]);
  const show = (value: Measured | undefined): string =>
    value === undefined ? '-' : `${value.mean.toFixed(2)} ± ${value.stderr.toFixed(2)}`;
  const header = [
    'seed',
    '',
    ...columns.map((column) => `${column.split('/')[0].toUpperCase()} ${column.split('/')[1]}`),
    'training seconds',
  ];
  const body = rows.flatMap((row) => [
    [String(row.seed), 'start', ...columns.map((column) => show(row.before[column])), ''],
    ['', 'RL', ...columns.map((column) => show(row.after[column])), row.seconds.toFixed(0)],
    ['', 'SFT continued for the same seconds', ...columns.map((column) => show(row.continued[column])), ''],
  ]);
  const gain = (column: string, of: (row: Row) => Readonly<Record<string, Measured>>): string => {
    const gains = rows.flatMap((row) => {
      const [after, before] = [of(row)[column], row.before[column]];
      return after === undefined || before === undefined ? [] : [after.mean - before.mean];
    });
    if (gains.length === 0) return '-';
    const mean = gains.reduce((a, b) => a + b, 0) / gains.length;
    return `${mean >= 0 ? '+' : ''}${mean.toFixed(2)} (${gains.map((x) => (x >= 0 ? '+' : '') + x.toFixed(2)).join(', ')})`;
  };
  body.push(['mean', 'gain by RL (each seed)', ...columns.map((column) => gain(column, (row) => row.after)), '']);
  body.push(['', 'gain by SFT (each seed)', ...columns.map((column) => gain(column, (row) => row.continued)), '']);
  const lines = [header, header.map(() => '---'), ...body].map((cells) => `| ${cells.join(' | ')} |`);
  return `## ${run}\n\n${lines.join('\n')}\n`;
}

function page(tables: readonly string[], command: string): string {
  return [
    "# EARL's family at laptop size",
    '',
    'Held-out VIEScore (0 to 10) by the rule judge of the tiny world, mean ± standard error over 256 prompts of each set, at the last',
    'iteration; S are simple edits, C complex ones. "Sampled" is at temperature 1. The judge prompts are editrl\'s own and the judge is no',
    'VLM: these figures compare with each other, not with published ones.',
    '',
    '```',
    command,
    '```',
    '',
    ...tables,
  ].join('\n');
}

await main();
