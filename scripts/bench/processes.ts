/**
 * Data parallelism: two processes with one thread each compared with one process with two threads, on the same iterations of 256 episodes,
 * in turns, from the start that `npm run quickstart` trained. The ratio is what counts; seconds on a shared machine say little.
 */
import { median, shortRun } from './short_run.js';

const ITERATIONS = 8;
/** The first iterations compile sessions. */
const WARM_UP = 2;
const ROUNDS = 3;
const PARTS = ['total', 'rollout', 'render', 'judge', 'exchange', 'reference', 'update', 'other'] as const;

type Seconds = Readonly<Record<(typeof PARTS)[number], number>>;

export async function benchProcesses(): Promise<void> {
  const ratios: number[] = [];
  const splits: Record<'one' | 'two', Seconds[]> = { one: [], two: [] };
  for (let round = 0; round < ROUNDS; round++) {
    // The order changes from round to round.
    const order = round % 2 === 0 ? (['one', 'two'] as const) : (['two', 'one'] as const);
    for (const which of order) splits[which].push(await measure(which === 'one' ? 1 : 2));
    ratios.push(splits.one[round].total / splits.two[round].total);
  }
  console.log('shares of an iteration of one process with two threads (medians):');
  const whole = median(splits.one.map(({ total }) => total));
  console.log('              1 x 2 threads   2 x 1 thread');
  for (const part of PARTS) {
    const [one, two] = [splits.one, splits.two].map((all) => median(all.map((seconds) => seconds[part])) / whole);
    console.log(`  ${part.padEnd(12)} ${one.toFixed(2).padStart(12)} ${two.toFixed(2).padStart(14)}`);
  }
  const list = ratios.map((ratio) => ratio.toFixed(2)).join(', ');
  console.log(`throughput of two processes over one: ${median(ratios).toFixed(2)} (median of ${list})`);
}

/** Median seconds of an iteration, by part. */
async function measure(processes: 1 | 2): Promise<Seconds> {
  const lines = await shortRun(
    `bench_processes_${processes}`,
    [
      `launch.processes=${processes}`,
      `policy.engine.threads=${2 / processes}`,
      `environment.engine.threads=${2 / processes}`,
      `num_iterations=${ITERATIONS}`,
      'rollout.episodes_per_iteration=256',
    ],
    WARM_UP,
  );
  return Object.fromEntries(
    PARTS.map((part) => [part, median(lines.map((metrics) => metrics[`time/${part}`] ?? 0))]),
  ) as Seconds;
}
