/** Calls Slurm's programs, and explains it when they are missing or refuse. */
import { execFile } from 'node:child_process';
import { RunError } from '../../core/errors.js';

type Program = 'sbatch' | 'squeue' | 'sacct' | 'scancel';

/** How one of Slurm's programs ended. */
export type SlurmResult =
  | { readonly kind: 'done'; readonly out: string }
  | { readonly kind: 'missing'; readonly words: string }
  | { readonly kind: 'refused'; readonly words: string };

const TIMEOUT_MS = 120_000;

/** Calls one of Slurm's programs; `words` are its output, trimmed. */
export function runSlurm(program: Program, args: readonly string[]): Promise<SlurmResult> {
  return new Promise((done) => {
    execFile(program, [...args], { timeout: TIMEOUT_MS, maxBuffer: 1 << 28 }, (error, out, err) => {
      if (error === null) done({ kind: 'done', out });
      else if (error.code === 'ENOENT') done({ kind: 'missing', words: `${program} was not found` });
      else done({ kind: 'refused', words: err.trim() === '' ? `${program} failed: ${error.message}` : err.trim() });
    });
  });
}

/** A job as sbatch names it. */
export interface JobId {
  readonly id: string;
  /** The cluster that has it; null if it is the default one. */
  readonly cluster: string | null;
}

/** The flag that asks one cluster instead of the default one. */
export function onCluster(cluster: string | null): string[] {
  return cluster === null ? [] : [`--clusters=${cluster}`];
}

/** Submits a batch script and returns the job. Raises RunError with sbatch's message. */
export async function submit(script: string): Promise<JobId> {
  const called = await runSlurm('sbatch', ['--parsable', script]);
  if (called.kind === 'missing') {
    throw new RunError("sbatch was not found: Slurm's programs are not on this machine's PATH", {
      next: "Do this on a login node of the cluster, or set launch.backend to 'local'.",
    });
  }
  if (called.kind === 'refused') {
    throw new RunError(`sbatch refused: ${called.words}`, {
      where: script,
      next: 'Correct launch.slurm in the config (account, partition, time, gres, mem, extra), then do the same again: what was accepted is not submitted twice.',
    });
  }
  const job = parseJobId(called.out);
  if (job !== null) return job;
  throw new RunError(`sbatch was expected to print the job's id, but printed ${JSON.stringify(called.out)}`, {
    where: script,
    next: 'See with squeue whether it was submitted, and what wraps sbatch on this machine.',
  });
}

/**
 * The job in sbatch's output: its last line of the form `12345`, `12345;cluster` or `Submitted batch job 12345 on cluster alpha`. Sites print banners
 * before it. Null if there is no such line.
 */
export function parseJobId(out: string): JobId | null {
  const found = out
    .split('\n')
    .map((line) => /^\s*(?:(\d+)(?:;([\w.-]+))?|Submitted batch job (\d+)(?: on cluster ([\w.-]+))?)\s*$/.exec(line))
    .findLast((line) => line !== null);
  if (found === undefined || found === null) return null;
  const [, parsable, cluster, spoken, spokenCluster] = found as readonly (string | undefined)[];
  return { id: parsable ?? spoken ?? '', cluster: cluster ?? spokenCluster ?? null };
}
