/** `editrl serve judge`: serves the tiny world's rule judge, with biases on request. */
import { biasHelp, readBiases } from '../../rewards/rule_judge/biases.js';
import { JUDGE_MODEL, startJudge } from '../../rewards/rule_judge/server.js';
import { printLine } from '../shared/output.js';
import { onReasonToStop, servingOptions, tokenOf } from './serving.js';
import { flag, listOption, numberOption, text, textOption, texts, wholeNumber, type Action } from '../shared/verb.js';

export const judgeVerb: Action = {
  positionals: '',
  build: (yargs) =>
    servingOptions(yargs)
      .option('port', { ...numberOption('Port to listen on (0: a free port)'), default: 4877 })
      .option('host', { type: 'string', default: '127.0.0.1', describe: 'Address to listen on' })
      .option('model', listOption(`Another model name to accept in addition to ${JUDGE_MODEL} (repeatable)`))
      .option('latency', { ...numberOption('Delay of each reply in milliseconds'), default: 0 })
      .option('bias', textOption('Biases as NAME=STRENGTH,… with strengths from 0 to 1'))
      .example('$0 serve judge', 'Then set reward.endpoint to http://127.0.0.1:4877/v1')
      .example('$0 serve judge --bias copies=0.5', 'Give copies of the source half the maximum score')
      .epilogue(`Names for --bias:\n${biasHelp()}`),
  run: async (args) => {
    const port = wholeNumber(args, 'port', 0, 65535) ?? 0;
    const models = texts(args, 'model');
    const bias = text(args, 'bias');
    const biases = bias === '' ? null : readBiases(bias);
    const judge = await startJudge({
      port,
      host: text(args, 'host'),
      token: tokenOf(args),
      models,
      latencyMs: wholeNumber(args, 'latency', 0, Infinity) ?? 0,
      ...(biases === null ? {} : { biases }),
    });
    const stopped = new Promise<void>((resolve) => onReasonToStop(args, () => resolve()));
    if (flag(args, 'json')) {
      printLine(JSON.stringify({ url: judge.url, models: [...new Set([JUDGE_MODEL, ...models])] }));
    } else {
      printLine(`Rule judge of the tiny world (not a VLM): ${judge.url}, model ${JUDGE_MODEL}. Press Ctrl-C to stop.`);
      if (biases !== null) printLine(`Biases: ${bias}`);
    }
    await stopped;
    await judge.close();
    return 0;
  },
};
