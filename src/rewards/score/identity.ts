/**
 * Decides whether numbers of different runs measure the same thing: returns texts that are equal if they do. Reads settings that any
 * version recorded, so a field that is missing in a record has its default.
 */
import { z } from 'zod';
import type { ReadSettings } from '../../core/schema/mark.js';
import { isObject, markOf } from '../../core/schema/walk.js';
import { termKinds, type TermName } from '../terms/table.js';
import type { TermKind } from '../terms/term.js';
import { asksRunsJudge, ownFields, termName } from './choice.js';
import { weightedNames } from './weighted.js';
import { canonicalMeasure, type MeasureTerm } from './settings.js';

/** The meaning of a number: a reward's value, or the value of a term that measures answers. */
export interface Scale {
  /** `viescore`. For a weighted sum, the terms with their weights. */
  readonly label: string;
  /** The number of its terms. */
  readonly terms: number;
  /** The highest possible value. The lowest is 0. */
  readonly most: number;
  /** Everything that decides the value of an answer. Equal for runs whose numbers can be compared. */
  readonly identity: string;
  /** Whether it needs the run's judge. */
  readonly asksJudge: boolean;
}

interface NamedTerm {
  readonly term: MeasureTerm;
  readonly weight: number;
}

/** The scale of the reward in the settings. Null if they name no reward that this version knows. */
export function rewardScale(read: ReadSettings): Scale | null {
  const mode = read('reward.mode');
  const recorded = read('reward.terms');
  const terms: unknown[] = Array.isArray(recorded) ? recorded : [];
  const named = terms.length > 0 ? terms.map((term) => readTerm(term)) : [readTerm({ name: mode })];
  const known = named.flatMap((one) => one ?? []);
  if (known.length < named.length) return null;
  const sum = terms.length > 0;
  const asksJudge = known.some(({ term }) => asksRunsJudge(term));
  const identity = JSON.stringify([
    sum,
    known.map(({ term, weight }) => [resultFields(term), weight]),
    judgeOf(
      known.map(({ term }) => term),
      read,
    ),
    read('reward.zero_if_unfinished') === true,
  ]);
  return {
    label: weightedNames(known.map(({ term, weight }) => ({ name: termName(term), weight }))),
    terms: known.length,
    most: sum ? 1 : highestValueOf(known[0].term.name),
    identity,
    asksJudge,
  };
}

/** The scale of a term that measures a run's answers. */
export function measureScale(term: MeasureTerm, read: ReadSettings): Scale {
  const identity = JSON.stringify([resultFields(term), judgeOf([term], read)]);
  return { label: termName(term), terms: 1, most: highestValueOf(term.name), identity, asksJudge: asksRunsJudge(term) };
}

/** The terms of a recorded `validation.measure` that this version knows. */
export function readMeasure(recorded: unknown): MeasureTerm[] {
  if (!Array.isArray(recorded)) return [];
  const terms = canonicalMeasure(recorded) as unknown[];
  return terms.flatMap((term) => readTerm(isObject(term) ? { ...term, weight: 1 } : term)?.term ?? []);
}

function readTerm(recorded: unknown): NamedTerm | null {
  if (!isObject(recorded)) return null;
  const { name, weight } = recorded;
  const fields = ownFields(recorded);
  if (typeof name !== 'string' || !Object.hasOwn(termKinds, name)) return null;
  const kind: TermKind = termKinds[name as TermName];
  const parsed = z.strictObject(kind.fields).safeParse(fields);
  if (!parsed.success) return null;
  return { term: { name, ...parsed.data } as MeasureTerm, weight: typeof weight === 'number' ? weight : 1 };
}

/** The highest value of a term's native scale. */
export function highestValueOf(name: TermName): number {
  const kind: TermKind = termKinds[name];
  return kind.most ?? 1;
}

/** Its fields without those for operation alone. */
function resultFields({ name, ...fields }: MeasureTerm): unknown {
  const kind: TermKind = termKinds[name];
  const counting = Object.entries(fields).filter(
    ([key]) => markOf(kind.fields[key] as z.ZodType).effect !== 'operation',
  );
  return [name, ...counting.sort(([a], [b]) => (a < b ? -1 : 1))];
}

/** The judge settings of the run that decide the values of terms. Null if no term asks the judge. */
function judgeOf(terms: readonly MeasureTerm[], read: ReadSettings): unknown {
  if (!terms.some(asksRunsJudge)) return null;
  const fields = ['model', 'prompts.viescore_sc', 'prompts.viescore_pq', 'prompts.ground_score'];
  return fields.map((field) => read(`reward.${field}`) ?? null);
}
