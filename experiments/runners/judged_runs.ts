/** What the scripts share that train against biased judges. */
import { spawn, type ChildProcess } from 'node:child_process';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { EndpointError, RunError } from '../../src/core/errors.js';
import { readPlainText } from '../../src/core/plain_file.js';
import { average } from '../../src/core/statistics.js';
import type { RunPaths } from '../../src/run/paths.js';

const MAIN = fileURLToPath(new URL('../../src/cli/main.js', import.meta.url));

/** A judge that ends with this process, or when its standard input is closed. */
export interface Judge {
  readonly url: string;
  readonly process: ChildProcess;
}

/** `editrl serve judge` on a free port; it ends with this process. */
export async function startJudge(args: readonly string[]): Promise<Judge> {
  const child = spawn(
    process.execPath,
    [MAIN, 'serve', 'judge', '--port', '0', '--json', '--exit-with-parent', ...args],
    {
      stdio: ['pipe', 'pipe', 'inherit'],
    },
  );
  const first = await createInterface({ input: child.stdout })[Symbol.asyncIterator]().next();
  if (first.done === true) {
    throw new EndpointError('the judge did not start', { next: 'Its own message is above.' });
  }
  return { url: (JSON.parse(first.value) as { url: string }).url, process: child };
}

/** `editrl` with these words, its output shown. Raises RunError when it fails. */
export async function editrl(words: readonly string[]): Promise<void> {
  const child = spawn(process.execPath, [MAIN, ...words], { stdio: ['ignore', 'inherit', 'inherit'] });
  const stop = (signal: NodeJS.Signals): void => void child.kill(signal);
  process.on('SIGINT', stop).on('SIGTERM', stop);
  const code = await new Promise<number | null>((done, fail) => child.once('exit', done).once('error', fail));
  process.off('SIGINT', stop).off('SIGTERM', stop);
  if (code !== 0) {
    throw new RunError(`editrl ${words.join(' ')} ended with code ${code}`, {
      next: 'Its own message is above; the same command goes on.',
    });
  }
}

/** Runs a matrix to its end. Raises RunError when it fails. */
export function sweep(experiment: string, flags: readonly string[]): Promise<void> {
  return editrl(['sweep', experiment, ...flags]);
}

const SOUND = 'sound';

/** Has the held-out answers of a run scored by the reward and judge of `config`, once. */
export async function rescoreSoundly(paths: RunPaths, config: string): Promise<void> {
  if (soundGain(paths) !== null) return;
  await editrl([
    ...['rescore', paths.dir, '--config', config, '--with', 'configs/lib/tiny.libsonnet'],
    ...['--held-out', '--name', SOUND],
  ]);
}

interface Line {
  readonly set: string;
  readonly iteration: number;
  readonly rescored: { readonly kind: string; readonly value?: number };
}

/** The means of all sampled held-out answers before and after, as `rescoreSoundly` found them; null where it did not look yet. */
export function soundGain(paths: RunPaths): { readonly before: number; readonly after: number } | null {
  const text = readPlainText(join(paths.dir, 'rescored', `${SOUND}.jsonl`));
  if (text === null) return null;
  const lines = text.trimEnd().split('\n');
  const sampled = lines.map((line) => JSON.parse(line) as Line).filter(({ set }) => set.endsWith('/sampled'));
  const last = Math.max(...sampled.map(({ iteration }) => iteration));
  // The sound judge leaves nothing without a score; an answer that is no picture is worth 0.
  const mean = (at: number): number =>
    average(sampled.filter(({ iteration }) => iteration === at).map(({ rescored: { value = 0 } }) => value));
  return { before: mean(0), after: mean(last) };
}
