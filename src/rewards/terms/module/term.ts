/** The term of a reward module. It always returns an outcome, even if the module fails. */
import { pathToFileURL } from 'node:url';
import pLimit from 'p-limit';
import { type Clock, Deadline, systemClock } from '../../../core/clock.js';
import { DataError, must } from '../../../core/errors.js';
import { encodePng } from '../../../core/images/image.js';
import { isObject } from '../../../core/schema/walk.js';
import {
  unscoredReasons,
  type JudgeItem,
  type Outcome,
  type ScoreParts,
  type UnscoredReason,
} from '../../score/types.js';
import { missingInput, type Term, type TermServices } from '../term.js';
import { chosenExport, describeThrown, shapeOf } from './exported.js';
import {
  requireNoProblem,
  requirePlainFile,
  requireShape,
  runWithin,
  wrongResult,
  type ModuleSettings,
} from './exports.js';
import { tryModule, type CallResult } from './trial.js';
import { moduleName, type ModuleObject, type RewardModule, type ScoreContext, type Scorer } from './types.js';

/**
 * Imports the module and creates its scorer. Raises ConfigError for a module that cannot be imported, has no usable export, or rejects its
 * settings. Its `score` raises DataError for an item without the inputs that the module declares as its needs. An error of the module leaves the item
 * unscored.
 */
export async function openModule(
  settings: ModuleSettings,
  { limits }: Pick<TermServices, 'limits'>,
  clock: Clock = systemClock,
): Promise<Term> {
  const module = await importModule(settings);
  const needs = typeof module === 'function' ? {} : (module.needs ?? {});
  const scorer = await open(module, settings, limits?.processes ?? 1, clock);
  const score = async (item: JudgeItem, context: ScoreContext): Promise<CallResult> => {
    try {
      // A copy: a module's changes to an image must not reach the other terms.
      return { value: await scorer.score(structuredClone(item), context) };
    } catch (error) {
      return { threw: describeThrown(error) };
    }
  };
  return termOf({ settings, needs, score, close: () => close(scorer, settings) }, clock);
}

/** Imports a module into this process. Raises ConfigError for a module that cannot be used. */
export async function importModule({ module: file, settings, timeout_s }: ModuleSettings): Promise<RewardModule> {
  requirePlainFile(file);
  return runWithin(file, timeout_s, `its import did not end within ${timeout_s} s (timeout_s)`, async () => {
    const exported = chosenExport((await import(pathToFileURL(file).href)) as Record<string, unknown>);
    requireShape(file, shapeOf(exported));
    const module = exported as RewardModule;
    if (typeof module !== 'function') requireNoProblem(file, await module.check?.(structuredClone(settings)));
    return module;
  });
}

/**
 * Imports a module, calls its create() and scores items in a process of its own. The term that it returns has the outcomes of these items.
 * Raises the ConfigErrors of `openModule`.
 */
export async function openModuleApart(settings: ModuleSettings, items: readonly JudgeItem[]): Promise<Term> {
  const { needs, results } = await tryModule(settings, items);
  const given = new Map(items.map(({ key }, i) => [key, results[i]]));
  const score = async ({ key }: JudgeItem): Promise<CallResult> => must(given.get(key), `an outcome of ${key}`);
  return termOf({ settings, needs, score, close: async () => undefined }, systemClock);
}

/** An open module, in this or another process. */
interface OpenedModule {
  readonly settings: ModuleSettings;
  readonly needs: NonNullable<ModuleObject['needs']>;
  readonly score: (item: JudgeItem, context: ScoreContext) => Promise<CallResult>;
  readonly close: () => Promise<void>;
}

/** The term of an open module. */
function termOf({ settings, needs, score, close: end }: OpenedModule, clock: Clock): Term {
  const { module: file, concurrency, timeout_s } = settings;
  const name = moduleName(file);
  const slots = pLimit(concurrency);
  let closing: Promise<void> | null = null;

  async function ask(item: JudgeItem, signal?: AbortSignal): Promise<Outcome> {
    if (signal?.aborted === true) return unscored('aborted', `${item.key}: called off`);
    const deadline = new Deadline(clock, timeout_s * 1000, signal);
    const over = new Promise<Outcome>((resolve) => {
      deadline.onOver(() => {
        resolve(
          signal?.aborted === true
            ? unscored('aborted', `${item.key}: called off`)
            : unscored('timeout', `${item.key}: ${name} gave no score within ${timeout_s} s`),
        );
      });
    });
    const context = { settings: structuredClone(settings.settings), signal: deadline.signal };
    const scored = async (): Promise<Outcome> => {
      const given = await score(item, context);
      if ('threw' in given) return unscored('own_code', `${item.key}: ${name}: ${given.threw}`);
      return readOutcome(given.value, name, item.key);
    };
    try {
      return await Promise.race([scored(), over]);
    } finally {
      deadline.dispose();
    }
  }

  return {
    name,
    async score(item, signal) {
      requireInputs(name, needs, item);
      if (item.edited === null && needs.edited !== false && !isWordsAlone(item)) {
        return { kind: 'zero_by_rule', reason: 'undecodable', parts: {} };
      }
      return slots(() => ask(item, signal));
    },
    close() {
      closing ??= end();
      return closing;
    },
  };
}

