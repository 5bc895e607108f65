/** `editrl run CONFIG`: trains what the config describes, after the runs that it starts from. */
import { loadConfig } from '../config/load.js';
import { Launcher } from '../launch/run.js';
import { RunPaths } from '../run/paths.js';
import { readRun } from '../run/report/read.js';
import { formatReport } from '../run/report/text.js';
import { encodeLine } from '../run/journal.js';
import { printJson, printLine } from './output.js';
import { configOptions, flag, text, texts, type Action } from './verb.js';

const INTERRUPTED = 130;

export const runVerb: Action = {
  positionals: '<config>',
  build: (yargs) =>
    configOptions(yargs)
      .option('json', {
        type: 'boolean',
        default: false,
        describe: 'print the final report as one JSON document, and nothing else',
      })
      .example(
        '$0 run configs/sft_s__rl_s.jsonnet --with configs/lib/tiny.libsonnet',
        'the laptop-size run of the README',
      )
      .example('$0 run … --set num_iterations=120', 'the same command again continues a run; this one makes it longer'),
  run: async (args) => {
    const config = await loadConfig({
      file: text(args, 'config'),
      overlays: texts(args, 'with'),
      sets: texts(args, 'set'),
    });
    const json = flag(args, 'json');
    const stop = stopOnSignals();
    const launcher = new Launcher({ terminal: json ? null : process.stdout, command: process.argv.slice(2), stop });
    try {
      const result = await launcher.run(config);
      if (result === 'interrupted') {
        if (!json) printLine('Stopped after a checkpoint; run the same command to continue.');
        return INTERRUPTED;
      }
      const { base_exp_dir, run_name } = config.settings;
      const report = readRun(new RunPaths(base_exp_dir, run_name));
      if (json) printJson(JSON.parse(encodeLine(report).line));
      else {
        if (result === 'already_finished') {
          printLine(
            `${run_name} is finished. To train on, raise num_iterations: --set num_iterations=${2 * config.settings.num_iterations}`,
          );
        }
        printLine(`\n${formatReport(report)}`);
      }
      return 0;
    } finally {
      await launcher.close();
    }
  },
};

/** The first Ctrl-C asks the run to checkpoint and stop; the second ends the process at once. */
function stopOnSignals(): AbortSignal {
  const controller = new AbortController();
  const onSignal = (): void => {
    if (controller.signal.aborted) process.exit(INTERRUPTED);
    process.stderr.write('stopping after this iteration (once more to stop at once)\n');
    controller.abort();
  };
  process.on('SIGINT', onSignal);
  process.on('SIGTERM', onSignal);
  return controller.signal;
}
