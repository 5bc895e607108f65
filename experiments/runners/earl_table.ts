/**
 * Measures EARL's family at laptop size with three seeds and writes two pages of experiments/results: earl_table.md has every run, in the format
 * of EARL's own table; earl_tiny.md has four of them seed by seed, each beside SFT that continues for the same number of seconds.
 *
 *   npm run build && node dist/experiments/runners/earl_table.js
 *
 * The runs are those of `editrl sweep experiments/earl_table.jsonnet`. Finished runs are reused, so the command may be stopped and started
 * again. With --tables nothing is trained, and the pages show the finished runs.
 */
import { spawn } from 'node:child_process';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { RunError } from '../../src/core/errors.js';
import { writeFileAtomic } from '../../src/core/files.js';
import { readMetrics, type Metrics } from '../../src/run/metrics.js';
import { RunPaths } from '../../src/run/paths.js';
import { readState } from '../../src/run/state.js';

const COMMAND = 'npm run build && node dist/experiments/runners/earl_table.js';
const EXPERIMENT = 'experiments/earl_table.jsonnet';
const CLOCK = 'earl_clock';
const CONTINUED = 'earl_continued';
const BASE_EXP_DIR = join('runs', 'tiny');
const SEEDS = [1, 2, 3];
/** The seed whose runs are timed. */
const CLOCKED = SEEDS[0];
const CLOCK_ITERATIONS = { rl: 8, sft: 60 };
/** The rows of the table: what supervised training saw, then what GRPO saw. */
const FAMILY = [
  { run: 'sft_s__rl_s', start: 'sft_s' },
  { run: 'sft_s__rl_c', start: 'sft_s' },
  { run: 'sft_s__rl_sc', start: 'sft_s' },
  { run: 'sft_sc__rl_c', start: 'sft_sc' },
  { run: 'sft_sc__rl_sc', start: 'sft_sc' },
  { run: 'sft_sc2stage__rl_c', start: 'sft_sc2stage' },
  { run: 'sft_sc2stage__rl_sc', start: 'sft_sc2stage' },
  { run: 'sft_think_s__rl_s', start: 'sft_think_s' },
  { run: 'sft_think_s__rl_c', start: 'sft_think_s' },
  { run: 'sft_think_s__rl_sc', start: 'sft_think_s' },
] as const;
type Recipe = (typeof FAMILY)[number];
type Start = Recipe['start'];
/** The table's names for the data that a start was trained on. */
const STARTS: Readonly<Record<Start, string>> = {
  sft_s: 'S',
  sft_sc: 'SC',
  sft_sc2stage: 'S, then SC',
  sft_think_s: 'S, thinking',
};
/** The runs that are shown seed by seed. */
const CLOSER: readonly string[] = ['sft_s__rl_s', 'sft_s__rl_c', 'sft_sc__rl_sc', 'sft_think_s__rl_s'];
/** The run that determines how long RL takes from a start; SFT from that start continues for the same number of seconds. */
const CLOCK_RUNS: Partial<Record<Start, Recipe['run']>> = {
  sft_s: 'sft_s__rl_s',
  sft_sc: 'sft_sc__rl_sc',
  sft_think_s: 'sft_think_s__rl_s',
};

interface Measured {
  readonly mean: number;
  readonly stderr: number;
}

/** One seed of one run: the held-out reward before, after, and after supervised training for the same number of seconds. */
interface Row {
  readonly seed: number;
  readonly before: Readonly<Record<string, Measured>>;
  readonly after: Readonly<Record<string, Measured>>;
  readonly continued: Readonly<Record<string, Measured>>;
  readonly seconds: number | null;
}

async function main(): Promise<void> {
  const { values } = parseArgs({ options: { tables: { type: 'boolean', default: false } } });
  if (!values.tables) await trainAll();
  const rows = new Map(FAMILY.map((recipe) => [recipe.run, SEEDS.flatMap((seed) => measure(recipe, seed))]));
  const results = join('experiments', 'results');
  writeFileAtomic(join(results, 'earl_table.md'), page([familyTable(rows)], []));
  const closer = [...rows].filter(([run]) => CLOSER.includes(run)).map(([run, of]) => seedTable(run, of));
  writeFileAtomic(join(results, 'earl_tiny.md'), page(closer, ['', MEASURED]));
}

