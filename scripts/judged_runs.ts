/** What the scripts share that train against judges with faults or biases. */
import { spawn, type ChildProcess } from 'node:child_process';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { EndpointError, RunError } from '../src/core/errors.js';

const MAIN = fileURLToPath(new URL('../src/cli/main.js', import.meta.url));

/** A judge that ends with this process, or when its standard input is closed. */
export interface Judge {
  readonly url: string;
  readonly process: ChildProcess;
}

/** `editrl judge` on a free port; it ends with this process. */
export async function startJudge(args: readonly string[]): Promise<Judge> {
  const child = spawn(process.execPath, [MAIN, 'judge', '--port', '0', '--json', '--exit-with-parent', ...args], {
    stdio: ['pipe', 'pipe', 'inherit'],
  });
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
