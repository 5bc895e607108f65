/** The cells of a matrix and their names. Pure: it uses names, not settings. */
import { ConfigError } from '../../core/errors.js';
import { nearest } from '../../core/nearest.js';
import { runNamePattern } from '../schema/model.js';
import type { Description } from './schema.js';

/** The value on each axis. */
export type AxisValues = Readonly<Record<string, string>>;

export interface NamedCell {
  readonly run_name: string;
  readonly axes: AxisValues;
}

type Design = (matrix: Matrix) => AxisValues[];

/** More cells than this are assumed to be a mistake. */
const MAX_CELLS = 200_000;

const order = new Intl.Collator('en', { numeric: true });

/**
 * The cells of a matrix. Axes are in the order of their names and values in numeric order, so the order in the file does not matter. An axis without a
 * baseline value, such as a seed, is a repetition: every design combines each cell with all of its values. Raises ConfigError.
 *
 * - `product`: every combination.
 * - `one_factor`: the baseline, and each other value of each axis alone.
 * - `leave_one_out`: the baseline has the "off" values, and each axis has one other value, "on". The cells are all off, all on, and all on but one.
 */
export function designCells(experiment: string, description: Description): NamedCell[] {
  const matrix = new Matrix(description);
  const designs: Record<Description['design'], Design> = { product, one_factor: oneFactor, leave_one_out: leaveOneOut };
  const excluded = description.exclude.map((part) => matrix.checked(part, 'exclude'));
  const drawn = designs[description.design](matrix).filter(
    (cell) => matrix.whole(cell) && !excluded.some((part) => matches(cell, part)),
  );
  const included = description.include.flatMap((part) =>
    matrix.combinations(matrix.names, matrix.checked(part, 'include')),
  );
  const cells = new Map([...drawn, ...included].map((cell) => [matrix.key(cell), cell]));
  if (cells.size === 0) {
    throw new ConfigError('the matrix has no cells', { next: 'Give its axes values, or exclude less.' });
  }
  requireComparison(matrix, [...cells.values()]);
  const sorted = [...cells.values()].sort((a, b) => matrix.compare(a, b));
  return named(experiment, matrix.names, sorted);
}

/** Raises ConfigError if no cell has the values of the baseline. */
function requireComparison({ baseline }: Matrix, cells: readonly AxisValues[]): void {
  if (baseline === null || cells.some((cell) => matches(cell, baseline))) return;
  const values = Object.entries(baseline).map(([axis, value]) => `${axis} '${value}'`);
  throw new ConfigError(
    `baseline: no cell has ${values.join(' and ')}, the values to compare with: exclude or zip leaves it out`,
    { next: 'Add it to include, name another baseline, or leave baseline out.' },
  );
}

/** Whether a cell has the values of a partial cell. */
export function matches(cell: AxisValues, part: AxisValues): boolean {
  return Object.entries(part).every(([axis, value]) => cell[axis] === value);
}

/** `name__axis-value__…` for the given axes, in the order of their names. */
export function nameWith(name: string, axes: readonly string[], cell: AxisValues): string {
  return [name, ...[...axes].sort().map((axis) => `${axis}-${cell[axis]}`)].join('__');
}

/** Raises ConfigError for a setting of run_name. */
function refuseName(where: string): never {
  throw new ConfigError(`${where} sets run_name, but a cell is named after its axes`, {
    next: 'Leave it out. The first part of the names is the name of the experiment.',
  });
}

/** Raises ConfigError unless a text can be part of a run's name. It must not be a property of every JavaScript object. */
export function checkNamePart(what: string, text: string): void {
  const why = text in Object.prototype ? 'it is reserved in JavaScript' : 'allowed: letters, digits, ".", "_" and "-"';
  if (/^[A-Za-z0-9._-]+$/.test(text) && !(text in Object.prototype)) return;
  throw new ConfigError(`${what} '${text}' cannot be part of a run_name; ${why}`, {
    next: 'Rename it.',
  });
}

/** Raises ConfigError unless a text can name a run. */
export function checkName(name: string): void {
  if (runNamePattern.test(name)) return;
  const why = name.length > 96 ? `has ${name.length} characters; at most 96 are allowed` : 'cannot name a run';
  throw new ConfigError(`run_name '${name}' ${why}`, {
    next: 'Shorten the names of the experiment, its axes or their values. A run_name starts with a letter or a digit.',
  });
}

