/** `editrl logs RUN`: prints or follows the log of a run. */
import { printable } from '../core/errors.js';
import { findRun } from '../run/find.js';
import { followLog, readLog, type LogChoice } from '../run/logs.js';
import { readStatus } from '../run/status.js';
import { printError } from './shared/output.js';
import { expDirOption, flag, numberOption, switchOption, text, wholeNumber, type Action } from './shared/verb.js';

/** Number of lines to start a followed log with. */
const FOLLOWED_LINES = 20;

export const logsVerb: Action = {
  positionals: '<run>',
  build: (yargs) =>
    yargs
      .positional('run', { type: 'string', describe: 'run_name, or the folder of a run' })
      .option('follow', {
        alias: 'f',
        type: 'boolean',
        describe: 'Print new lines until the run ends, through restarts',
      })
      .option('rank', numberOption("Print one process's log as JSON lines (default: the readable log)"))
      .option('attempt', numberOption('Attempt (start or resume), counted from 1 (default: the latest)'))
      .option('lines', numberOption(`Number of last lines (default: all; with -f: ${FOLLOWED_LINES})`))
      .option('exp-dir', expDirOption)
      .option('json', switchOption('Print JSON lines: the log of rank 0, or of --rank'))
      .example('$0 logs sft_s__rl_s -f', 'Follow the run until it ends')
      .example('$0 logs sft_s__rl_s --rank 1 --lines 50', "The end of the second process's log"),
  run: async (args) => {
    const paths = findRun(text(args, 'run'), text(args, 'exp-dir'));
    const follow = flag(args, 'follow');
    const choice: LogChoice = {
      rank: wholeNumber(args, 'rank', 0) ?? (flag(args, 'json') ? 0 : null),
      attempt: wholeNumber(args, 'attempt', 1),
      lines: wholeNumber(args, 'lines', 0) ?? (follow ? FOLLOWED_LINES : null),
    };
    // A character may be split across two chunks.
    const decoder = new TextDecoder('utf-8', { ignoreBOM: true });
    const stop = new AbortController();
    const end = (): void => stop.abort();
    // A reader such as `| head` may close the pipe early, which is not an error.
    const onPipeError = (error: NodeJS.ErrnoException): void => {
      if (error.code !== 'EPIPE') throw error;
      end();
    };
    process.once('SIGINT', end);
    process.stdout.on('error', onPipeError);
    try {
      const chunks = follow ? followLog(paths, { ...choice, stop: stop.signal }) : readLog(paths, choice);
      for await (const chunk of chunks) {
        if (stop.signal.aborted) break;
        process.stdout.write(printable(decoder.decode(chunk, { stream: true })));
      }
      process.stdout.write(printable(decoder.decode()));
      if (follow && !stop.signal.aborted) {
        const { state, reason } = readStatus(paths);
        printError(`${paths.runName}: ${state}${reason === null ? '' : ` (${printable(reason)})`}`);
      }
      return 0;
    } finally {
      process.off('SIGINT', end);
      process.stdout.off('error', onPipeError);
    }
  },
};
