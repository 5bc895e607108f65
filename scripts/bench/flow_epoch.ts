/**
 * An iteration of `ip_adapter` at laptop size, from the warm-up that its command trained, compared with a torch loop of the same steps on
 * diffusers' transformer of the same sizes, in turns; and the share of an iteration that is spent neither in onnxruntime nor in rewards.
 */
import { execFileSync } from 'node:child_process';
import { availableParallelism, cpus } from 'node:os';
import { parseArgs } from 'node:util';
import { InternalError, RunError, UsageError } from '../../src/core/errors.js';
import { RunPaths } from '../../src/run/paths.js';
import { latestWhole } from '../../src/run/checkpoints.js';
import type { Metrics } from '../../src/run/metrics.js';
import { missingInPython } from './python.js';
import { median, shortRun } from './short_run.js';

const EPISODES = 256;
const EPOCHS = 6;
/** The first epoch is not counted: it compiles sessions, and torch's first epoch is not representative either. */
const WARM_UP = 1;

/** The seconds of an epoch by part. */
interface Split {
  readonly rollout: number;
  readonly update: number;
}

export async function benchFlowEpoch(): Promise<void> {
  const { values } = parseArgs({
    args: process.argv.slice(3),
    options: { python: { type: 'string', default: 'python3' }, rounds: { type: 'string', default: '3' } },
  });
  const rounds = Number(values.rounds);
  if (!Number.isInteger(rounds) || rounds < 1) throw new UsageError('--rounds takes a whole number from 1');
  const missing = missingInPython(values.python, ['torch', 'diffusers']);
  console.log(`${cpus()[0]?.model ?? 'unknown processor'}, ${availableParallelism()} threads, node ${process.version}`);
  if (missing !== null) console.log(`torch is left out: ${missing}`);
  const ours: Metrics[] = [];
  const theirs: Split[] = [];
  for (let round = 0; round < rounds; round++) {
    ours.push(...(await iterations()));
    if (missing === null) theirs.push(...epochs(values.python, warmUpFolder()));
  }
  const partly = ours.filter((metrics) => metrics['group/dropped'] > 0).length;
  if (partly > 0) {
    throw new RunError(`${partly} of ${ours.length} epochs dropped groups, and learnt from fewer pictures than torch`, {
      next: 'Groups are dropped whose rewards are all equal: train ip_adapter_warmup for less long, or measure another seed.',
    });
  }
  const split = (all: readonly Split[]): string =>
    `sampling ${median(all.map(({ rollout }) => rollout)).toFixed(2)} s, learning ${median(all.map(({ update }) => update)).toFixed(2)} s`;
  const own = ours.map((metrics) => ({ rollout: metrics['time/rollout'], update: metrics['time/update'] }));
  console.log(`\nan epoch of ${EPISODES} pictures, medians of ${own.length}:\n  editrl  ${split(own)}`);
  if (theirs.length > 0) {
    const sum = ({ rollout, update }: Split): number => rollout + update;
    console.log(`  torch   ${split(theirs)}`);
    console.log(`  torch / editrl: ${(median(theirs.map(sum)) / median(own.map(sum))).toFixed(2)}`);
  }
  const outside = ours.map(
    (metrics) => 1 - (metrics['time/onnxruntime'] + metrics['time/judge']) / metrics['time/total'],
  );
  console.log(
    `\noutside onnxruntime and rewards: ${(100 * median(outside)).toFixed(1)}% of ${median(ours.map((one) => one['time/total'])).toFixed(2)} s`,
  );
}

const SOURCE = { file: 'configs/ip_adapter.jsonnet', overlays: ['configs/lib/ip_adapter_tiny.libsonnet'] };

function iterations(): Promise<Metrics[]> {
  const sets = [`num_iterations=${EPOCHS}`, `rollout.episodes_per_iteration=${EPISODES}`];
  return shortRun('bench_flow_epoch', sets, WARM_UP, SOURCE);
}

/** The folder of the model that the runs start from. */
function warmUpFolder(): string {
  const base = process.env['APP__BASE_EXP_DIR'] ?? 'runs/tiny';
  const checkpoint = latestWhole(new RunPaths(base, 'ip_adapter_warmup'));
  if (checkpoint !== null) return checkpoint.dir;
  throw new UsageError('there is no run ip_adapter_warmup', {
    next: `Make it with: editrl run ${SOURCE.file} --with ${SOURCE.overlays[0]}`,
  });
}

function epochs(python: string, folder: string): Split[] {
  const asked = { folder, rows: 4, columns: 8, text_tokens: 3, episodes: EPISODES, batch: 64, steps: 10, window: 3 };
  const given = JSON.stringify({ ...asked, threads: availableParallelism(), epochs: EPOCHS });
  const text = execFileSync(python, ['scripts/bench/flow_epoch.py', given], {
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 'ignore'],
  });
  const lines = text.trim().split('\n').slice(WARM_UP);
  if (lines.length === 0) throw new InternalError('the Python program printed nothing');
  return lines.map((line) => JSON.parse(line) as Split);
}