/**
 * The time of one iteration is measured in separate short runs, of RL and SFT in the same minutes, because the seconds that the sweep's
 * runs recorded depend on what else the machine did.
 */
async function trainAll(): Promise<void> {
  await editrl(['sweep', EXPERIMENT]);
  const clocked = Object.entries(CLOCK_RUNS) as [Start, string][];
  const clocks = clocked.flatMap(([start, run]) => [
    [`rl_from_${start}`, rlAgain(run, CLOCK_ITERATIONS.rl)] as const,
    [start, sftAgain(start, CLOCK_ITERATIONS.sft)] as const,
  ]);
  await sweepOf(CLOCK, [CLOCKED], Object.fromEntries(clocks));
  const continued = clocked.map(([start, run]) => {
    const seconds = secondsOfRl(start, rlRun(run, CLOCKED)) ?? NaN;
    const iterations = Math.round(seconds / secondsPerIteration(cell(CLOCK, start, CLOCKED)));
    return [start, sftAgain(start, iterations)] as const;
  });
  await sweepOf(CONTINUED, SEEDS, Object.fromEntries(continued));
}

/** Another run of a recipe of the family, with settings that override its laptop size. */
interface Again {
  readonly config: string;
  /** The overriding settings, as fields of a Jsonnet object. */
  readonly set: string;
}

const rlAgain = (run: string, iterations: number): Again => ({ config: run, set: `num_iterations: ${iterations}` });

/** Supervised training that continues from the end of a start, for this many iterations and without early stopping. */
const sftAgain = (start: Start, iterations: number): Again => ({
  config: start,
  set: `num_iterations: ${iterations},
      policy+: { model: { run: '${start}', config: '${start}.jsonnet' }, init: null },
      algorithm+: { warmup_steps: 0, sft+: { patience: null } }`,
});

/** Sweeps recipes by name over seeds, from the starts of the table's own runs. */
async function sweepOf(
  name: string,
  seeds: readonly number[],
  recipes: Readonly<Record<string, Again>>,
): Promise<void> {
  const each = (write: (recipe: string, again: Again) => string): string =>
    Object.entries(recipes)
      .map(([recipe, again]) => `    ${write(recipe, again)},\n`)
      .join('');
  const file = join(BASE_EXP_DIR, `${name}.jsonnet`);
  const text = `local on_both = import '../on_both.libsonnet';
{
  name: '${name}',
  base: 'recipe',
  with: ['../../configs/lib/tiny.libsonnet'],
  axes: {
    recipe: {
${each((recipe, { config }) => `  ${recipe}: (import '../../configs/${config}.jsonnet') + on_both`)}    },
    seed: { [seed]: { seed: std.parseInt(seed) } for seed in ['${seeds.join("', '")}'] },
  },
  overrides: [
${each((recipe, { set }) => `{ cell: { recipe: '${recipe}' }, set: { ${set} } }`)}  ],
  share: ['seed'],
}
`;
  writeFileAtomic(file, text);
  await editrl(['sweep', file]);
}

/** Runs an `editrl` command. Raises RunError if it fails. */
async function editrl(args: readonly string[]): Promise<void> {
  const main = fileURLToPath(new URL('../../src/cli/main.js', import.meta.url));
  const child = spawn(process.execPath, [main, ...args], {
    stdio: ['ignore', 'inherit', 'inherit'],
  });
  const code = await new Promise<number | null>((resolve, reject) => child.once('exit', resolve).once('error', reject));
  if (code !== 0) {
    throw new RunError(`editrl ${args.slice(0, 2).join(' ')} ended with code ${code}`, {
      next: 'Its own message is above.',
    });
  }
}

const cell = (experiment: string, recipe: string, seed: number): string =>
  `${experiment}__recipe-${recipe}__seed-${seed}`;
const rlRun = (run: string, seed: number): string => cell('earl_table', run, seed);

function paths(run: string): RunPaths {
  return new RunPaths(BASE_EXP_DIR, run);
}

/** The median time of an iteration; the first one is left out, since it includes the warm-up. */
function secondsPerIteration(run: string): number {
  const seconds = readMetrics(paths(run)).flatMap(({ metrics }) => metrics['time/total'] ?? []);
  const sorted = seconds.slice(1).sort((a, b) => a - b);
  return sorted[sorted.length >> 1];
}

