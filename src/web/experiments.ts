/** Experiments from the records of sweeps and their runs. */
import { existsSync } from 'node:fs';
import { Refusal } from '../core/http/refusal.js';
import { liveSweeps } from '../launch/sweep/lock.js';
import { listExperiments as listRecorded } from '../run/find.js';
import { readMeasure } from '../rewards/score/identity.js';
import type { MeasureTerm } from '../rewards/score/settings.js';
import type { RunPaths } from '../run/paths.js';
import type { ReadSettings } from '../core/schema/mark.js';
import { measuredBy } from '../run/report/measures.js';
import { resultCaption, tabulate, type ResultCell } from '../run/report/results.js';
import type { CurveGroup } from './curves.js';
import { sweepActionsOf, type Sweep } from './actions.js';
import { heldOutOf } from './run_list.js';
import { idOf, type IndexedRun, type RunsIndex } from './runs_index.js';
import type { WireCell, WireExperiment, WireMatrix, WireState } from './wire.js';

type Axes = Readonly<Record<string, string>>;

interface FoundCell {
  readonly name: string;
  readonly axes: Axes;
  /** Null for a run that has not started. */
  readonly run: IndexedRun | null;
  /** False if the folder with its name contains a run with other settings. */
  readonly counts: boolean;
}

interface FoundExperiment {
  readonly id: string;
  readonly name: string;
  readonly folder: string;
  readonly baseline: Axes | null;
  readonly swept: boolean;
  /** The terms for comparing its cells. */
  readonly measure: readonly MeasureTerm[];
  readonly cells: readonly FoundCell[];
}

const SEED = 'seed';

export function listExperiments(index: RunsIndex): WireExperiment[] {
  return findExperiments(index).map(({ id, name, swept, cells }) => {
    const states: Partial<Record<WireState, number>> = {};
    for (const { run } of cells) {
      const state = run?.status.state ?? 'queued';
      states[state] = (states[state] ?? 0) + 1;
    }
    return { id, name, runs: cells.length, states, axes: axesOf(cells), swept };
  });
}

/** Raises Refusal 404 for an unknown experiment. */
export function matrixOf(index: RunsIndex, id: string): WireMatrix {
  const experiment = experimentOf(index, id);
  const { name, swept, cells, baseline } = experiment;
  const byName = new Map(cells.map((cell) => [cell.name, cell]));
  const runs = cells.map(({ name: run_name, axes, run, counts }) => ({
    run_name,
    axes,
    outcome: !counts ? 'failed' : run === null ? 'queued' : run.status.state,
    report: run === null || run.heldOut === null ? null : { heldout: run.heldOut, iteration: run.status.iteration },
    settings: run === null || run.settings.length === 0 ? null : settingsOf(index, run),
  }));
  const results = tabulate(name, runs, baseline, experiment.measure);
  return {
    id,
    name,
    swept,
    axes: axesOf(cells)
      .filter((axis) => axis !== SEED)
      .map((axis) => ({ name: axis, values: valuesOf(cells, axis) })),
    metric: results.metric,
    less_is_better: results.less_is_better,
    comparable: results.incomparable === null,
    caption: resultCaption(results, 'by_axes'),
    actions: sweepActionsOf(experiment),
    cells: results.cells.map((cell) => wireCell(cell, byName, (run) => heldOutSoFar(index, run, experiment.measure))),
  };
}

/** The started cells with their seeds, the baseline first. Raises Refusal 404 for an unknown experiment. */
export function cellGroups(index: RunsIndex, id: string): CurveGroup[] {
  const { name, cells, baseline } = experimentOf(index, id);
  const groups = new Map<string, { label: string; first: boolean; runs: RunPaths[] }>();
  for (const { axes, run } of cells) {
    if (run === null) continue;
    const own = Object.entries(axes).filter(([axis]) => axis !== SEED);
    const label = own.map(([axis, value]) => `${axis} ${value}`).join(', ') || name;
    const first = baseline !== null && own.every(([axis, value]) => baseline[axis] === value);
    const group = groups.get(label) ?? { label, first, runs: [] };
    group.runs.push(run.paths);
    groups.set(label, group);
  }
  return [...groups.values()].sort((a, b) => Number(b.first) - Number(a.first));
}

function experimentOf(index: RunsIndex, id: string): FoundExperiment {
  const found = findExperiments(index).find((one) => one.id === id);
  if (found !== undefined) return found;
  throw new Refusal('not_found', `Experiment not found: ${id.slice(0, 120)}.`);
}

/** The experiment with this id, for its actions. Raises Refusal 404 for an unknown experiment. */
export function sweepOf(index: RunsIndex, id: string): Sweep {
  return experimentOf(index, id);
}

function wireCell(
  { axes, is_baseline, after, difference, runs }: ResultCell,
  cells: ReadonlyMap<string, FoundCell>,
  held: (run: IndexedRun) => number | null,
): WireCell {
  return {
    axes,
    is_baseline,
    mean: after?.mean ?? null,
    std: after?.std ?? null,
    n: after?.n ?? 0,
    difference,
    runs: runs.map(({ run_name, seed }) => {
      const run = cells.get(run_name)?.run ?? null;
      return {
        id: run?.id ?? null,
        name: run_name,
        seed,
        state: run?.status.state ?? 'queued',
        iteration: run?.status.iteration ?? 0,
        num_iterations: run?.status.num_iterations ?? 0,
        held_out: run === null ? null : held(run),
      };
    }),
  };
}

function findExperiments(index: RunsIndex): FoundExperiment[] {
  const byId = new Map(index.runs.map((run) => [run.id, run]));
  return index.folders.flatMap((folder, number) => {
    if (!existsSync(folder)) return [];
    const swept = new Set(liveSweeps([folder]).map(({ experiment }) => experiment));
    return listRecorded([folder]).flatMap(({ name }): FoundExperiment[] => {
      const record = index.experiments.get(folder, name);
      if (record === null) return [];
      const cells = record.cells.map(({ run_name, axes, refused }) => ({
        name: run_name,
        axes,
        run: byId.get(idOf(number, run_name)) ?? null,
        counts: refused === null,
      }));
      return [
        {
          id: idOf(number, name),
          name,
          folder,
          baseline: record.baseline,
          swept: swept.has(name),
          measure: readMeasure(record.measure),
          cells,
        },
      ];
    });
  });
}

/** The latest held-out number of a run, by the first measure if there is one. */
function heldOutSoFar(index: RunsIndex, run: IndexedRun, [term]: readonly MeasureTerm[]): number | null {
  if (term === undefined) return heldOutOf(run)?.after ?? null;
  const last = measuredBy(term, run.heldOut?.numbers ?? [], settingsOf(index, run)).map(
    ({ before, after }) => after ?? before,
  );
  return last.find((one) => one !== null)?.mean ?? null;
}

function settingsOf(index: RunsIndex, { settings }: IndexedRun): ReadSettings {
  return (path) => index.settings.valueOf(settings, path);
}

function axesOf(cells: readonly FoundCell[]): string[] {
  return [...new Set(cells.flatMap(({ axes }) => Object.keys(axes)))];
}

/** Numbers in ascending order, everything else in the order of appearance. */
function valuesOf(cells: readonly FoundCell[], axis: string): string[] {
  const values = [...new Set(cells.flatMap(({ axes }) => axes[axis] ?? []))];
  const numbers = values.map(Number);
  if (numbers.some(Number.isNaN)) return values;
  return values.sort((a, b) => Number(a) - Number(b));
}