function named(experiment: string, axes: readonly string[], cells: readonly AxisValues[]): NamedCell[] {
  const byName = new Map<string, AxisValues>();
  for (const cell of cells) {
    const run_name = nameWith(experiment, axes, cell);
    checkName(run_name);
    const other = byName.get(run_name);
    if (other !== undefined) {
      throw new ConfigError(
        `two cells have the name ${run_name}: ${JSON.stringify(other)} and ${JSON.stringify(cell)}`,
        { next: 'Rename an axis or a value.' },
      );
    }
    byName.set(run_name, cell);
  }
  return [...byName].map(([run_name, cell]) => ({ run_name, axes: cell }));
}

/** The axes with their values, and the zipped ones. */
class Matrix {
  /** Axes in the order of their names. */
  readonly names: readonly string[];
  readonly #values: ReadonlyMap<string, readonly string[]>;
  /** Index of every value within its axis. */
  readonly #ranks: ReadonlyMap<string, ReadonlyMap<string, number>>;
  /** The combinations of zipped axes that exist. */
  readonly #zipped: readonly (readonly AxisValues[])[];
  readonly baseline: AxisValues | null;

  constructor(description: Description) {
    this.names = Object.keys(description.axes).sort();
    this.#values = new Map(
      this.names.map((axis) => [
        axis,
        Object.keys(description.axes[axis]).sort((a, b) => order.compare(a, b) || (a < b ? -1 : 1)),
      ]),
    );
    this.#ranks = new Map(
      [...this.#values].map(([axis, values]) => [axis, new Map(values.map((value, rank) => [value, rank]))]),
    );
    const { base } = description;
    if (base !== true && !this.#values.has(base)) this.#refuseBase(base);
    for (const axis of this.names) {
      checkNamePart('axis', axis);
      const naming = Object.entries(description.axes[axis]).find(([, fields]) => fields.includes('run_name'));
      if (naming !== undefined && axis !== base) refuseName(`axis '${axis}': value '${naming[0]}'`);
      for (const value of this.valuesOf(axis)) checkNamePart(`axis ${axis}: value`, value);
      if (this.valuesOf(axis).length === 0) throw new ConfigError(`axis '${axis}' has no values`);
    }
    this.#zipped = description.zip.map((zip) => this.#zip(zip));
    const seen = this.#zipped.flatMap(([first]) => Object.keys(first));
    const twice = seen.find((axis, index) => seen.indexOf(axis) !== index);
    if (twice !== undefined) throw new ConfigError(`zip: axis '${twice}' is in it twice`);
    this.baseline = description.baseline === null ? null : this.checked(description.baseline, 'baseline');
    for (const axis of description.share) this.requireAxis(axis, 'share');
    for (const [index, { cell, set }] of description.overrides.entries()) {
      this.checked(cell, 'overrides');
      if (set.includes('run_name')) refuseName(`overrides.${index}`);
    }
  }

  valuesOf(axis: string): readonly string[] {
    return this.#values.get(axis) ?? [];
  }

  requireAxis(axis: string, where: string): void {
    if (this.#values.has(axis)) return;
    const close = nearest(axis, this.names);
    throw new ConfigError(
      `${where}: there is no axis '${axis}'; there are: ${this.names.join(', ') || 'none'}${close === null ? '' : `; did you mean '${close}'?`}`,
    );
  }

  #refuseBase(base: string): never {
    const close = nearest(base, this.names);
    throw new ConfigError(
      `base: found '${base}', which is not an axis; allowed: a config, or the name of the axis whose values are configs (axes: ${this.names.join(', ') || 'none'})`,
      { next: `Did you mean base: ${close === null ? `import '${base}'` : `'${close}'`}?` },
    );
  }

