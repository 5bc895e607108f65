/** editrl judge: serves the tiny world's rule judge until it is told to stop. */
import { UsageError } from '../core/errors.js';
import { JUDGE_MODEL, startJudge } from '../tiny/judge/server.js';
import { printLine } from './output.js';
import { flag, text, texts, type Verb } from './verb.js';

/** Resolves with the reason to stop: a signal, or the end of standard input where that is asked for. */
async function untilStopped(withParent: boolean): Promise<void> {
  await new Promise<void>((resolve) => {
    const stop = (): void => resolve();
    process.once('SIGINT', stop);
    process.once('SIGTERM', stop);
    if (!withParent) return;
    process.stdin.once('end', stop).once('close', stop).once('error', stop);
    process.stdin.resume();
  });
}

export const judgeVerb: Verb = {
  positionals: '',
  build: (yargs) =>
    yargs
      .option('port', { type: 'number', default: 4877, describe: 'port to listen on; 0 takes a free one' })
      .option('host', { type: 'string', default: '127.0.0.1', describe: 'address to listen on' })
      .option('model', {
        type: 'string',
        array: true,
        nargs: 1,
        default: [],
        describe: `another model name to answer to beside ${JUDGE_MODEL}; may be repeated`,
      })
      .option('exit-with-parent', {
        type: 'boolean',
        default: false,
        describe: 'stop when standard input is closed, as it is when the parent process dies',
      })
      .option('json', { type: 'boolean', default: false, describe: 'print the address as one line of JSON' })
      .example('$0 judge --port 4877', 'then give http://127.0.0.1:4877/v1 as reward.endpoint'),
  run: async (args) => {
    const port = args['port'];
    if (typeof port !== 'number' || !Number.isInteger(port) || port < 0 || port > 65535) {
      throw new UsageError('--port has to be a whole number from 0 to 65535');
    }
    const models = texts(args, 'model');
    const judge = await startJudge({ port, host: text(args, 'host'), models });
    const stopped = untilStopped(flag(args, 'exit-with-parent'));
    if (flag(args, 'json')) {
      printLine(JSON.stringify({ url: judge.url, models: [...new Set([JUDGE_MODEL, ...models])] }));
    } else {
      printLine(`The tiny world's rule judge (no VLM) answers at ${judge.url} as ${JUDGE_MODEL}. Stop it with Ctrl-C.`);
    }
    await stopped;
    await judge.close();
    return 0;
  },
};
