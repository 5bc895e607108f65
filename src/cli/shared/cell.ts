/** `editrl cell FILE INDEX`: runs one task of a Slurm job array. Help does not list it, because only `sweep` and `run` submit it. */
import { setTimeout as delay } from 'node:timers/promises';
import { ChainProgress } from '../../launch/live/watch.js';
import { noView, openView } from '../../launch/live/view.js';
import { Launcher } from '../../launch/launcher.js';
import { readCell, slurmPlacement, waitForStaleLock } from '../../launch/slurm/cell.js';
import { realLockWorld } from '../../run/claim/lock.js';
import { RunPaths } from '../../run/paths.js';
import { printLine } from './output.js';
import { INTERRUPTED } from './signals.js';
import { switchOption, text, type Action } from './verb.js';

export const cellVerb: Action = {
  positionals: '<file> <index>',
  build: (yargs) =>
    yargs
      .positional('file', { type: 'string', describe: 'File of the submitted cells' })
      .positional('index', { type: 'string', describe: 'Line, counted from 0' })
      .option('json', switchOption('Print only the result, as JSON'))
      .example('$0 cell runs/.slurm/20260101T120000_77/cells_0.jsonl 3', 'Run task 3 of that array manually'),
  run: async (args) => {
    const config = readCell(text(args, 'file'), text(args, 'index'));
    const stop = new AbortController();
    for (const signal of ['SIGINT', 'SIGTERM'] as const) process.on(signal, () => stop.abort());
    const json = args['json'] === true;
    const view = json ? noView : openView(process.stdout);
    const launcher = new Launcher({
      view,
      command: process.argv.slice(2),
      stop: stop.signal,
    });
    try {
      const { run_name } = config.settings;
      await waitForStaleLock(RunPaths.of(config.settings), realLockWorld(), {
        sleep: (seconds) => delay(seconds * 1000),
        say: printLine,
      });
      const steps = new ChainProgress([config]);
      view.begin(steps);
      steps.begin(config);
      const placement = slurmPlacement(config.settings.launch, process.env);
      const result = await launcher.runWithoutParents(config, placement).finally(() => view.end());
      printLine(json ? JSON.stringify({ run_name, result: result.kind }) : `${run_name}: ${result.kind}`);
      return result.kind === 'interrupted' ? INTERRUPTED : 0;
    } finally {
      await launcher.close();
    }
  },
};