  /** Checks that a partial cell's axes and values exist. Raises ConfigError otherwise. */
  checked(part: AxisValues, where: string): AxisValues {
    for (const [axis, value] of Object.entries(part)) {
      this.requireAxis(axis, where);
      if (this.#ranks.get(axis)?.has(value) === true) continue;
      const close = nearest(value, this.valuesOf(axis));
      throw new ConfigError(
        `${where}: axis '${axis}' has no value '${value}'; it has: ${this.valuesOf(axis).join(', ')}${close === null ? '' : `; did you mean '${close}'?`}`,
      );
    }
    return part;
  }

  /** Every combination of the given axes, with fixed values for others. */
  combinations(axes: readonly string[], fixed: AxisValues = {}): AxisValues[] {
    const free = axes.filter((axis) => fixed[axis] === undefined);
    const size = free.reduce((product, axis) => product * this.valuesOf(axis).length, 1);
    if (size > MAX_CELLS) {
      throw new ConfigError(`the matrix has ${size} cells; allowed: at most ${MAX_CELLS}`, {
        next: 'Make it smaller: fewer values, zipped axes, or a one_factor design.',
      });
    }
    return free.reduce<AxisValues[]>(
      (cells, axis) => cells.flatMap((cell) => this.valuesOf(axis).map((value) => ({ ...cell, [axis]: value }))),
      [fixed],
    );
  }

  /** Whether the values of a cell's zipped axes are a pair. */
  whole(cell: AxisValues): boolean {
    return this.#zipped.every((pairs) => pairs.some((pair) => matches(cell, pair)));
  }

  /** Independent axes of the baseline. Zipped axes count as one. */
  factors(baseline: AxisValues): AxisValues[][] {
    const zipped = new Set(this.#zipped.flatMap(([first]) => Object.keys(first)));
    const single = this.names
      .filter((axis) => !zipped.has(axis) && baseline[axis] !== undefined)
      .map((axis) => this.valuesOf(axis).map((value) => ({ [axis]: value })));
    const together = this.#zipped.filter(([first]) => Object.keys(first).some((axis) => baseline[axis] !== undefined));
    for (const pairs of together) {
      if (pairs.some((pair) => matches(baseline, pair))) continue;
      throw new ConfigError(`baseline: its values of ${Object.keys(pairs[0]).join(' and ')} do not go together in zip`);
    }
    return [...single, ...together.map((pairs) => [...pairs])];
  }

  key(cell: AxisValues): string {
    return JSON.stringify(this.names.map((axis) => cell[axis]));
  }

  compare(a: AxisValues, b: AxisValues): number {
    for (const [axis, ranks] of this.#ranks) {
      const difference = (ranks.get(a[axis]) ?? -1) - (ranks.get(b[axis]) ?? -1);
      if (difference !== 0) return difference;
    }
    return 0;
  }

  #zip(zip: Description['zip'][number]): AxisValues[] {
    const lists = Array.isArray(zip) ? Object.fromEntries(zip.map((axis) => [axis, this.valuesOf(axis)])) : zip;
    const axes = Object.keys(lists);
    for (const axis of axes) this.requireAxis(axis, 'zip');
    for (const axis of axes) for (const value of lists[axis]) this.checked({ [axis]: value }, 'zip');
    const [first, ...others] = axes;
    const equal = others.every((axis) =>
      Array.isArray(zip)
        ? JSON.stringify(lists[axis]) === JSON.stringify(lists[first])
        : lists[axis].length === lists[first].length,
    );
    if (!equal) {
      throw new ConfigError(`zip: the values of ${axes.join(' and ')} cannot be paired`, {
        next: `Give both axes the same value names, or say which go together: {${axes
          .map(
            (axis) =>
              `${axis}: [${this.valuesOf(axis)
                .map((value) => `'${value}'`)
                .join(', ')}]`,
          )
          .join(', ')}}.`,
      });
    }
    return lists[first].map((_, index) => Object.fromEntries(axes.map((axis) => [axis, lists[axis][index]])));
  }
}

const product: Design = (matrix) => matrix.combinations(matrix.names);

const oneFactor: Design = (matrix) => {
  const baseline = requireBaseline(matrix, 'one_factor');
  const changes = matrix.factors(baseline).flat();
  return [{}, ...changes].flatMap((change) => matrix.combinations(matrix.names, { ...baseline, ...change }));
};

const leaveOneOut: Design = (matrix) => {
  const baseline = requireBaseline(matrix, 'leave_one_out');
  const factors = matrix.factors(baseline).map((values) => {
    const on = values.filter((value) => !matches({ ...baseline, ...value }, baseline));
    if (on.length === 1) return on[0];
    throw new ConfigError(
      `leave_one_out: axis ${Object.keys(values[0]).join(' and ')} has ${on.length} values beside the baseline's; allowed: 1`,
      {
        next: 'Give it two values, off (in baseline) and on. Or leave it out of baseline to repeat every cell with it.',
      },
    );
  });
  const all: AxisValues = Object.assign({}, ...factors) as AxisValues;
  const without = factors.map((on) => ({
    ...all,
    ...Object.fromEntries(Object.keys(on).map((axis) => [axis, baseline[axis] ?? on[axis]])),
  }));
  return [{}, all, ...without].flatMap((change) => matrix.combinations(matrix.names, { ...baseline, ...change }));
};

function requireBaseline(matrix: Matrix, design: string): AxisValues {
  if (matrix.baseline !== null) return matrix.baseline;
  throw new ConfigError(`design ${design} needs a baseline`, {
    next: "Name a value for each axis that is a factor: baseline: { axis: 'value' }.",
  });
}
