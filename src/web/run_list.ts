/** Lists of runs: filtered and sorted by any column or setting. */
import { showScale } from '../run/report/numbers.js';
import type { ShownState } from '../run/status.js';
import { matchesCondition, ordering, parseFilter, resolveKey } from './filter.js';
import type { IndexedRun, RunsIndex } from './runs_index.js';
import type { WireHeldOut, WireKey, WireRun, WireRuns } from './wire.js';

type Column = (run: IndexedRun) => unknown;

/** What the column `alarm` says of a run without any: `alarm!=none` finds the others. */
const NO_ALARM = 'none';

/** The columns of runs besides their settings; they take precedence over a setting with the same name (`num_iterations`). */
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
  /** The settings that rows contain. */
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

/** The columns and settings of all runs; those that differ between runs first. */
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

/** The last number of a run, and the first if there are two. */
export function heldOutOf({ heldOut, evaluations }: IndexedRun): WireHeldOut | null {
  if (heldOut?.metric === undefined || heldOut.metric === null) return null;
  const { metric, scale, before, after, iterations } = heldOut;
  const estimates =
    { 'validation/sampled/mean': heldOut.sampled, 'validation/greedy/mean': heldOut.greedy }[metric] ?? null;
  return {
    metric,
    label: scale?.label ?? null,
    scale: scale === null ? null : showScale(scale),
    before: after === null ? null : finite(before),
    after: finite(after ?? before),
    stderr: finite((estimates?.after ?? estimates?.before)?.stderr ?? null),
    iteration: iterations.after ?? iterations.before ?? 0,
    series: evaluations,
  };
}

function gainOf(heldOut: WireHeldOut | null): number | null {
  if (heldOut === null || heldOut.before === null || heldOut.after === null) return null;
  return heldOut.after - heldOut.before;
}

function finite(value: number | null): number | null {
  return value !== null && Number.isFinite(value) ? value : null;
}
