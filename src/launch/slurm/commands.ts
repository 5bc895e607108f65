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

/** Submits a batch script and returns the job's id. Raises RunError with sbatch's message. */
export async function submit(script: string): Promise<string> {
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
  // `12345` or, in a federation, `12345;cluster`.
  const id = called.out.trim().split(';')[0];
  if (/^\d+$/.test(id)) return id;
  throw new RunError(`sbatch was expected to print the job's id, but printed ${JSON.stringify(called.out)}`, {
    where: script,
    next: 'See with squeue whether it was submitted, and what wraps sbatch on this machine.',
  });
}