async function open(
  module: RewardModule,
  { module: file, settings, start_s }: ModuleSettings,
  processes: number,
  clock: Clock,
): Promise<Scorer> {
  if (typeof module === 'function') return { score: module };
  // The members stay those of their object: a method may read `this`.
  const itself = module as ModuleObject & Scorer;
  if (module.create === undefined) return itself;
  const create = async (): Promise<unknown> =>
    itself.create?.(structuredClone(settings), { png: encodePng, processes });
  const made = await runWithin(file, start_s, `its create() did not end within ${start_s} s (start_s)`, create, clock);
  if (typeof made === 'function') return { score: made as Scorer['score'] };
  if (isObject(made) && typeof made['score'] === 'function') return made as unknown as Scorer;
  throw wrongResult(file, describe(made));
}

/** A module that cannot close does not harm a run that has ended, but is reported. */
async function close({ close: end }: Scorer, { module: file, start_s }: ModuleSettings): Promise<void> {
  if (end === undefined) return;
  try {
    await runWithin(file, start_s, `its close() did not end within ${start_s} s (start_s)`, async () => end());
  } catch (error) {
    process.emitWarning(error instanceof Error ? error.message : String(error), 'RewardModuleWarning');
  }
}

/** Whether neither the prompt nor its answer concerns images. */
function isWordsAlone({ source, answer }: JudgeItem): boolean {
  return source === null && answer !== undefined;
}

function requireInputs(name: string, needs: NonNullable<ModuleObject['needs']>, item: JudgeItem): void {
  const missing = missingInput(needs, item);
  if (missing === null) return;
  throw new DataError(`reward '${name}' needs ${missing}, but this prompt has none`, {
    where: item.key,
    next: "Train on data that has it, or remove it from the module's needs.",
  });
}

/** The return values that a module may give. */
const ALLOWED = 'a number from 0 to 1, or an outcome (docs/guide/rewards.md)';

/** A module's return value as an outcome. Unscored for `own_code` if it is not one. */
export function readOutcome(given: unknown, name: string, key: string): Outcome {
  const refuse = (what: string): Outcome => unscored('own_code', `${key}: ${name} gave ${what}; allowed: ${ALLOWED}`);
  if (typeof given === 'number') {
    if (!isFraction(given)) return refuse(String(given));
    return { kind: 'scored', value: given, normalised: given, parts: {} };
  }
  if (!isObject(given)) return refuse(describe(given));
  const parts = readParts(given['parts'], name);
  if (parts === null) {
    return refuse(`parts that are not finite numbers by name, ${describe(given['parts'])}`);
  }
  const { kind, reason, detail, normalised, value = normalised } = given;
  if (kind === 'scored') {
    if (isFraction(normalised) && typeof value === 'number' && Number.isFinite(value) && value >= 0) {
      return { kind, value, normalised, parts };
    }
    return refuse(`normalised ${describe(normalised)} and value ${describe(value)}`);
  }
  if (kind === 'zero_by_rule' && (reason === 'undecodable' || reason === 'unfinished')) return { kind, reason, parts };
  const known = unscoredReasons.find((one) => one === reason && one !== 'own_code');
  if (kind === 'unscored' && known !== undefined && typeof detail === 'string') {
    return { kind, reason: known, detail: `${key}: ${name}: ${detail}`, parts };
  }
  return refuse(describe(given));
}

function isFraction(value: unknown): value is number {
  return typeof value === 'number' && value >= 0 && value <= 1;
}

/** Parts under the term's name, which their author leaves out. Null if they are not numbers by name. */
function readParts(given: unknown, name: string): ScoreParts | null {
  if (given === undefined) return {};
  if (!isObject(given)) return null;
  const entries = Object.entries(given);
  if (!entries.every(([part, value]) => /^[^/]+$/.test(part) && Number.isFinite(value))) return null;
  return Object.fromEntries(entries.map(([part, value]) => [`${name}/${part}`, value as number]));
}

function describe(value: unknown): string {
  if (typeof value === 'function') return 'a function';
  const text = typeof value === 'object' && value !== null ? safeJson(value) : String(value);
  return text.length <= 120 ? text : `${text.slice(0, 117)}...`;
}

function safeJson(value: object): string {
  try {
    return JSON.stringify(value);
  } catch {
    return 'an object that is not JSON';
  }
}

function unscored(reason: UnscoredReason, detail: string): Outcome {
  return { kind: 'unscored', reason, detail, parts: {} };
}
