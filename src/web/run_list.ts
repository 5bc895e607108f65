/** Lists of runs: filtered and sorted by any column or setting. */
import { nearest } from '../core/nearest.js';
import { badRequest } from '../core/http/refusal.js';
import { showScale } from '../run/report/numbers.js';
import { headlineNumber } from '../run/report/read.js';
import type { ShownState } from '../run/status.js';
import type { IndexedRun, RunsIndex } from './runs_index.js';
import type { WireHeldOut, WireKey, WireRun, WireRuns } from './wire.js';

type Column = (run: IndexedRun) => unknown;

/** Value of the column `alarm` for a run without alarms. `alarm!=none` finds the others. */
const NO_ALARM = 'none';

/** The columns other than settings. They take precedence over a setting of the same name (`num_iterations`). */
const columns: Readonly<Record<string, Column>> = {
  name: ({ status }) => status.run_name,
  state: ({ status }) => status.state,
  iteration: ({ status }) => status.iteration,
  num_iterations: ({ status }) => status.num_iterations,
  progress: ({ status }) => (status.num_iterations === 0 ? 0 : status.iteration / status.num_iterations),
  reward: ({ status }) => status.reward,
  held_out: (run) => heldOutOf(run)?.after ?? null,
  gain: (run) => gainOf(heldOutOf(run)),
  heartbeat: ({ heartbeat }) => heartbeat,
  alarm: ({ status }) => (status.alarms.length === 0 ? NO_ALARM : status.alarms),
  where: ({ status }) => status.where,
  reason: ({ status }) => status.reason,
  folder: ({ paths }) => paths.baseExpDir,
};

export interface RunsRequest {
  readonly filter: string;
  readonly sort: string;
  readonly descending: boolean;
  readonly offset: number;
  readonly limit: number;
  /** Settings to include in the rows. */
  readonly columns: readonly string[];
}

/** Raises Refusal 400 for an invalid filter or key. */
export function listRuns(index: RunsIndex, request: RunsRequest): WireRuns {
  const all = index.runs;
  const keys = [...Object.keys(columns), ...index.settings.keys];
  const valueOf = (key: string): Column => readerOf(index, resolveKey(key, keys));
  const conditions = parseFilter(request.filter).map((condition) => ({
    ...condition,
    read: condition.key === null ? columns['name'] : valueOf(condition.key),
  }));
  const matching = all.filter((run) =>
    conditions.every((condition) => matchesCondition(condition.read(run), condition)),
  );
  const states: Partial<Record<ShownState, number>> = {};
  for (const { status } of matching) states[status.state] = (states[status.state] ?? 0) + 1;
  const shown = sorted(matching, valueOf(request.sort), request.descending);
  const asked = request.columns.map(valueOf);
  return {
    folders: index.folders,
    total: all.length,
    matching: matching.length,
    offset: request.offset,
    runs: shown.slice(request.offset, request.offset + request.limit).map((run) => wireRun(run, asked)),
    states,
    unread: index.unread,
    problems: index.problems,
  };
}

/** The columns and settings of all runs. Settings that differ between runs come first. */
export function listKeys(index: RunsIndex): WireKey[] {
  const counts = index.settings.counts(index.runs.map(({ settings }) => settings));
  const own = Object.keys(columns).map((key) => ({ key, values: 0 }));
  const settings = counts.filter(({ key }) => !Object.hasOwn(columns, key));
  return [...own, ...settings.sort((a, b) => Number(b.values > 1) - Number(a.values > 1))];
}

export function wireRun(run: IndexedRun, values: readonly Column[] = []): WireRun {
  const { state, iteration, num_iterations, reward, where, reason, run_name } = run.status;
  return {
    id: run.id,
    name: run_name,
    state,
    iteration,
    num_iterations,
    reward,
    held_out: heldOutOf(run),
    alarms: run.status.alarms,
    heartbeat: run.heartbeat,
    where,
    reason,
    values: values.map((read) => read(run) ?? null),
  };
}

function readerOf(index: RunsIndex, key: string): Column {
  if (Object.hasOwn(columns, key)) return columns[key];
  return ({ settings }) => index.settings.valueOf(settings, key);
}

/** Ties keep the order of their names. */
function sorted(runs: readonly IndexedRun[], read: Column, descending: boolean): IndexedRun[] {
  const compare = ordering(descending);
  const keyed = runs.map((run) => ({ run, value: read(run) }));
  return keyed.sort((a, b) => compare(a.value, b.value)).map(({ run }) => run);
}

/** The latest held-out number of a run, and the first one if there are two. */
export function heldOutOf({ heldOut }: IndexedRun): WireHeldOut | null {
  if (heldOut?.metric === undefined || heldOut.metric === null) return null;
  const { metric, scale, before, after, iterations } = heldOut;
  const number = headlineNumber(heldOut);
  return {
    metric,
    label: scale?.label ?? null,
    scale: scale === null ? null : showScale(scale),
    before: after === null ? null : finite(before),
    after: finite(after ?? before),
    stderr: finite((number?.after ?? number?.before)?.stderr ?? null),
    iteration: iterations.after ?? iterations.before ?? 0,
  };
}

