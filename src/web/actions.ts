/**
 * Actions that the page can request for a run or a sweep. Each action runs a command of this program in a separate process that outlives the
 * dashboard. The page shows the message of a failed command.
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

/** Maximum number of characters of a command's output to show, from its end. */
const SHOWN_LETTERS = 4_000;

interface Action {
  /** States that allow the action. */
  readonly states: readonly ShownState[];
  /** The arguments of the command. Null if the record lacks them, for example while a run waits in a queue. */
  readonly command: (run: IndexedRun, record: RunRecord | null) => readonly string[] | null;
  /** Message after success. */
  readonly done: string;
}

const ACTIVE_STATES: readonly ShownState[] = ['queued', 'running', 'waiting'];
const RESUMABLE_STATES: readonly ShownState[] = ['interrupted', 'failed', 'dead'];

const actions: Readonly<Record<ActionName, Action>> = {
  stop: {
    states: ACTIVE_STATES,
    command: (run) => ['stop', ...nameArguments(run)],
    done: 'stopped with a checkpoint',
  },
  stop_now: { states: ACTIVE_STATES, command: (run) => ['stop', ...nameArguments(run), '--now'], done: 'was killed' },
  resume: {
    states: RESUMABLE_STATES,
    command: (run, record) => (record === null ? null : ['resume', ...nameArguments(run)]),
    done: 'has ended',
  },
  start_again: {
    states: [...RESUMABLE_STATES, 'finished'],
    // A fork starts from another run's checkpoint, which its settings do not contain.
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

/** @param starts the programs that the command starts. The page shows them too. */
function wireAction(action: ActionName, args: readonly string[], starts: readonly string[] = []): WireAction {
  const command = ['editrl', ...args].map(shellQuote).join(' ');
  return { action, command: starts.length === 0 ? command : `${command} # ${printable(starts.join(', '))}` };
}

function argumentsOf(name: ActionName, run: IndexedRun, record: RunRecord | null): readonly string[] | null {
  const { states, command } = actions[name];
  return states.includes(run.status.state) ? command(run, record) : null;
}

/** An experiment for its scheduler's actions. */
export interface Sweep {
  readonly name: string;
  readonly folder: string;
  /** Whether a scheduler is running it. */
  readonly swept: boolean;
}

/** The actions for a sweep. `editrl stop` stops the sweep together with its runs. */
const sweepActions: Readonly<Partial<Record<ActionName, { readonly more: readonly string[]; readonly done: string }>>> =
  {
    stop: { more: [], done: 'stopped, including its runs' },
    stop_now: { more: ['--now'], done: 'was killed, including its runs' },
  };

/** The actions for an experiment's scheduler. Empty if no scheduler is running it. */
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
  if (!sweep.swept) throw new Refusal('bad_request', `No sweep of ${sweep.name} is running.`);
  const done = `The sweep ${sweep.name} ${sweepActions[action]?.done ?? ''}`;
  startCommand(program, sweepArguments(action, sweep.name, sweep.folder), done, onNotice);
}

/** Checks that a table has an action with this name. Raises Refusal for any other. */
function actionNamed(name: unknown, among: Readonly<Partial<Record<ActionName, unknown>>>): ActionName {
  if (typeof name === 'string' && Object.hasOwn(among, name)) return name as ActionName;
  throw badRequest(
    `Unknown action ${JSON.stringify(name ?? null)}. Allowed: ${Object.keys(among).join(', ')}.`,
    'action',
  );
}

/** Called with the result of a requested action. */
export type OnNotice = (level: 'info' | 'error', text: string) => void;

/**
 * Starts the command of an action and reports its result to `onNotice`. Raises Refusal for an unknown action, or one that the run's state does not
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
        ? `Cannot ${actionTitle(action)} ${run.paths.runName}: its record is unreadable, or it is a fork of another run.`
        : `Cannot ${actionTitle(action)} ${run.paths.runName}: it is ${run.status.state}. Allowed states: ${states.join(', ')}.`,
    );
  }
  startCommand(program, args, `${run.paths.runName} ${actions[action].done}`, onNotice);
}

function actionTitle(action: ActionName): string {
  return action.replaceAll('_', ' ');
}

/** Calls the command line in a process that outlives this one. */
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
    // 130: interrupted, for example by a requested stop.
    if (code === 0 || code === 130) end('info', done);
    else end('error', `${spoken}\nended with ${signal ?? `exit code ${code}`}:\n${outputTail(output)}`);
  });
}

/** The end of a command's output, or a note that the output file is gone. */
function outputTail(path: string): string {
  try {
    return printable(readFileSync(path, 'utf8')).trimEnd().slice(-SHOWN_LETTERS);
  } catch (error) {
    return `(cannot read its output: ${(error as Error).message})`;
  }
}
