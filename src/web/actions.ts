/**
 * What the page may ask of a run. Each is a command of this program, called as a person would call it, in a process of its own that outlives the
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

/** Of a long output its end is shown. */
const SHOWN_LETTERS = 4_000;

interface Action {
  /** States in which it makes sense. */
  readonly states: readonly ShownState[];
  /** The arguments of the command; null where the record does not say them. */
  readonly command: (run: IndexedRun, record: RunRecord) => readonly string[] | null;
  /** What is said when it was done. */
  readonly done: string;
}

const GOING: readonly ShownState[] = ['queued', 'running', 'waiting'];
const ENDED: readonly ShownState[] = ['interrupted', 'failed', 'dead'];

const actions: Readonly<Record<ActionName, Action>> = {
  stop: { states: GOING, command: (run) => ['stop', ...named(run)], done: 'has stopped with a checkpoint' },
  stop_now: { states: GOING, command: (run) => ['stop', ...named(run), '--now'], done: 'was killed' },
  resume: { states: ENDED, command: (run) => ['resume', ...named(run)], done: 'has ended' },
  start_again: {
    states: [...ENDED, 'finished'],
    // A fork begins with another run's checkpoint, which its settings do not say.
    command: (run, { fork }) => (fork === undefined ? ['resume', ...named(run), '--fresh'] : null),
    done: 'has ended',
  },
};

function named({ paths }: IndexedRun): string[] {
  return [paths.runName, '--exp-dir', resolve(paths.baseExpDir)];
}

/** What may be asked of a run as it is. */
export function actionsOf(run: IndexedRun, record: RunRecord | null): WireAction[] {
  return (Object.keys(actions) as ActionName[]).flatMap((action) => {
    const args = record === null ? null : argumentsOf(action, run, record);
    return args === null ? [] : [{ action, command: ['editrl', ...args].map(quoted).join(' ') }];
  });
}

function argumentsOf(name: ActionName, run: IndexedRun, record: RunRecord): readonly string[] | null {
  const { states, command } = actions[name];
  return states.includes(run.status.state) ? command(run, record) : null;
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
  if (typeof name !== 'string' || !Object.hasOwn(actions, name)) {
    throw badRequest(
      `There is no action ${JSON.stringify(name ?? null)}; there are: ${Object.keys(actions).join(', ')}.`,
      'action',
    );
  }
  const action = name as ActionName;
  const args = record === null ? null : argumentsOf(action, run, record);
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

function endOf(path: string): string {
  return printable(readFileSync(path, 'utf8')).trimEnd().slice(-SHOWN_LETTERS);
}
