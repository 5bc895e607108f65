/**
 * A large matrix, section by section. Most sections of the settings follow few of the axes, so each is worked out once for every
 * combination of the values of just these, and cells share the result; that is what makes ten thousand cells cheap.
 *
 * Which axes a section follows is observed, not guessed. While a section is worked out, every field that any other axis sets is
 * watched: reading one, however indirectly, is reported, and the section is worked out again with that axis among its own. A section that
 * was worked out without such a report has read nothing that those axes set, so their values cannot change it. Watching keeps the
 * fields that a cell has: an axis whose values differ in which fields exist belongs to every section.
 */
import { must } from '../../core/errors.js';
import type { AxisValues } from './design.js';
import type { CellOrder, EvaluationPlan, RowOrder, TableOrder } from './snippet.js';

export interface PlacedCell {
  readonly run_name: string;
  readonly axes: AxisValues;
  readonly order: CellOrder;
}

export interface MatrixShape {
  readonly cells: readonly PlacedCell[];
  /** The axis that gives the base; null where one base serves all cells. */
  readonly baseAxis: string | null;
  /** Axis and value of each mixin. */
  readonly mixins: readonly (readonly [string, string])[];
  /** The fields of each value of each axis. */
  readonly axes: Readonly<Record<string, Readonly<Record<string, readonly string[]>>>>;
}

/** Stands for the cell's own name among the axes that a section follows; no axis can be called so. */
const NAME = 'run_name';

interface Table {
  /** The axes that the section follows, as far as is known. */
  readonly follows: Set<string>;
  /** Its value by the values of these axes; null while it has to be worked out (again). */
  rows: ReadonlyMap<string, readonly unknown[]> | null;
  touched: Set<string>;
}

/** Works out the sections of a matrix, within one evaluation. */
export class Sections {
  readonly #tables = new Map<string, Table>();
  #asked: { section: string; keys: readonly string[] }[] = [];

  readonly #regular: readonly PlacedCell[];

  constructor(private readonly shape: MatrixShape) {
    this.#regular = shape.cells.filter(({ order }) => !isOverridden(order));
  }

  /** A plan with tables in place of cells; those with settings of their own (overrides) are evaluated whole. */
  plan(plan: EvaluationPlan): EvaluationPlan {
    const probes = new Map(this.#regular.map(({ order }) => [order.base, order]));
    const fields = Object.entries(this.shape.axes).map(([axis, values]) => [
      axis,
      [...new Set(Object.values(values).flat())],
    ]);
    return {
      ...plan,
      cells: plan.cells.filter(isOverridden),
      probes: [...probes.values()],
      fields: Object.fromEntries(fields) as EvaluationPlan['fields'],
    };
  }

  /** What has to be worked out at first, given the sections that there are and the fields of every base. */
  begin(sections: readonly string[], bases: readonly (readonly string[])[]): TableOrder[] {
    this.#begin(sections, bases);
    return this.#orders();
  }

  #orders(): TableOrder[] {
    const open = [...this.#tables].filter(([, { rows }]) => rows === null);
    this.#asked = [];
    return open.map(([section, table]) => {
      const rows = new Map<string, RowOrder>();
      for (const cell of this.#regular) {
        const key = keyOf(cell, table.follows);
        if (!rows.has(key)) rows.set(key, this.#row(cell, table.follows));
      }
      this.#asked.push({ section, keys: [...rows.keys()] });
      return { section, rows: [...rows.values()] };
    });
  }

  /** Told on the way: a section read what an axis sets. */
  touched(section: string, axis: string): void {
    must(this.#tables.get(section), `a table of ${section}`).touched.add(axis);
  }

  /** Takes what the last orders evaluated to; returns what has to be worked out again. */
  take(tables: readonly (readonly (readonly unknown[])[])[]): TableOrder[] {
    for (const [place, { section, keys }] of this.#asked.entries()) {
      const table = must(this.#tables.get(section), `a table of ${section}`);
      if (table.touched.size === 0) table.rows = new Map(keys.map((key, row) => [key, tables[place][row]]));
      for (const axis of table.touched) table.follows.add(axis);
      table.touched = new Set();
    }
    return this.#orders();
  }

  /** The settings of every cell, given those that were evaluated whole; equal sections are one and the same object. */
  cells(whole: readonly Record<string, unknown>[]): Record<string, unknown>[] {
    const tables = [...this.#tables].filter(([section]) => section !== NAME);
    let next = 0;
    return this.shape.cells.map((cell) => {
      if (isOverridden(cell.order)) return whole[next++];
      const value: Record<string, unknown> = { run_name: cell.run_name };
      for (const [section, { follows, rows }] of tables) {
        const found = must(must(rows, `the rows of ${section}`).get(keyOf(cell, follows)), `a row of ${section}`);
        if (found.length > 0) value[section] = found[0];
      }
      return value;
    });
  }

  #begin(sections: readonly string[], bases: readonly (readonly string[])[]): void {
    const { axes, baseAxis } = this.shape;
    const everywhere = Object.entries(axes)
      .filter(([axis, values]) => axis === baseAxis || !keepsFields(Object.values(values), bases))
      .map(([axis]) => axis);
    for (const section of sections) {
      const setting = Object.entries(axes).filter(([, values]) =>
        Object.values(values).some((fields) => fields.includes(section)),
      );
      const follows = new Set([...everywhere, ...setting.map(([axis]) => axis)]);
      // The cell's name is put together here, not there.
      const rows = section === NAME ? new Map<string, readonly unknown[]>() : null;
      this.#tables.set(section, { follows, rows, touched: new Set() });
    }
  }

  #row({ run_name, axes, order }: PlacedCell, follows: ReadonlySet<string>): RowOrder {
    const mixinOf = new Map(order.mixins.map((mixin) => [this.shape.mixins[mixin][0], mixin]));
    const parts = Object.keys(axes)
      .filter((axis) => axis !== this.shape.baseAxis)
      .sort()
      .map((axis) => [mixinOf.get(axis) ?? null, follows.has(axis) ? null : axis] as const)
      .filter(([mixin, watched]) => mixin !== null || watched !== null);
    return { base: order.base, parts, name: run_name, watchName: !follows.has(NAME) };
  }
}

function isOverridden({ overrides }: CellOrder): boolean {
  return overrides.length > 0;
}

/** Whether a cell has the same fields whichever of an axis's values it has. */
function keepsFields(values: readonly (readonly string[])[], bases: readonly (readonly string[])[]): boolean {
  return values
    .flat()
    .every((field) => values.every((own) => own.includes(field)) || bases.every((base) => base.includes(field)));
}

function keyOf({ run_name, axes }: PlacedCell, follows: ReadonlySet<string>): string {
  if (follows.has(NAME)) return run_name;
  let key = '';
  for (const axis in axes) if (follows.has(axis)) key += `${axes[axis]} `;
  return key;
}
