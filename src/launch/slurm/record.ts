/**
 * The record of submissions: one folder per submission below `<base_exp_dir>/.slurm/`, a name that no run can have. It contains the batch scripts,
 * the files of cells, and `jobs.json`, which maps runs to tasks.
 */
import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { writeFileAtomic } from '../../core/files.js';
import { readJson } from '../../run/state.js';

/** A submitted job array. */
export interface ArrayRecord {
  /** Slurm's name of the job, unique to this array: the job is found by it if its id was not recorded in time. */
  readonly name: string;
  /** Null until sbatch has answered. */
  readonly job_id: string | null;
  /** The cluster that has it; null if it is the default one. */
  readonly cluster: string | null;
  /** Run names by task index. */
  readonly runs: readonly string[];
}

export interface JudgeRecord {
  readonly name: string;
  readonly job_id: string | null;
  readonly cluster: string | null;
  readonly node_file: string;
}

/** A job that ends a judge after the arrays that use it. A later submission that uses the judge replaces it by its own. */
export interface FarewellRecord {
  /** Slurm's name of the job, unique to it. */
  readonly name: string;
  readonly job_id: string | null;
  readonly cluster: string | null;
  /** The node file of the judge that it ends. */
  readonly node_file: string;
  /** Ids of the arrays that it waits for. */
  readonly after: readonly string[];
}

export interface Submission {
  readonly format: 1;
  readonly submitted_at: string;
  readonly arrays: readonly ArrayRecord[];
  readonly judges: readonly JudgeRecord[];
  readonly farewells: readonly FarewellRecord[];
}

export function submissionsDir(baseExpDir: string): string {
  return join(baseExpDir, '.slurm');
}

/** Replaces the record of a submission. */
export function writeSubmission(dir: string, submission: Submission): void {
  writeFileAtomic(join(dir, 'jobs.json'), `${JSON.stringify(submission, null, 2)}\n`);
}

/** Every submission below a folder of runs, oldest first. Raises RunError for an unreadable record. */
export function readSubmissions(baseExpDir: string): Submission[] {
  const dir = submissionsDir(baseExpDir);
  if (!existsSync(dir)) return [];
  return readdirSync(dir)
    .sort()
    .flatMap((name) => {
      const found = readJson(join(dir, name, 'jobs.json'));
      return found === null ? [] : [found as Submission];
    });
}