function gainOf(heldOut: WireHeldOut | null): number | null {
  if (heldOut === null || heldOut.before === null || heldOut.after === null) return null;
  return heldOut.after - heldOut.before;
}

function finite(value: number | null): number | null {
  return value !== null && Number.isFinite(value) ? value : null;
}

type Operator = '!=' | '<=' | '>=' | '=' | '<' | '>' | '~';

export interface Condition {
  /** Null for plain text, which the name must contain. */
  readonly key: string | null;
  readonly operator: Operator;
  readonly value: string;
}

/** Raises Refusal 400 for an unclosed quotation mark. `resolveKey` resolves the keys. */
export function parseFilter(text: string): Condition[] {
  return wordsOf(text).map((word) => {
    const found = /^([^\s!<>=~]+)(!=|<=|>=|=|<|>|~)(.*)$/s.exec(word);
    if (found === null) return { key: null, operator: '~', value: word };
    return { key: found[1], operator: found[2] as Operator, value: found[3] };
  });
}

function wordsOf(text: string): string[] {
  const words: string[] = [];
  let word: string | null = null;
  let quoted = false;
  for (const letter of text) {
    if (letter === '"') {
      quoted = !quoted;
      word ??= '';
    } else if (/\s/.test(letter) && !quoted) {
      if (word !== null) words.push(word);
      word = null;
    } else {
      word = (word ?? '') + letter;
    }
  }
  if (quoted) throw badRequest('The filter contains an unclosed quotation mark (").', 'filter');
  if (word !== null) words.push(word);
  return words;
}

/**
 * Resolves a written key: an exact match, or the only key that ends with it (`kl_coeff` for `algorithm.kl_coeff`). Raises Refusal 400 with the
 * candidates.
 */
export function resolveKey(written: string, keys: readonly string[]): string {
  if (keys.includes(written)) return written;
  const ending = keys.filter((key) => key.endsWith(`.${written}`));
  if (ending.length === 1) return ending[0];
  if (ending.length > 1) {
    throw badRequest(`'${written}' is ambiguous. Use one of: ${ending.slice(0, 8).join(', ')}.`, 'filter');
  }
  const ends = keys.map((key) => key.slice(key.lastIndexOf('.') + 1));
  const close = nearest(written, keys) ?? keys[ends.indexOf(nearest(written, ends) ?? '')] ?? null;
  throw badRequest(
    `Unknown column or setting '${written}'.${close === null ? '' : ` Did you mean '${close}'?`}`,
    'filter',
  );
}

/** Whether a value satisfies a condition. For a list, any item must satisfy it, or every item for `!=`. A missing value satisfies only `!=`. */
export function matchesCondition(value: unknown, condition: Omit<Condition, 'key'>): boolean {
  const { operator, value: wanted } = condition;
  if (Array.isArray(value) && value.length > 0 && !wanted.startsWith('[')) {
    const fits = (one: unknown): boolean => matchesCondition(one, condition);
    return operator === '!=' ? value.every(fits) : value.some(fits);
  }
  const text = textOf(value);
  if (value === undefined) return operator === '!=';
  const [a, b] = [numberOf(value), wanted.trim() === '' ? NaN : Number(wanted)];
  const numeric = a !== null && !Number.isNaN(b);
  switch (operator) {
    case '=':
      return numeric ? a === b : text === wanted;
    case '!=':
      return numeric ? a !== b : text !== wanted;
    case '~':
      return text.toLowerCase().includes(wanted.toLowerCase());
    case '<':
    case '<=':
    case '>':
    case '>=':
      return operatorHolds(
        operator,
        numeric ? a - b : value === null ? NaN : text < wanted ? -1 : text > wanted ? 1 : 0,
      );
  }
}

function operatorHolds(operator: '<' | '<=' | '>' | '>=', difference: number): boolean {
  if (operator === '<') return difference < 0;
  if (operator === '<=') return difference <= 0;
  return operator === '>' ? difference > 0 : difference >= 0;
}

/** A value as the user writes it: text unchanged, everything else as JSON. */
export function textOf(value: unknown): string {
  return typeof value === 'string' ? value : (JSON.stringify(value) ?? '');
}

function numberOf(value: unknown): number | null {
  return typeof value === 'number' ? value : null;
}

/** Orders the values of a column: numbers, then text. Missing values come last in both directions. */
export function ordering(descending: boolean): (a: unknown, b: unknown) => number {
  const sign = descending ? -1 : 1;
  return (a, b) => {
    const [x, y] = [typeRank(a), typeRank(b)];
    if (x !== y) return x - y;
    if (x === 0) return sign * ((a as number) - (b as number));
    if (x === 2) return 0;
    const [s, t] = [textOf(a), textOf(b)];
    return s === t ? 0 : s < t ? -sign : sign;
  };
}

function typeRank(value: unknown): 0 | 1 | 2 {
  if (value === null || value === undefined) return 2;
  return typeof value === 'number' ? 0 : 1;
}
