/** `editrl stop RUN…`: requests a checkpoint and a stop from runs or sweeps, and waits for it. */
import { EditrlError, UsageError } from '../core/errors.js';
import { describeJob, type SlurmJob } from '../launch/slurm/queue.js';
import { stopOnSlurm, submittedRun } from '../launch/slurm/status.js';
import { stopRun, type StopOptions, type StopResult } from '../launch/ownership/stop.js';
import { liveSweeps, type LiveSweep } from '../launch/sweep/lock.js';
import { findRun, listRuns, searchFolders } from '../run/find.js';
import { liveLock, mayBeHeld } from '../run/status.js';
import type { RunPaths } from '../run/paths.js';
import { printError, printJson, printLine } from './shared/output.js';
import { INTERRUPTED } from './shared/signals.js';
import { expDirOption, flag, jsonOption, switchOption, text, texts, type Action } from './shared/verb.js';

export const stopVerb: Action = {
  positionals: '[runs..]',
  build: (yargs) =>
    yargs
      .positional('runs', {
        type: 'string',
        array: true,
        describe: 'run_names, folders of runs, or running sweeps',
      })
      .options({
        all: switchOption('Stop every sweep and every running run'),
        now: switchOption('Kill immediately and lose everything since the last checkpoint'),
        'exp-dir': expDirOption,
        json: jsonOption,
      })
      .example('$0 stop sft_s__rl_s', 'Finish the iteration, save a checkpoint, and stop')
      .example('$0 stop --all --now', 'Kill every run in these directories'),
  run: async (args) => {
    const { runs, sweeps } = chosen(texts(args, 'runs'), flag(args, 'all'), text(args, 'exp-dir'));
    const [json, now] = [flag(args, 'json'), flag(args, 'now')];
    const stop = new AbortController();
    const onSignal = (): void => stop.abort();
    process.once('SIGINT', onSignal);
    const say = json ? () => undefined : printLine;
    try {
      const options = { now, onProgress: say, stop: stop.signal };
      // Stops sweeps before runs, because a sweep would start the next run.
      const swept = await Promise.all(sweeps.map((sweep) => stopSweep(sweep, options, say)));
      // Queries Slurm only about runs that may be its own, so runs of this machine can be stopped even if Slurm does not respond.
      const atHand = runs.filter(isAtHand);
      const others = runs.filter((paths) => !atHand.includes(paths));
      const slurm = stoppedBySlurm(others, now, say);
      const results = await Promise.all(
        runs.map(async (paths) => {
          try {
            // A Slurm job saves a checkpoint and ends on its own, on any machine.
            const isOnSlurm = !atHand.includes(paths) && (await slurm).has(paths.runName);
            if (isOnSlurm) return { run_name: paths.runName, outcome: 'told_slurm' as const };
            const result = await stopRun(paths, options);
            say(sentence(result));
            return result;
          } catch (error) {
            // Continues with the other runs if one cannot be stopped from here.
            if (!(error instanceof EditrlError)) throw error;
            printError(`editrl: ${paths.runName}: ${error.toText()}`);
            return { run_name: paths.runName, outcome: 'refused' as const, reason: error.toText() };
          }
        }),
      );
      if (json) printJson({ sweeps: swept, runs: results });
      else if (results.length + swept.length === 0) printLine('No run is running.');
      if ([...swept, ...results].some(({ outcome }) => outcome === 'still_stopping')) return INTERRUPTED;
      return [...swept, ...results].some(({ outcome }) => outcome === 'refused') ? 1 : 0;
    } finally {
      process.off('SIGINT', onSignal);
    }
  },
};

interface SweepResult {
  readonly experiment: string;
  readonly outcome: StopResult['outcome'] | 'refused';
  readonly reason?: string;
}

/** Stops a sweep's scheduler, which stops its runs, with checkpoints unless `--now` is set. */
async function stopSweep(
  { experiment, paths }: LiveSweep,
  options: StopOptions,
  say: (line: string) => void,
): Promise<SweepResult> {
  const name = `the sweep ${experiment}`;
  const sentences: Readonly<Record<StopResult['outcome'], string>> = {
    stopped: `${name}: stopped with its runs. Repeat the \`editrl sweep\` command to continue.`,
    killed: `${name}: killed with its runs. Repeat the \`editrl sweep\` command to continue from their last checkpoints.`,
    not_running: `${name} has already ended`,
    still_stopping: `${name} is still stopping`,
  };
  try {
    say(`stopping ${name} and its runs`);
    const { outcome } = await stopRun(paths, {
      ...options,
      onProgress: () => say(`${name} is still stopping its runs`),
    });
    say(sentences[outcome]);
    return { experiment, outcome };
  } catch (error) {
    if (!(error instanceof EditrlError)) throw error;
    printError(`editrl: ${name}: ${error.toText()}`);
    return { experiment, outcome: 'refused', reason: error.toText() };
  }
}

async function stoppedBySlurm(
  runs: readonly RunPaths[],
  now: boolean,
  say: (line: string) => void,
): Promise<ReadonlyMap<string, SlurmJob>> {
  if (runs.length === 0) return new Map();
  const stoppedOnSlurm = await stopOnSlurm(runs, now);
  for (const [name, job] of stoppedOnSlurm) say(`${name}: stopping ${describeJob(job)}`);
  return stoppedOnSlurm;
}

/** Whether a process outside of Slurm owns the run, or its lock is unreadable, which stopping it reports. */
function isAtHand(paths: RunPaths): boolean {
  try {
    const held = liveLock(paths);
    return held !== null && held.slurm_job_id === null;
  } catch (error) {
    if (error instanceof EditrlError) return true;
    throw error;
  }
}

interface Chosen {
  readonly runs: readonly RunPaths[];
  readonly sweeps: readonly LiveSweep[];
}

function chosen(names: readonly string[], all: boolean, expDir: string): Chosen {
  const folders = searchFolders(expDir);
  if (names.length > 0 && all) throw new UsageError('found run names and --all; allowed: one of them');
  if (all) {
    return { sweeps: liveSweeps(folders), runs: listRuns(folders).filter((paths) => mayBeHeld(paths)) };
  }
  if (names.length === 0) {
    throw new UsageError('missing run', {
      next: '`editrl ls` lists runs. --all stops every run.',
    });
  }
  const sweeps = liveSweeps(folders).filter(({ experiment }) => names.includes(experiment));
  const swept = sweeps.map(({ experiment }) => experiment);
  const runs = names.filter((name) => !swept.includes(name));
  return { sweeps, runs: runs.map((name) => submittedRun(name, folders) ?? findRun(name, expDir)) };
}

function sentence({ run_name, outcome, status }: StopResult): string {
  const at = `at iteration ${status.iteration}/${status.num_iterations}`;
  const resume = status.state === 'finished' ? '' : `; continue with \`editrl resume ${run_name}\``;
  const sentences: Readonly<Record<StopResult['outcome'], string>> = {
    stopped: `${run_name}: ${status.state} ${at}${resume}`,
    killed: `${run_name}: killed ${at}${resume} from its last checkpoint`,
    not_running: `${run_name} is not running: ${status.state} ${at}`,
    still_stopping: `${run_name} is still stopping`,
  };
  return sentences[outcome];
}
