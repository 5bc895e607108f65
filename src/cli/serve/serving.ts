/** Shared by the serving verbs: the token and the reasons to stop. */
import type { Socket } from 'node:net';
import type { Argv } from 'yargs';
import { UsageError } from '../../core/errors.js';
import { flag, switchOption, text, type Arguments } from '../shared/verb.js';

/** @param preset the default variable of --token-env. */
export function servingOptions(yargs: Argv, preset?: string): Argv {
  const otherwise = preset === undefined ? '' : ` (default: ${preset})`;
  return yargs
    .option('token-env', {
      type: 'string',
      describe: `Environment variable with the token that clients must send${otherwise}. Required unless --host is loopback`,
    })
    .option(
      'exit-with-parent',
      switchOption('Stop when standard input closes, for example when the parent process dies'),
    )
    .option('json', switchOption('Print the address as one line of JSON'));
}

/** The token that clients must send, or null. Raises UsageError if a named variable is not set, so no server is open by mistake. */
export function tokenOf(args: Arguments, preset?: string): string | null {
  const named = text(args, 'token-env');
  const variable = named === '' ? preset : named;
  const value = (variable === undefined ? undefined : process.env[variable]) ?? '';
  if (value !== '') return value;
  if (named === '') return null;
  throw new UsageError(`the environment variable ${named} is not set, but must contain the server's token`, {
    where: '--token-env',
    next: `Set it: export ${named}=$(openssl rand -hex 32)`,
  });
}

/** Calls back with the number of reasons to stop so far: signals and, with --exit-with-parent, the end of standard input. */
export function onReasonToStop(args: Arguments, callback: (times: number) => void): void {
  let times = 0;
  const stop = (): void => callback(++times);
  process.on('SIGINT', stop).on('SIGTERM', stop);
  if (!flag(args, 'exit-with-parent')) return;
  // A parent that signals this process also closes its input, which does not count as a second reason.
  const parentIsGone = (): void => {
    if (times === 0) stop();
  };
  process.stdin.once('close', parentIsGone).once('error', () => undefined);
  process.stdin.resume();
  // An open standard input must not keep a stopped server alive.
  (process.stdin as Partial<Pick<Socket, 'unref'>>).unref?.();
}
