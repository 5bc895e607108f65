/** editrl judge: serves the tiny world's rule judge until it is told to stop, with biases on request; or examines any judge. */
import { biasHelp, readBiases } from '../../rewards/rule_judge/biases.js';
import { JUDGE_MODEL, startJudge } from '../../rewards/rule_judge/server.js';
import { judgeExam } from './judge_exam.js';
import { printLine } from '../shared/output.js';
import { onReasonToStop, servingOptions, tokenOf } from './serving.js';
import { flag, numberOption, text, texts, wholeNumber, type Verb } from '../shared/verb.js';

export const judgeVerb: Verb = {
  actions: { exam: judgeExam },
  positionals: '',
  build: (yargs) =>
    servingOptions(yargs)
      .option('port', { ...numberOption, default: 4877, describe: 'port to listen on; 0 takes a free one' })
      .option('host', { type: 'string', default: '127.0.0.1', describe: 'address to listen on' })
      .option('model', {
        type: 'string',
        array: true,
        nargs: 1,
        default: [],
        describe: `another model name to answer to beside ${JUDGE_MODEL}; may be repeated`,
      })
      .option('latency', { ...numberOption, default: 0, describe: 'answer no earlier than so many milliseconds' })
      .option('max-concurrency', {
        ...numberOption,
        describe: 'refuse more requests at once than this with status 429; GET /stats tells the most that there were',
      })
      .option('bias', {
        type: 'string',
        requiresArg: true,
        describe: 'be wrong about pictures: name=strength,… with the names below, strengths from 0 to 1',
      })
      .option('scores', {
        choices: ['rule', 'digest'],
        default: 'rule',
        describe: 'digest: meaningless scores drawn from the bytes that are sent, for measuring clients',
      })
      .example('$0 judge exam --help', 'examines any judge on answers of known quality')
      .example('$0 judge --port 4877', 'then give http://127.0.0.1:4877/v1 as reward.endpoint')
      .example('$0 judge --bias copies=0.5', 'what it says of a copy of the source is half way to full marks')
      .epilogue(`Names for --bias:\n${biasHelp()}`),
  run: async (args) => {
    const port = wholeNumber(args, 'port', 0, 65535) ?? 0;
    const models = texts(args, 'model');
    const bias = text(args, 'bias');
    const biases = bias === '' ? null : readBiases(bias);
    const maxConcurrency = wholeNumber(args, 'max-concurrency', 1, Infinity);
    const judge = await startJudge({
      port,
      host: text(args, 'host'),
      token: tokenOf(args),
      models,
      scores: args['scores'] === 'digest' ? 'digest' : 'rule',
      latencyMs: wholeNumber(args, 'latency', 0, Infinity) ?? 0,
      ...(maxConcurrency === null ? {} : { maxConcurrency }),
      ...(biases === null ? {} : { biases }),
    });
    const stopped = new Promise<void>((resolve) => onReasonToStop(args, () => resolve()));
    if (flag(args, 'json')) {
      printLine(JSON.stringify({ url: judge.url, models: [...new Set([JUDGE_MODEL, ...models])] }));
    } else {
      printLine(`The tiny world's rule judge (no VLM) answers at ${judge.url} as ${JUDGE_MODEL}. Stop it with Ctrl-C.`);
      if (biases !== null) printLine(`It is biased: ${bias}.`);
    }
    await stopped;
    await judge.close();
    return 0;
  },
};
