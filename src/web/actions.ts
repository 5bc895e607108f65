/**
 * What the page may ask of a run or of a sweep. Each is a command of this program, called as a person would call it, in a process of its own that outlives the
 * dashboard; what it says when it refuses is shown.
 */
import { spawn } from 'node:child_process';
import { closeSync, mkdtempSync, openSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { printable } from '../core/errors.js';
import { badRequest, Refusal } from '../http/refusal.js';
import type { RunRecord } from '../run/record.js';
import type { ShownState } from '../run/status.js';
import type { IndexedRun } from './runs_index.js';
import type { ActionName, WireAction } from './wire.js';

/** How many letters of a long output are shown, from its end. */
const SHOWN_LETTERS = 4_000;

interface Action {
  /** States in which it makes sense. */
  readonly states: readonly ShownState[];
  /** The arguments of the command; null where the record, which a run that waits in a queue has not yet, does not say them. */
  readonly command: (run: IndexedRun, record: RunRecord | null) => readonly string[] | null;
  /** What is said when it was done. */
  readonly done: string;
}

const GOING: readonly ShownState[] = ['queued', 'running', 'waiting'];
const ENDED: readonly ShownState[] = ['interrupted', 'failed', 'dead'];

const actions: Readonly<Record<ActionName, Action>> = {
  stop: { states: GOING, command: (run) => ['stop', ...named(run)], done: 'has stopped with a checkpoint' },
  stop_now: { states: GOING, command: (run) => ['stop', ...named(run), '--now'], done: 'was killed' },
  resume: {
    states: ENDED,
    command: (run, record) => (record === null ? null : ['resume', ...named(run)]),
    done: 'has ended',
  },
  start_again: {
    states: [...ENDED, 'finished'],
    // A fork begins with another run's checkpoint, which its settings do not say.
    command: (run, record) =>
      record === null || record.fork !== undefined ? null : ['resume', ...named(run), '--fresh'],
    done: 'has ended',
  },
};

function named({ paths }: IndexedRun): string[] {
  return [paths.runName, '--exp-dir', resolve(paths.baseExpDir)];
}

/** What may be asked of a run as it is. */
export function actionsOf(run: IndexedRun, record: RunRecord | null): WireAction[] {
  return (Object.keys(actions) as ActionName[]).flatMap((action) => {
    const args = argumentsOf(action, run, record);
    return args === null ? [] : [wireAction(action, args)];
  });
}

function wireAction(action: ActionName, args: readonly string[]): WireAction {
  return { action, command: ['editrl', ...args].map(quoted).join(' ') };
}

function argumentsOf(name: ActionName, run: IndexedRun, record: RunRecord | null): readonly string[] | null {
  const { states, command } = actions[name];
  return states.includes(run.status.state) ? command(run, record) : null;
}

/** An experiment, as far as its scheduler is asked for something. */
export interface Sweep {
  readonly name: string;
  readonly folder: string;
  /** Whether a scheduler is at work on it. */
  readonly swept: boolean;
}

/** What each action is for a sweep: `editrl stop` ends it with its runs. */
const sweepActions: Readonly<Partial<Record<ActionName, { readonly more: readonly string[]; readonly done: string }>>> =
  {
    stop: { more: [], done: 'has stopped, with its runs' },
    stop_now: { more: ['--now'], done: 'was killed, with its runs' },
  };

/** What may be asked of the scheduler of an experiment; nothing where there is none at work. */
export function sweepActionsOf({ name, folder, swept }: Sweep): WireAction[] {
  if (!swept) return [];
  return (Object.keys(sweepActions) as ActionName[]).map((action) =>
    wireAction(action, sweepArguments(action, name, folder)),
  );
}

function sweepArguments(action: ActionName, name: string, folder: string): string[] {
  return ['stop', name, '--exp-dir', resolve(folder), ...(sweepActions[action]?.more ?? [])];
}

/** As `act`, for the scheduler of an experiment. Raises Refusal for what may not be asked of it. */
export function actOnSweep(name: unknown, sweep: Sweep, program: readonly string[], onNotice: OnNotice): void {
  const action = actionNamed(name, sweepActions);
  if (!sweep.swept) throw new Refusal('bad_request', `${sweep.name} is not being swept.`);
  const done = `The sweep ${sweep.name} ${sweepActions[action]?.done ?? ''}`;
  call(program, sweepArguments(action, sweep.name, sweep.folder), done, onNotice);
}

/** The name of an action that a table has. Raises Refusal for any other. */
function actionNamed(name: unknown, among: Readonly<Partial<Record<ActionName, unknown>>>): ActionName {
  if (typeof name === 'string' && Object.hasOwn(among, name)) return name as ActionName;
  throw badRequest(
    `There is no action ${JSON.stringify(name ?? null)}; there are: ${Object.keys(among).join(', ')}.`,
    'action',
  );
}

/** As a shell takes it. */
function quoted(word: string): string {
  return /^[\w./:=@%+-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
}

/** Told how what was asked for went on. */
export type OnNotice = (level: 'info' | 'error', text: string) => void;

/**
 * Starts the command of an action; what becomes of it is told to `onNotice`. Raises Refusal for an action that there is not, or that the run's state
 * does not allow.
 *
 * @param program what starts this program's command line.
 */
export function act(
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
        ? `${run.paths.runName} cannot ${spelled(action)}: its record cannot be read, or it is a fork of another run.`
        : `${run.paths.runName} is ${run.status.state}; ${spelled(action)} is for runs that are ${states.join(', ')}.`,
    );
  }
  call(program, args, `${run.paths.runName} ${actions[action].done}`, onNotice);
}

function spelled(action: ActionName): string {
  return action.replaceAll('_', ' ');
}

/** Calls the command line with arguments, in a process that does not end with this one. */
export function call(program: readonly string[], args: readonly string[], done: string, onNotice: OnNotice): void {
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
  const spoken = ['editrl', ...args].map(quoted).join(' ');
  const end = (level: 'info' | 'error', text: string): void => {
    rmSync(folder, { recursive: true, force: true });
    onNotice(level, text);
  };
  child.once('error', (error) => end('error', `${spoken}\n${error.message}`));
  child.once('exit', (code, signal) => {
    // 130: it was interrupted, as by a stop that somebody asked for.
    if (code === 0 || code === 130) end('info', done);
    else end('error', `${spoken}\nended with ${signal ?? `exit code ${code}`}:\n${endOf(output)}`);
  });
}

/** What a command printed at last; of a file that is gone, as where somebody empties the folder of temporary files, that. */
function endOf(path: string): string {
  try {
    return printable(readFileSync(path, 'utf8')).trimEnd().slice(-SHOWN_LETTERS);
  } catch (error) {
    return `(what it printed cannot be read: ${(error as Error).message})`;
  }
}
