/** Checks a reward module's exports, and its code at the start. */
import { statSync } from 'node:fs';
import { type Clock, Deadline, systemClock } from '../../../core/clock.js';
import { ConfigError } from '../../../core/errors.js';
import { describeThrown, type Shape } from './exported.js';
import { isObject } from '../../../core/schema/walk.js';

export interface ModuleSettings {
  readonly module: string;
  readonly settings: Readonly<Record<string, unknown>>;
  readonly timeout_s: number;
  readonly concurrency: number;
  readonly start_s: number;
}

const inputs = ['edited', 'source', 'truth', 'words'];

/** Expected of a module, for messages. */
const form =
  'export default { score(item) { return 0.5; } }, or the function score itself, or an object with create(settings) that gives such an object (docs/guide/rewards.md)';

/** Waits for the user's own code at the start. Raises ConfigError for its errors and, with `late`, when the time is over. */
export async function runWithin<T>(
  file: string,
  seconds: number,
  late: string,
  work: () => Promise<T>,
  clock: Clock = systemClock,
): Promise<T> {
  const deadline = new Deadline(clock, seconds * 1000);
  try {
    return await new Promise<T>((resolve, reject) => {
      deadline.onOver(() => reject(moduleError(file, late)));
      work().then(resolve, reject);
    });
  } catch (error) {
    throw error instanceof ConfigError ? error : moduleError(file, describeThrown(error), error);
  } finally {
    deadline.dispose();
  }
}

/** Importing a pipe or a device may never end. */
export function requirePlainFile(file: string): void {
  if (statSync(file, { throwIfNoEntry: false })?.isFile() !== true) throw moduleError(file, 'it is not a plain file');
}

export function requireShape(file: string, { is, has, needs }: Shape): void {
  if (is === 'function') return;
  if (is !== 'object') {
    throw moduleError(file, is === 'undefined' ? 'has no default export' : `its default export is ${is}`);
  }
  if (has.score !== 'function' && has.create !== 'function') {
    throw moduleError(file, 'its default export has neither a function score nor create');
  }
  for (const member of ['score', 'create', 'check'] as const) {
    if (!['function', 'undefined'].includes(has[member])) throw moduleError(file, `its ${member} is not a function`);
  }
  if (needs === undefined) return;
  const right =
    isObject(needs) &&
    Object.entries(needs).every(([key, value]) => inputs.includes(key) && typeof value === 'boolean');
  if (right) return;
  throw moduleError(file, `its needs are ${JSON.stringify(needs)}; allowed: ${inputs.join(', ')}, each true or false`);
}

export function requireNoProblem(file: string, problem: unknown): void {
  if (problem === null || problem === undefined) return;
  throw new ConfigError(
    typeof problem === 'string' ? problem : `check() gave ${JSON.stringify(problem)}; allowed: a text, or null`,
    {
      where: `reward.terms, module ${file}`,
      next: "Correct the term's settings: the module rejects them.",
    },
  );
}

/** A message for a module whose create() returned something that cannot score. */
export function wrongResult(file: string, made: string): ConfigError {
  return new ConfigError(`the reward module cannot be used: its create() returned ${made}`, {
    where: file,
    next: 'Expected: an object with a function score(item), or that function.',
  });
}

export function moduleError(file: string, what: string, cause?: unknown): ConfigError {
  return new ConfigError(`the reward module cannot be used: ${what}`, {
    where: file,
    next: `Expected: ${form}.`,
    cause,
  });
}
