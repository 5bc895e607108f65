/**
 * Tries a reward module in a process of its own, which the module may block or end. A run imports the module into its workers, which avoids
 * copying.
 */
import { spawn } from 'node:child_process';
import { pathToFileURL } from 'node:url';
import { deserialize, serialize } from 'node:v8';
import { systemClock } from '../../../core/clock.js';
import { EngineError } from '../../../core/errors.js';
import { programPath } from '../../../core/files.js';
import type { JudgeItem } from '../../score/types.js';
import type { Shape } from './exported.js';
import {
  moduleError,
  requireNoProblem,
  requirePlainFile,
  requireShape,
  wrongResult,
  type ModuleSettings,
} from './exports.js';
import type { ModuleObject } from './types.js';

/** The result of calling a module's `score`: its return value, or its error as text. */
export type CallResult = { readonly value: unknown } | { readonly threw: string };

/** A message to the process. */
export interface ToTrial {
  readonly url: string;
  readonly settings: Readonly<Record<string, unknown>>;
  readonly items: readonly JudgeItem[];
  readonly concurrency: number;
}

/** Messages from the process: the result of the import, of create(), then of each item. */
export type FromTrial =
  | { readonly kind: 'imported'; readonly shape: Shape; readonly problem: unknown }
  | { readonly kind: 'made'; readonly problem: string | null }
  | { readonly kind: 'failed'; readonly error: string }
  | { readonly kind: 'scored'; readonly id: number; readonly given: CallResult };

const program = programPath('rewards/terms/module/try_main');
/** Seconds that the process itself may take to start on a busy machine. */
const START_UP_S = 5;

/** How the process ended. */
interface End {
  readonly isLate: boolean;
  readonly status: number | null;
  readonly signal: NodeJS.Signals | null;
  readonly stderr: string;
}

/**
 * Imports a module, calls its create() and scores items, in a process of its own. Returns the results in the order of the items. Raises ConfigError
 * as `openModule` does.
 */
export async function tryModule(
  settings: ModuleSettings,
  items: readonly JudgeItem[],
): Promise<{ readonly needs: NonNullable<ModuleObject['needs']>; readonly results: readonly CallResult[] }> {
  const { module: file, concurrency, timeout_s, start_s } = settings;
  requirePlainFile(file);
  const { messages, end } = await conversation(settings, {
    url: pathToFileURL(file).href,
    settings: structuredClone(settings.settings),
    items,
    concurrency,
  });
  const { needs } = requireImported(settings, messages, end);
  const made = messages[1];
  if (made === undefined) throw moduleError(file, ended('its create()', `${start_s} s (start_s)`, end));
  if (made.kind === 'failed') throw moduleError(file, made.error);
  if (made.kind === 'made' && made.problem !== null) throw wrongResult(file, made.problem);
  const given = new Map(messages.flatMap((one) => (one.kind === 'scored' ? [[one.id, one.given] as const] : [])));
  const missing = { threw: end.isLate ? `gave no score within ${timeout_s} s` : `it ended the process (${how(end)})` };
  return {
    needs: needs ?? {},
    results: items.map((_, i) => given.get(i) ?? missing),
  };
}

/** All messages of the process, until it ends or is silent for too long. */
function conversation(
  { timeout_s, start_s }: ModuleSettings,
  request: ToTrial,
): Promise<{ readonly messages: readonly FromTrial[]; readonly end: End }> {
  const child = spawn(process.execPath, [program], { stdio: ['pipe', 'ignore', 'pipe', 'pipe'] });
  let [heard, stderr, isLate] = ['', '', false];
  let stop = (): void => undefined;
  const wait = (seconds: number): void => {
    stop();
    stop = systemClock.after(seconds * 1000, () => {
      isLate = true;
      child.kill('SIGKILL');
    });
  };
  wait(START_UP_S + timeout_s);
  child.stdio[2]?.on('data', (text: Buffer) => (stderr = (stderr + text.toString()).slice(-100_000)));
  child.stdio[3]?.on('data', (text: Buffer) => {
    heard += text.toString();
    const last = messagesIn(heard).at(-1)?.kind;
    wait(last === 'imported' ? start_s : timeout_s);
  });
  // If a process ends before it has read everything, its exit reports that.
  child.stdin?.on('error', () => undefined);
  child.stdin?.end(serialize(request));
  return new Promise((resolve, reject) => {
    child.once('error', (error) => {
      stop();
      reject(noProcess(error));
    });
    child.once('close', (status, signal) => {
      stop();
      resolve({ messages: messagesIn(heard), end: { isLate, status, signal, stderr } });
    });
  });
}

/** The messages of whole lines. */
function messagesIn(lines: string): FromTrial[] {
  return lines
    .split('\n')
    .slice(0, -1)
    .map((line) => deserialize(Buffer.from(line, 'base64')) as FromTrial);
}

/** The shape of the import. Raises ConfigError with its fault, or with the error of the import. */
function requireImported({ module: file, timeout_s }: ModuleSettings, [first]: readonly FromTrial[], end: End): Shape {
  if (first === undefined) throw moduleError(file, ended('its import', `${timeout_s} s (timeout_s)`, end));
  if (first.kind === 'failed') throw moduleError(file, first.error);
  const { shape, problem } = first as Extract<FromTrial, { kind: 'imported' }>;
  requireShape(file, shape);
  requireNoProblem(file, problem);
  return shape;
}

/** Why the process sent nothing about `what`. */
function ended(what: string, limit: string, end: End): string {
  if (end.isLate) return `${what} did not end within ${limit}`;
  const syntax = /^file:\/\/(\S+:\d+)\n[^]*?^(SyntaxError: .*)$/m.exec(end.stderr);
  if (syntax !== null) return `${syntax[2]} (${syntax[1]})`;
  const last = end.stderr.trim().split('\n').at(-1) ?? '';
  return `${what} ended the process (${how(end)})${last === '' ? '' : `: ${last}`}`;
}

function how({ signal, status }: End): string {
  return signal ?? `code ${String(status)}`;
}

function noProcess(cause: Error): EngineError {
  return new EngineError(`a process cannot be started: ${cause.message}`, { cause });
}
