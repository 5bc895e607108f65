/**
 * Does a judge that fails in 30% of all requests change what a run learns? Trains the tiny run sft_s__rl_s with each seed, once with a sound and
 * once with a faulty rule judge, and prints the paired difference of the final held-out reward with its standard error.
 *
 *   npm run build && node dist/experiments/runners/judge_faults_runs.js --seeds 1,2,3,4,5
 *
 * The runs form a sweep. Finished runs are reused, so the command may be stopped and started again. `--with FILE` makes runs of another
 * size (and needs another --name). With `--max-parallel 2` it takes half as long, but a judge that is late because the machine is busy counts as
 * failing, so both arms may see such faults.
 */
import { mkdirSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { writeFileAtomic } from '../../src/core/files.js';
import { readMetrics, type Metrics } from '../../src/run/metrics.js';
import { RunPaths } from '../../src/run/paths.js';
import { startJudge, sweep } from './judged_runs.js';

/**
 * 30% of all requests, spread evenly over all kinds of faults. Two kinds are rarer, since they only cost time: each death of the server stops all
 * questions, and the client waits out an absurd Retry-After up to its limit of 30 s.
 */
const FAULTS = 'rate=0.3,engine_death=0.0005,http429_absurd=0.0001,latency_ms=200,down_s=1';
const ARMS = ['sound', 'faulty'] as const;
type Arm = (typeof ARMS)[number];
const METRIC = 'validation/sampled';

const { values: flags } = parseArgs({
  options: {
    seeds: { type: 'string', default: '1,2,3,4,5' },
    name: { type: 'string', default: 'judge_faults' },
    with: { type: 'string', multiple: true, default: [] },
    faults: { type: 'string', default: FAULTS },
    'max-parallel': { type: 'string', default: '1' },
  },
});

const base = process.env['APP__BASE_EXP_DIR'] ?? 'runs';
/** The folder in which the tiny overlay puts runs. */
const BASE_EXP_DIR = base === 'runs' ? join('runs', 'tiny') : base;
const experimentFile = join(BASE_EXP_DIR, `${flags.name}.jsonnet`);

async function main(): Promise<void> {
  const seeds = flags.seeds.split(',').map((seed) => seed.trim());
  const sound = await startJudge([]);
  const faulty = await startJudge(['--faults', flags.faults, '--faults-seed', '1']);
  try {
    mkdirSync(BASE_EXP_DIR, { recursive: true });
    writeFileAtomic(experimentFile, experiment(seeds, { sound: sound.url, faulty: faulty.url }));
    await sweep(experimentFile, ['--max-parallel', flags['max-parallel']]);
  } finally {
    sound.process.stdin?.end();
    faulty.process.stdin?.end();
  }
  console.log(`\n${seeds.length} seeds against a judge with ${flags.faults}:`);
  console.log(compare(seeds));
}

/** The matrix of the seeds and the two judges. The judge's address does not decide the result, so it may change when a run is resumed. */
function experiment(seeds: readonly string[], urls: Readonly<Record<Arm, string>>): string {
  const judge = (arm: Arm): string => `${arm}: { reward+: { endpoint: '${urls[arm]}' } }`;
  const overlays = ['configs/lib/tiny.libsonnet', ...flags.with].map((file) => JSON.stringify(resolve(file)));
  return `{
  name: '${flags.name}',
  base: import ${JSON.stringify(resolve('configs/sft_s__rl_s.jsonnet'))},
  with: [${overlays.join(', ')}],
  axes: {
    judge: { ${ARMS.map(judge).join(', ')} },
    seed: { ${seeds.map((seed) => `'${seed}': { seed: ${seed}, reward+: { timeout_s: 2 } }`).join(', ')} },
  },
  // Both judges' runs of a seed begin with the same start.
  share: ['seed'],
  baseline: { judge: 'sound' },
}
`;
}

interface Final {
  readonly mean: number;
  readonly stderr: number;
  /** Episodes without a score in an iteration, on average. */
  readonly unscored: number;
}

function final(arm: Arm, seed: string): Final {
  const lines = readMetrics(new RunPaths(BASE_EXP_DIR, `${flags.name}__judge-${arm}__seed-${seed}`));
  const last = lines.findLast(({ metrics }) => `${METRIC}/mean` in metrics)?.metrics ?? {};
  const trained = lines.filter(({ metrics }) => 'reward/mean' in metrics);
  const unscored = trained.map(({ metrics }) => unscoredOf(metrics));
  return { mean: last[`${METRIC}/mean`] ?? NaN, stderr: last[`${METRIC}/stderr`] ?? NaN, unscored: average(unscored) };
}

/** Episodes without a score in an iteration. */
function unscoredOf(metrics: Metrics): number {
  const reasons = Object.entries(metrics).filter(([name]) => name.startsWith('reward/unscored/'));
  return reasons.reduce((sum, [, count]) => sum + count, 0);
}

/** The paired difference over the seeds, its standard error s/sqrt(n), and whether it is within two of them. */
function compare(seeds: readonly string[]): string {
  const rows = seeds.map((seed) => ({ seed, sound: final('sound', seed), faulty: final('faulty', seed) }));
  const differences = rows.map(({ sound, faulty }) => faulty.mean - sound.mean);
  const mean = average(differences);
  const spread = Math.sqrt(differences.reduce((sum, d) => sum + (d - mean) ** 2, 0) / (differences.length - 1));
  const stderr = spread / Math.sqrt(differences.length);
  const show = ({ mean: value, stderr: error }: Final): string => `${value.toFixed(3)} ± ${error.toFixed(3)}`;
  const list = rows.map(
    ({ seed, sound, faulty }, i) =>
      `  seed ${seed}: sound ${show(sound)}, faulty ${show(faulty)} (${faulty.unscored.toFixed(1)} episodes an iteration unscored), difference ${differences[i].toFixed(3)}`,
  );
  const within = Math.abs(mean) <= 2 * stderr ? 'within' : 'NOT within';
  const verdict = differences.length < 2 ? 'one seed alone has no standard error' : `${within} two standard errors`;
  return [...list, `  mean difference ${mean.toFixed(3)} ± ${stderr.toFixed(3)}: ${verdict}`].join('\n');
}

function average(numbers: readonly number[]): number {
  return numbers.reduce((sum, each) => sum + each, 0) / numbers.length;
}

await main();
