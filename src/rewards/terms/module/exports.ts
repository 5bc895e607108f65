/** What a reward module exports: importing it, and what is wrong with it. */
import { spawnSync } from 'node:child_process';
import { pathToFileURL } from 'node:url';
import { Deadline } from '../../../core/deadline.js';
import { systemClock, type Clock } from '../../../core/clock.js';
import { ConfigError } from '../../../core/errors.js';
import { isObject } from '../../../schema/walk.js';
import { hasModuleSyntax } from './closure.js';
import type { RewardModule } from './types.js';

export interface ModuleFile {
  readonly module: string;
  readonly settings: Readonly<Record<string, unknown>>;
  readonly start_s: number;
}

/** The members of an export that are looked at. */
export const members = ['score', 'create', 'check', 'needs'] as const;
type Member = (typeof members)[number];

const inputs = ['edited', 'source', 'truth', 'words'];

/** What an export looks like from outside. */
export interface Shape {
  /** `typeof` the export itself. */
  readonly is: string;
  /** `typeof` each of its members. */
  readonly has: Readonly<Record<Member, string>>;
  readonly needs: unknown;
}

/** Expected of a module, for messages. */
const form =
  'export default { score(item) { return 0.5; } }, or the function score itself, or an object with create(settings) that gives such an object (docs/reward_modules.md)';

/**
 * Imports a module in a process of its own and looks at what it exports, so that one that ends its process, or never comes to an end, harms
 * nobody. Raises ConfigError with what is wrong with it.
 */
export function checkModule({ module: file, settings, start_s }: ModuleFile): void {
  requireSyntax(file);
  const child = spawnSync(process.execPath, ['--input-type=module', '-e', program], {
    input: JSON.stringify({ url: pathToFileURL(file).href, members, settings }),
    encoding: 'utf8',
    stdio: ['pipe', 'ignore', 'pipe', 'pipe'],
    timeout: start_s * 1000,
    killSignal: 'SIGKILL',
    maxBuffer: 2 ** 26,
  });
  const said = child.output?.[3] ?? '';
  if (said === '') throw moduleError(file, unfinished(child, start_s));
  const found = JSON.parse(said) as { readonly error?: string; readonly shape?: Shape; readonly problem?: unknown };
  if (found.error !== undefined) throw moduleError(file, found.error);
  requireShape(file, found.shape as Shape);
  requireNoProblem(file, found.problem);
}

/** Imports a module into this process. Raises ConfigError as `checkModule` does. */
export async function importModule(source: ModuleFile): Promise<RewardModule> {
  const { module: file, settings, start_s } = source;
  requireSyntax(file);
  return runWithin(file, start_s, 'its import does not end', async () => {
    const exported = chosenExport(await namespaceOf(source));
    requireShape(file, shapeOf(exported));
    const module = exported as RewardModule;
    if (typeof module !== 'function') requireNoProblem(file, await module.check?.(structuredClone(settings)));
    return module;
  });
}

async function namespaceOf(source: ModuleFile): Promise<Record<string, unknown>> {
  try {
    return (await import(pathToFileURL(source.module).href)) as Record<string, unknown>;
  } catch (error) {
    // Says where, which the error does not.
    if (error instanceof SyntaxError) checkModule(source);
    throw error;
  }
}

/** Waits for the user's own code at the start. Raises ConfigError for what it throws and when the time is over. */
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
      deadline.onOver(() => reject(moduleError(file, `${late} within ${seconds} s (start_s)`)));
      work().then(resolve, reject);
    });
  } catch (error) {
    throw error instanceof ConfigError ? error : moduleError(file, describeThrown(error), error);
  } finally {
    deadline.dispose();
  }
}

/** What was thrown and, where its stack tells, at which place. */
export function describeThrown(error: unknown): string {
  if (!(error instanceof Error)) return `threw ${String(error)}`;
  const places = (error.stack ?? '').match(/\/[^\s()]*:\d+(?=:\d+)/g) ?? [];
  const place = places.find((one) => !one.includes('/node_modules/'));
  const at = place === undefined ? '' : ` (${place.replace(/^\/\/\//, '/')})`;
  return `${error.name}: ${error.message.split('\n', 1)[0]}${at}`;
}