/** The seconds that an RL run takes from a start; null if it was not timed. */
function secondsOfRl(start: Start, run: string): number | null {
  const clock = cell(CLOCK, `rl_from_${start}`, CLOCKED);
  return isFinished(clock) ? secondsPerIteration(clock) * lastIteration(run) : null;
}

function lastIteration(run: string): number {
  return readMetrics(paths(run)).at(-1)!.iteration;
}

/** The row of one seed; empty if the run is not finished. */
function measure({ run, start }: Recipe, seed: number): Row[] {
  const name = rlRun(run, seed);
  if (!isFinished(name)) return [];
  const lines = readMetrics(paths(name));
  const continued = cell(CONTINUED, start, seed);
  return [
    {
      seed,
      before: heldOut(lines[0].metrics),
      after: heldOut(lines.at(-1)!.metrics),
      continued: isFinished(continued) ? heldOut(readMetrics(paths(continued)).at(-1)!.metrics) : {},
      seconds: secondsOfRl(start, name),
    },
  ];
}

function isFinished(run: string): boolean {
  return readState(paths(run))?.state === 'finished';
}

/** Maps `<set>/<manner>` to a mean and its standard error; the set `all` is both sets together. */
function heldOut(metrics: Metrics): Record<string, Measured> {
  const out: Record<string, Measured> = {};
  for (const [name, mean] of Object.entries(metrics)) {
    const match = /^validation\/((?:[a-z]+\/)?(?:sampled|greedy))\/mean$/.exec(name);
    if (match !== null) {
      out[match[1].includes('/') ? match[1] : `all/${match[1]}`] = {
        mean,
        stderr: metrics[name.replace(/mean$/, 'stderr')] ?? NaN,
      };
    }
  }
  return out;
}

/** One row per start and RL data: the sampled held-out reward of the start and after RL, as means over seeds. */
function familyTable(rows: ReadonlyMap<string, readonly Row[]>): string {
  const sets = ['s', 'c', 'all'];
  const show = (values: readonly number[]): string => {
    if (values.length < SEEDS.length) return '–';
    const mean = values.reduce((sum, value) => sum + value, 0) / values.length;
    const spread = Math.sqrt(values.reduce((sum, value) => sum + (value - mean) ** 2, 0) / (values.length - 1));
    return `${mean.toFixed(2)} ± ${spread.toFixed(2)}`;
  };
  const title = (set: string): string => (set === 'all' ? set : set.toUpperCase());
  const header = ['SFT on', 'RL on', ...sets.flatMap((set) => [`${title(set)}, SFT`, `${title(set)}, RL`])];
  const body = FAMILY.map(({ run, start }) => [
    STARTS[start],
    run.split('__rl_')[1].toUpperCase(),
    ...sets.flatMap((set) =>
      (['before', 'after'] as const).map((when) =>
        show((rows.get(run) ?? []).map((row) => row[when][`${set}/sampled`].mean)),
      ),
    ),
  ]);
  const lines = [header, header.map(() => '---'), ...body].map((cells) => `| ${cells.join(' | ')} |`);
  return `Sampled, mean ± standard deviation over the seeds ${SEEDS.join(', ')}; a dash: not every seed is finished.\n\n${lines.join('\n')}\n`;
}

function seedTable(run: string, rows: readonly Row[]): string {
  const columns = ['s', 'c'].flatMap((set) => [`${set}/sampled`, `${set}/greedy`]);
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
    ['', 'RL', ...columns.map((column) => show(row.after[column])), row.seconds?.toFixed(0) ?? '-'],
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

/** The note below the figures of single seeds. */
const MEASURED =
  'Mean ± standard error over the prompts. Seconds depend on what else the machine does: RL and SFT were timed side by side, so that their ratio holds.';

function page(tables: readonly string[], besides: readonly string[]): string {
  return [
    "# EARL's family at laptop size",
    '',
    'Held-out VIEScore (0 to 10) by the rule judge of the tiny world over 256 prompts of each set, at the last iteration; S are simple',
    'edits, C complex ones. "Sampled" is at temperature 1. The judge prompts are editrl\'s own and the judge is no VLM: these figures',
    'compare with each other, not with published ones.',
    ...besides,
    '',
    '```',
    COMMAND,
    '```',
    '',
    ...tables,
  ].join('\n');
}

await main();
