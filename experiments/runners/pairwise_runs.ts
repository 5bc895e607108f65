/**
 * Grading or comparing, when the judge is noisy? Trains the tiny run sft_s__rl_s on VIEScore and on comparisons by the same noisy rule judge, and sets
 * the gains of held-out VIEScore by the sound judge against the number of questions that training asked.
 *
 *   npm run build && node dist/experiments/runners/pairwise_runs.js --seeds 1,2,3,4,5
 *
 * The runs form a sweep. Finished runs are reused, so the command may be stopped and started again.
 */
import { mkdirSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { meanDifference, showEstimate, type Estimate } from '../../src/core/estimate.js';
import { writeFileAtomic } from '../../src/core/files.js';
import { average } from '../../src/core/statistics.js';
import { scanLines } from '../../src/core/log.js';
import { RunPaths } from '../../src/run/paths.js';
import { rescoreSoundly, soundGain, startJudge, sweep, type Judge } from './judged_runs.js';

const { values: flags } = parseArgs({
  options: {
    seeds: { type: 'string', default: '1,2,3,4,5' },
    noise: { type: 'string', default: '0.2,0.4' },
    name: { type: 'string', default: 'pairwise' },
    'max-parallel': { type: 'string', default: '1' },
  },
});

/** By what answers are scored. The first is the baseline. */
const REWARDS = {
  viescore: "mode: 'viescore'",
  pairwise: "mode: null, terms: [{ name: 'pairwise', weight: 1 }]",
  everybody: "mode: null, terms: [{ name: 'pairwise', weight: 1, rounds: 'all' }]",
} as const;
type Reward = keyof typeof REWARDS;
const rewards = Object.keys(REWARDS) as Reward[];

const MODEL = 'biased-judge';
const base = process.env['APP__BASE_EXP_DIR'] ?? 'runs';
/** The folder in which the tiny overlay puts runs. */
const BASE_EXP_DIR = base === 'runs' ? join('runs', 'tiny') : base;
const experimentFile = join(BASE_EXP_DIR, `${flags.name}.jsonnet`);
const soundFile = join(BASE_EXP_DIR, `${flags.name}_sound.jsonnet`);
const listOf = (text: string): string[] => text.split(',').map((one) => one.trim());
const seeds = listOf(flags.seeds);
const noises = listOf(flags.noise);
const cellOf = (noise: string): string => noise.replace('.', '_');

async function main(): Promise<void> {
  const judges: Judge[] = [];
  mkdirSync(BASE_EXP_DIR, { recursive: true });
  try {
    for (const noise of noises) judges.push(await startJudge(['--bias', `noise=${noise}`, '--model', MODEL]));
    writeFileAtomic(experimentFile, experiment(judges.map(({ url }) => url)));
    writeFileAtomic(soundFile, `(import ${JSON.stringify(resolve('configs/sft_s__rl_s.jsonnet'))})\n`);
    await sweep(experimentFile, ['--max-parallel', flags['max-parallel']]);
  } finally {
    for (const { process: child } of judges) child.stdin?.end();
  }
  for (const noise of noises) {
    for (const reward of rewards) {
      for (const seed of seeds) await rescoreSoundly(pathsOf(noise, reward, seed), soundFile);
    }
  }
  console.log(table());
}

function experiment(urls: readonly string[]): string {
  const judges = urls.map((url, i) => `'${cellOf(noises[i])}': { reward+: { endpoint: '${url}', model: '${MODEL}' } }`);
  return `{
  name: '${flags.name}',
  base: import ${JSON.stringify(resolve('configs/sft_s__rl_s.jsonnet'))},
  with: [${JSON.stringify(resolve('configs/lib/tiny.libsonnet'))}],
  axes: {
    noise: { ${judges.join(', ')} },
    reward: { ${rewards.map((reward) => `${reward}: { reward+: { ${REWARDS[reward]} } }`).join(', ')} },
    seed: { ${seeds.map((seed) => `'${seed}': { seed: ${seed} }`).join(', ')} },
  },
  // All runs of a seed begin with the same start.
  share: ['seed'],
  baseline: { reward: 'viescore' },
}
`;
}

function pathsOf(noise: string, reward: Reward, seed: string): RunPaths {
  return new RunPaths(BASE_EXP_DIR, `${flags.name}__noise-${cellOf(noise)}__reward-${reward}__seed-${seed}`);
}

/** How many questions the run asked the judge about answers of training. */
function questionsOf(paths: RunPaths): number {
  let count = 0;
  scanLines(paths.judgements, (line) => {
    if (!line.startsWith('{"key":"validation/')) count += 1;
  });
  return count;
}

const shown = (estimate: Estimate | null): string => (estimate === null ? '' : showEstimate(estimate));

/** One line for each noise and reward, and the differences to the first reward by seed. */
function table(): string {
  const rows = noises.flatMap((noise) => {
    const gains = rewards.map((reward) =>
      seeds.map((seed) => {
        const found = soundGain(pathsOf(noise, reward, seed));
        return found === null ? NaN : found.after - found.before;
      }),
    );
    const lines = rewards.map((reward, r) => {
      const asked = average(seeds.map((seed) => questionsOf(pathsOf(noise, reward, seed))));
      const each = gains[r].map((gain) => gain.toFixed(2)).join(', ');
      return [noise, reward, String(Math.round(asked)), each, shown(meanDifference(gains[r]))];
    });
    const differences = rewards.slice(1).map((reward, r) => {
      const difference = gains[r + 1].map((gain, i) => gain - gains[0][i]);
      const each = difference.map((gain) => gain.toFixed(2)).join(', ');
      return [noise, `${reward} - ${rewards[0]}`, '', each, shown(meanDifference(difference))];
    });
    return [...lines, ...differences];
  });
  const head = ['noise', 'reward', 'questions', 'gain of VIEScore by seed', 'mean'];
  return [head, head.map(() => '---'), ...rows].map((cells) => `| ${cells.join(' | ')} |`).join('\n');
}

await main();
