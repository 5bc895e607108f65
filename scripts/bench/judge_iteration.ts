/**
 * An iteration with a judge that is as slow as the rollout. Questions are sent while the next chunk is sampled, so that the iteration should take
 * max(rollout, judging) + update + one chunk, not the sum of all. The time of judging alone is measured in a run that samples all episodes before
 * it sends any question. The stub judge and the client share the processor with everything else.
 */
import { JUDGE_MODEL } from '../../src/tiny/judge/server.js';
import { startStub } from './judge_helpers.js';
import { median, shortRun } from './short_run.js';

const ITERATIONS = 22;
/** Iterations that are not counted: the first ones compile sessions, and the client's code is compiled only after a few thousand calls. */
const WARM_UP = 10;
const EPISODES = 256;
const CHUNK_GROUPS = 4;
const PER_GROUP = 8;
const CHUNKS = EPISODES / PER_GROUP / CHUNK_GROUPS;
const CONCURRENCY = 64;
const CALLS = 2 * EPISODES;
const MOST = 1.15;

interface Seconds {
  readonly total: number;
  /** Sampling and rendering. */
  readonly rollout: number;
  readonly waited: number;
  /** Reference, loss and step. */
  readonly update: number;
  readonly other: number;
}

/** Measures iterations with a fast judge, then with a judge whose latency makes judging as long as the rollout, in chunks and sampled first. */
export async function measureIterations(): Promise<void> {
  const fast = await iterationWith(0, CHUNK_GROUPS);
  const latencyMs = Math.max(1, Math.round((fast.rollout / (CALLS / CONCURRENCY)) * 1000));
  const apart = await iterationWith(latencyMs, null);
  const slow = await iterationWith(latencyMs, CHUNK_GROUPS);
  const judging = apart.waited;
  const chunk = Math.max(slow.rollout, judging) / CHUNKS;
  const bound = MOST * (Math.max(slow.rollout, judging) + slow.update) + chunk;
  const list = ({ total, rollout, waited, update, other }: Seconds): string =>
    `total ${total.toFixed(2)}, rollout ${rollout.toFixed(2)}, waiting for the judge ${waited.toFixed(2)}, update ${update.toFixed(2)}, other ${other.toFixed(2)}`;
  console.log(`an iteration of ${EPISODES} episodes in ${CHUNKS} chunks, or all sampled first; medians in seconds:`);
  console.log(`  chunks, judge at once:          ${list(fast)}`);
  console.log(`  sampled first, ${String(latencyMs).padStart(4)} ms a call:  ${list(apart)}`);
  console.log(`  chunks, judge ${String(latencyMs).padStart(4)} ms a call:   ${list(slow)}`);
  console.log(
    `  ${slow.total.toFixed(2)} s against ${MOST} x (max(rollout ${slow.rollout.toFixed(2)}, judging ${judging.toFixed(2)}) + update ${slow.update.toFixed(2)}) + one chunk ${chunk.toFixed(2)} = ${bound.toFixed(2)} s: ${(slow.total / bound).toFixed(2)} of it (at most 1)`,
  );
}

/** @param chunkGroups null samples everything before the judge is asked. */
async function iterationWith(latencyMs: number, chunkGroups: number | null): Promise<Seconds> {
  const stub = await startStub(['--scores', 'digest', '--latency', String(latencyMs)]);
  try {
    const lines = await shortRun(
      'bench_judge',
      [
        `reward.endpoint=${stub.url}`,
        `reward.model=${JUDGE_MODEL}`,
        `reward.concurrency=${CONCURRENCY}`,
        `num_iterations=${ITERATIONS}`,
        `rollout.episodes_per_iteration=${EPISODES}`,
        `rollout.generations_per_sample=${PER_GROUP}`,
        `rollout.chunk_groups=${chunkGroups}`,
        'reward.zero_if_unfinished=false',
      ],
      WARM_UP,
    );
    const typical = (...names: readonly string[]): number =>
      median(lines.map((metrics) => names.reduce((sum, name) => sum + (metrics[`time/${name}`] ?? 0), 0)));
    return {
      total: typical('total'),
      rollout: typical('rollout', 'render'),
      waited: typical('judge'),
      update: typical('reference', 'update'),
      other: typical('other', 'exchange'),
    };
  } finally {
    await stub.close();
  }
}
