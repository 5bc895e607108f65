/**
 * Actions that the page can request for a run or a sweep. Each is a command of this program, called as a person would call it, in a process of its
 * own that outlives the dashboard; if it refuses, its message is shown.
 */
import { spawn } from 'node:child_process';
import { closeSync, mkdtempSync, openSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { printable } from '../core/errors.js';
import { shellQuote } from '../core/process.js';
import { badRequest, Refusal } from '../core/http/refusal.js';
import type { RunRecord } from '../run/record.js';
import { namedPrograms } from '../run/recorded_config.js';
import type { ShownState } from '../run/status.js';
import type { IndexedRun } from './runs_index.js';
import type { ActionName, WireAction } from './wire.js';

/** How many letters of a long output are shown, from its end. */
const SHOWN_LETTERS = 4_000;

interface Action {
  /** States in which the action makes sense. */
  readonly states: readonly ShownState[];
  /** The arguments of the command; null if the record does not have them, as for a run that waits in a queue. */
  readonly command: (run: IndexedRun, record: RunRecord | null) => readonly string[] | null;
  /** Message when it is done. */
  readonly done: string;
}

const ACTIVE_STATES: readonly ShownState[] = ['queued', 'running', 'waiting'];
const RESUMABLE_STATES: readonly ShownState[] = ['interrupted', 'failed', 'dead'];

const actions: Readonly<Record<ActionName, Action>> = {
  stop: {
    states: ACTIVE_STATES,
    command: (run) => ['stop', ...nameArguments(run)],
    done: 'has stopped with a checkpoint',
  },
  stop_now: { states: ACTIVE_STATES, command: (run) => ['stop', ...nameArguments(run), '--now'], done: 'was killed' },
  resume: {
    states: RESUMABLE_STATES,
    command: (run, record) => (record === null ? null : ['resume', ...nameArguments(run)]),
    done: 'has ended',
  },
  start_again: {
    states: [...RESUMABLE_STATES, 'finished'],
    // A fork begins with another run's checkpoint, which is not in its settings.
    command: (run, record) =>
      record === null || record.fork !== undefined ? null : ['resume', ...nameArguments(run), '--fresh'],
    done: 'has ended',
  },
};

function nameArguments({ paths }: IndexedRun): string[] {
  return [paths.runName, '--exp-dir', resolve(paths.baseExpDir)];
}

/** The actions that a run's state allows. */
export function actionsOf(run: IndexedRun, record: RunRecord | null): WireAction[] {
  return (Object.keys(actions) as ActionName[]).flatMap((action) => {
    const args = argumentsOf(action, run, record);
    const starts = action === 'resume' || action === 'start_again' ? namedPrograms(record?.settings) : [];
    return args === null ? [] : [wireAction(action, args, starts)];
  });
}

/** @param starts the programs that the command starts, which are shown with it. */
function wireAction(action: ActionName, args: readonly string[], starts: readonly string[] = []): WireAction {
  const command = ['editrl', ...args].map(shellQuote).join(' ');
  return { action, command: starts.length === 0 ? command : `${command} # ${printable(starts.join(', '))}` };
}

function argumentsOf(name: ActionName, run: IndexedRun, record: RunRecord | null): readonly string[] | null {
  const { states, command } = actions[name];
  return states.includes(run.status.state) ? command(run, record) : null;
}

/** An experiment with what its scheduler's actions need. */
export interface Sweep {
  readonly name: string;
  readonly folder: string;
  /** Whether a scheduler is working on it. */
  readonly swept: boolean;
}

/** Each action for a sweep: `editrl stop` ends it together with its runs. */
const sweepActions: Readonly<Partial<Record<ActionName, { readonly more: readonly string[]; readonly done: string }>>> =
  {
    stop: { more: [], done: 'has stopped, with its runs' },
    stop_now: { more: ['--now'], done: 'was killed, with its runs' },
  };

/** The actions for an experiment's scheduler; none if no scheduler is working on it. */
export function sweepActionsOf({ name, folder, swept }: Sweep): WireAction[] {
  if (!swept) return [];
  return (Object.keys(sweepActions) as ActionName[]).map((action) =>
    wireAction(action, sweepArguments(action, name, folder)),
  );
}

function sweepArguments(action: ActionName, name: string, folder: string): string[] {
  return ['stop', name, '--exp-dir', resolve(folder), ...(sweepActions[action]?.more ?? [])];
}

/** Like `performAction`, for an experiment's scheduler. Raises Refusal for an action that is not allowed. */
export function actOnSweep(name: unknown, sweep: Sweep, program: readonly string[], onNotice: OnNotice): void {
  const action = actionNamed(name, sweepActions);
  if (!sweep.swept) throw new Refusal('bad_request', `${sweep.name} is not being swept.`);
  const done = `The sweep ${sweep.name} ${sweepActions[action]?.done ?? ''}`;
  startCommand(program, sweepArguments(action, sweep.name, sweep.folder), done, onNotice);
}

/** Checks that a table has an action with this name. Raises Refusal for any other. */
function actionNamed(name: unknown, among: Readonly<Partial<Record<ActionName, unknown>>>): ActionName {
  if (typeof name === 'string' && Object.hasOwn(among, name)) return name as ActionName;
  throw badRequest(
    `There is no action ${JSON.stringify(name ?? null)}; there are: ${Object.keys(among).join(', ')}.`,
    'action',
  );
}

/** Called with the outcome of a requested action. */
export type OnNotice = (level: 'info' | 'error', text: string) => void;

/**
 * Starts the command of an action; reports its outcome to `onNotice`. Raises Refusal for an unknown action, or one that the run's state does not
 * allow.
 *
 * @param program starts this program's command line.
 */
export function performAction(
  name: unknown,
  run: IndexedRun,
  record: RunRecord | null,
  program: readonly string[],
  onNotice: OnNotice,
): void {
  const action = actionNamed(name, actions);
  const args = argumentsOf(action, run, record);
  if (args === null) {
    const { states } = actions[action];
    throw new Refusal(
      'bad_request',
      states.includes(run.status.state)
        ? `${run.paths.runName} cannot ${actionTitle(action)}: its record cannot be read, or it is a fork of another run.`
        : `${run.paths.runName} is ${run.status.state}; ${actionTitle(action)} is for runs that are ${states.join(', ')}.`,
    );
  }
  startCommand(program, args, `${run.paths.runName} ${actions[action].done}`, onNotice);
}

function actionTitle(action: ActionName): string {
  return action.replaceAll('_', ' ');
}

/** Calls the command line with arguments, in a process that outlives this one. */
export function startCommand(
  program: readonly string[],
  args: readonly string[],
  done: string,
  onNotice: OnNotice,
): void {
  const folder = mkdtempSync(join(tmpdir(), 'editrl-dashboard-'));
  const output = join(folder, 'output');
  const file = openSync(output, 'w', 0o600);
  const [command, ...before] = program;
  const child = spawn(command, [...before, ...args], {
    detached: true,
    stdio: ['ignore', file, file],
    env: { ...process.env, NO_COLOR: '1' },
  });
  closeSync(file);
  child.unref();
  const spoken = ['editrl', ...args].map(shellQuote).join(' ');
  const end = (level: 'info' | 'error', text: string): void => {
    rmSync(folder, { recursive: true, force: true });
    onNotice(level, text);
  };
  child.once('error', (error) => end('error', `${spoken}\n${error.message}`));
  child.once('exit', (code, signal) => {
    // 130: it was interrupted, for example by a requested stop.
    if (code === 0 || code === 130) end('info', done);
    else end('error', `${spoken}\nended with ${signal ?? `exit code ${code}`}:\n${outputTail(output)}`);
  });
}

/** The end of a command's output; or that the file is gone, as after somebody emptied the temporary folder. */
function outputTail(path: string): string {
  try {
    return printable(readFileSync(path, 'utf8')).trimEnd().slice(-SHOWN_LETTERS);
  } catch (error) {
    return `(what it printed cannot be read: ${(error as Error).message})`;
  }
}