export function chosenExport(namespace: Readonly<Record<string, unknown>>): unknown {
  return namespace['default'] ?? namespace['termKind'];
}

export function shapeOf(exported: unknown): Shape {
  const from = (exported ?? {}) as Readonly<Record<string, unknown>>;
  const has = Object.fromEntries(members.map((member) => [member, typeof from[member]])) as Shape['has'];
  return { is: exported === null ? 'null' : typeof exported, has, needs: from['needs'] };
}

/** What the process runs that imports a module; it needs no file of its own. What it says goes to a pipe that the module does not write to. */
const program = `
import { readFileSync, writeSync } from 'node:fs';
const { url, members, settings } = JSON.parse(readFileSync(0, 'utf8'));
const chosenExport = ${chosenExport.toString()};
const shapeOf = ${shapeOf.toString()};
const thrown = ${describeThrown.toString()};
let said;
try {
  const exported = chosenExport(await import(url));
  const shape = shapeOf(exported);
  said = { shape, problem: shape.has.check === 'function' ? await exported.check(settings) : undefined };
} catch (error) {
  // Only where nothing catches it does Node tell the place.
  if (error instanceof SyntaxError) throw error;
  said = { error: thrown(error) };
}
writeSync(3, JSON.stringify(said));
process.exit(0);
`;

export function requireSyntax(file: string): void {
  let isModule: boolean;
  try {
    isModule = hasModuleSyntax(file);
  } catch (error) {
    throw moduleError(file, `cannot be read (${(error as NodeJS.ErrnoException).code ?? String(error)})`, error);
  }
  if (!isModule) throw moduleError(file, 'is no ES module: it exports nothing by `export`');
}

export function requireShape(file: string, { is, has, needs }: Shape): void {
  if (is === 'function') return;
  if (is !== 'object') {
    throw moduleError(file, is === 'undefined' ? 'has no default export' : `its default export is ${is}`);
  }
  if (has.score !== 'function' && has.create !== 'function') {
    throw moduleError(file, 'its default export has no function score, nor create');
  }
  for (const member of ['score', 'create', 'check'] as const) {
    if (!['function', 'undefined'].includes(has[member])) throw moduleError(file, `its ${member} is no function`);
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
      next: "Correct the term's settings: this is what the module says of them.",
    },
  );
}

function unfinished(child: ReturnType<typeof spawnSync>, seconds: number): string {
  const code = (child.error as NodeJS.ErrnoException | undefined)?.code;
  if (code === 'ETIMEDOUT') return `its import does not end within ${seconds} s (start_s)`;
  const { status, signal, stderr } = child;
  return endedEarly({ status, signal, stderr: String(stderr ?? '') });
}

/** The error for a module whose process ended before it reported anything. */
export function endedEarly({
  status,
  signal,
  stderr,
}: {
  readonly status: number | null;
  readonly signal: NodeJS.Signals | null;
  readonly stderr: string;
}): string {
  const syntax = /^file:\/\/(\S+:\d+)\n[^]*?^(SyntaxError: .*)$/m.exec(stderr);
  if (syntax !== null) return `${syntax[2]} (${syntax[1]})`;
  const last = stderr.trim().split('\n').at(-1) ?? '';
  return `its import ended the process (${signal ?? `code ${String(status)}`})${last === '' ? '' : `: ${last}`}`;
}

/** For what a module's create() made, as a message describes it, where that scores nothing. */
export function wrongResult(file: string, made: string): ConfigError {
  return new ConfigError(`a reward module cannot be used: its create() gave ${made}`, {
    where: file,
    next: 'Expected: an object with a function score(item), or that function.',
  });
}

export function moduleError(file: string, what: string, cause?: unknown): ConfigError {
  return new ConfigError(`a reward module cannot be used: ${what}`, { where: file, next: `Expected: ${form}.`, cause });
}
