/** What the serving verbs share: the token, and when to stop. */
import type { Socket } from 'node:net';
import type { Argv } from 'yargs';
import { UsageError } from '../../core/errors.js';
import { flag, text, type Arguments } from '../shared/verb.js';

/** @param preset the variable that holds the token if --token-env names none. */
export function servingOptions(yargs: Argv, preset?: string): Argv {
  const otherwise = preset === undefined ? '' : ` (default: ${preset})`;
  return yargs
    .option('token-env', {
      type: 'string',
      describe: `Environment variable with the token that clients must send${otherwise}; required unless --host is loopback`,
    })
    .option('exit-with-parent', {
      type: 'boolean',
      describe: 'Stop when standard input closes, as when the parent process dies',
    })
    .option('json', { type: 'boolean', describe: 'Print the address as one line of JSON' });
}

/** The token that callers must send; null if there is none. Raises UsageError if a named variable is not set: no server is open by mistake. */
export function tokenOf(args: Arguments, preset?: string): string | null {
  const named = text(args, 'token-env');
  const variable = named === '' ? preset : named;
  const value = (variable === undefined ? undefined : process.env[variable]) ?? '';
  if (value !== '') return value;
  if (named === '') return null;
  throw new UsageError(`the environment variable ${named} is not set; it must hold the server's token`, {
    where: '--token-env',
    next: `Set it: export ${named}=$(openssl rand -hex 32)`,
  });
}

/** Calls back at every reason to stop, with the number so far. Reasons are signals and, with --exit-with-parent, the end of standard input. */
export function onReasonToStop(args: Arguments, callback: (times: number) => void): void {
  let times = 0;
  const stop = (): void => callback(++times);
  process.on('SIGINT', stop).on('SIGTERM', stop);
  if (!flag(args, 'exit-with-parent')) return;
  // A parent that ends this process with a signal closes its input as well; this does not count as a second reason.
  const parentIsGone = (): void => {
    if (times === 0) stop();
  };
  process.stdin.once('close', parentIsGone).once('error', () => undefined);
  process.stdin.resume();
  // An open input must not keep a stopped server alive.
  (process.stdin as Partial<Pick<Socket, 'unref'>>).unref?.();
}
