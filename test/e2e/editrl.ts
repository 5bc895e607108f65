/** Calls the built command line as a person would, in a place of its own. */
import { spawn, type ChildProcess } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import type { RunState } from '../../src/run/state.js';

export const ROOT = resolve(import.meta.dirname, '../..');
const COMMAND = join(ROOT, 'dist/src/cli/main.js');

/** The overlays of every run here. */
export const SMALL = ['--with', 'configs/lib/tiny.libsonnet', '--with', 'test/e2e/small.libsonnet'];
/** The names that the configs give. */
export const START = 'sft_s';
export const RL = 'sft_s__rl_s';

export function configFile(name: string): string {
  return `configs/${name}.jsonnet`;
}

export interface Ended {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
  readonly out: string;
  readonly err: string;
}

/** A command that is under way. */
export interface Live {
  readonly pid: number;
  readonly ended: Promise<Ended>;
  readonly isAlive: () => boolean;
  /** What it has printed so far. */
  readonly out: () => string;
  kill(signal: NodeJS.Signals): void;
  /** Closes what it prints to, as a reader that ends does. */
  stopReading(): void;
}

/** Folders for runs and data, and the commands that work in them. */
export class Place {
  private constructor(
    readonly dir: string,
    private readonly command = COMMAND,
  ) {}

  /** An empty place, or one that already has a template's runs and data; another built program's where `command` names one. */
  static make(template: string | null = null, command = COMMAND): Place {
    const place = new Place(mkdtempSync(join(tmpdir(), 'editrl-e2e-')), command);
    if (template !== null) cpSync(template, place.dir, { recursive: true, verbatimSymlinks: true });
    mkdirSync(place.runs, { recursive: true });
    return place;
  }

  /** An existing folder. */
  static at(dir: string): Place {
    return new Place(dir);
  }

  get runs(): string {
    return join(this.dir, 'runs');
  }
  get data(): string {
    return join(this.dir, 'data');
  }
  run(name: string): string {
    return join(this.runs, name);
  }

  start(args: readonly string[], env: NodeJS.ProcessEnv = {}): Live {
    const child = spawn(process.execPath, [this.command, ...args], {
      cwd: ROOT,
      env: { ...process.env, APP__BASE_EXP_DIR: this.runs, APP__DATA_DIR: this.data, ...env },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    return watch(child);
  }

  call(args: readonly string[], env: NodeJS.ProcessEnv = {}): Promise<Ended> {
    return this.start(args, env).ended;
  }

  /** `editrl run` of a config of the family at the small size. */
  train(name: string, ...more: readonly string[]): Promise<Ended> {
    return this.startTraining(name, ...more).ended;
  }

  startTraining(name: string, ...more: readonly string[]): Live {
    return this.start(['run', configFile(name), ...SMALL, ...more]);
  }

  /** Null until the run has written one. */
  state(name: string): RunState | null {
    const path = join(this.run(name), 'state.json');
    return existsSync(path) ? (JSON.parse(readFileSync(path, 'utf8')) as RunState) : null;
  }

  /** How often a run was started or resumed. */
  attempts(name: string): number {
    const path = join(this.run(name), 'run.json');
    if (!existsSync(path)) return 0;
    return (JSON.parse(readFileSync(path, 'utf8')) as { attempts: readonly unknown[] }).attempts.length;
  }

  /** The whole lines of metrics.jsonl; a run that is killed can leave a torn one. */
  metrics(name: string): ReadonlyArray<Readonly<Record<string, unknown>> & { readonly iteration: number }> {
    const path = join(this.run(name), 'metrics.jsonl');
    if (!existsSync(path)) return [];
    const lines = readFileSync(path, 'utf8').split('\n').slice(0, -1);
    return lines.map((line) => JSON.parse(line) as { iteration: number });
  }

  /** The bytes of a file of the checkpoint of an iteration. */
  checkpointFile(name: string, iteration: number, file: string): Buffer {
    return readFileSync(join(this.run(name), 'checkpoints', String(iteration).padStart(6, '0'), file));
  }

  log(name: string): string {
    return readFileSync(join(this.run(name), 'logs/console.log'), 'utf8');
  }

  remove(): void {
    rmSync(this.dir, { recursive: true, force: true });
  }
}

function watch(child: ChildProcess): Live {
  const text = { out: '', err: '' };
  child.stdout?.setEncoding('utf8').on('data', (chunk: string) => (text.out += chunk));
  child.stderr?.setEncoding('utf8').on('data', (chunk: string) => (text.err += chunk));
  const ended = new Promise<Ended>((done, fail) => {
    child.once('error', fail);
    child.once('close', (code, signal) => done({ code, signal, ...text }));
  });
  return {
    pid: child.pid ?? -1,
    ended,
    out: () => text.out,
    isAlive: () => child.exitCode === null && child.signalCode === null,
    kill: (signal) => void child.kill(signal),
    stopReading: () => {
      child.stdout?.destroy();
      child.stderr?.destroy();
    },
  };
}

/** Waits until something holds, for a limited time, so that a test fails with a name instead of hanging. */
export async function until(what: string, holds: () => boolean, withinMs = 60_000): Promise<void> {
  const deadline = Date.now() + withinMs;
  while (!holds()) {
    if (Date.now() > deadline) throw new Error(`waited ${withinMs / 1000} s in vain until ${what}`);
    await sleep(5);
  }
}

export function sleep(milliseconds: number): Promise<void> {
  return new Promise((done) => setTimeout(done, milliseconds));
}

/** Processes that a process has started and that still run (Linux). */
export function childrenOf(pid: number): number[] {
  try {
    return readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').trim().split(' ').filter(Boolean).map(Number);
  } catch {
    return []; // It has ended meanwhile.
  }
}

/** False also for a process that has ended and was not waited for yet. */
export function isRunning(pid: number): boolean {
  try {
    return !/^State:\s+Z/m.test(readFileSync(`/proc/${pid}/status`, 'utf8'));
  } catch {
    return false;
  }
}
