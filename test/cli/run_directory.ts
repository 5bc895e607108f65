/** Run directories and captured output for the tests of verbs that read them. */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { vi } from 'vitest';
import { RunPaths } from '../../src/run/paths.js';
import type { RunStateName } from '../../src/run/state.js';

/** A folder for runs. */
export class RunFolder {
  readonly dir = mkdtempSync(join(tmpdir(), 'editrl-verbs-'));

  /** A run in a state, at iteration 4 of 10. */
  make(name: string, state: RunStateName, reason: string | null = null): RunPaths {
    const paths = new RunPaths(this.dir, name);
    mkdirSync(paths.dir, { recursive: true });
    const settings = { run_name: name, base_exp_dir: this.dir, num_iterations: 10 };
    writeFileSync(paths.record, JSON.stringify({ format: 1, run_name: name, hash: 'h', settings, attempts: [] }));
    this.setState(paths, state, reason);
    return paths;
  }

  setState(paths: RunPaths, state: RunStateName, reason: string | null = null): void {
    const heartbeat = new Date().toISOString();
    writeFileSync(paths.state, JSON.stringify({ state, iteration: 4, num_iterations: 10, heartbeat, reason }));
  }

  /** The lock of a process, as it would have made it. */
  lock(
    paths: RunPaths,
    held: { host: string; pid: number; process_start: string | null; slurm_job_id?: string },
  ): void {
    writeFileSync(paths.lock, JSON.stringify({ token: `t${held.pid}`, slurm_job_id: null, ...held }));
  }

  /** Writes a log of an attempt. */
  log(path: string, text: string): void {
    mkdirSync(dirname(path), { recursive: true });
    writeFileSync(path, text, { flag: 'a' });
  }

  remove(): void {
    rmSync(this.dir, { recursive: true, force: true });
  }
}

/** What is printed from now on, until the mocks are restored. */
export function capture(): { out: string; error: string } {
  const written = { out: '', error: '' };
  const sink = (name: 'out' | 'error') => (chunk: unknown) => {
    written[name] += chunk instanceof Uint8Array ? Buffer.from(chunk).toString('utf8') : String(chunk);
    return true;
  };
  vi.spyOn(process.stdout, 'write').mockImplementation(sink('out'));
  vi.spyOn(process.stderr, 'write').mockImplementation(sink('error'));
  return written;
}
