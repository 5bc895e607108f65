/**
 * Evaluates a large matrix section by section. Most sections of the settings depend on few of the axes, so each is evaluated once for every
 * combination of the values of just these, and cells share the result; that makes ten thousand cells cheap.
 *
 * Which axes a section depends on is observed, not guessed. While a section is evaluated, every field that any other axis sets is watched: reading
 * one, however indirectly, is reported, and the section is evaluated again with that axis among its own. A section evaluated without such a report
 * has read nothing that those axes set, so their values cannot change it. Watching keeps the fields that a cell has: an axis whose values set
 * different fields belongs to every section.
 */
import { must } from '../../core/errors.js';
import type { AxisValues } from './design.js';
import type { CellOrder, EvaluationPlan, Part, TableOrder } from './snippet.js';

export interface PlacedCell {
  readonly run_name: string;
  readonly axes: AxisValues;
  readonly order: CellOrder;
}

export interface MatrixShape {
  readonly cells: readonly PlacedCell[];
  /** The axis that gives the base; null if all cells share one base. */
  readonly baseAxis: string | null;
  /** The axis of each mixin. */
  readonly mixins: readonly string[];
  /** The fields of each value of each axis, hidden ones too. */
  readonly axes: Readonly<Record<string, Readonly<Record<string, readonly string[]>>>>;
  /** Fields of values that hide some of their fields: each may be hidden. */
  readonly hidden: ReadonlySet<string>;
}

/** What Jsonnet reports about a cell of every base and about the bases themselves. */
export interface BaseFields {
  /** The sections of the cells. */
  readonly sections: readonly string[];
  /** The fields of every base, including hidden ones, and those that are not hidden. */
  readonly bases: readonly (readonly [readonly string[], readonly string[]])[];
}

/** The evaluated rows of a table; a row without a value is a cell that lacks the section. */
export type Rows = readonly (readonly unknown[])[];

/** Represents the cell's own name among the axes that a section depends on; no axis can have this name. */
const NAME = 'run_name';

/** Rows evaluated at once, so that little is wasted when a section turns out to depend on more axes and starts over. */
const ROWS_AT_ONCE = 256;

interface Table {
  readonly section: string;
  /** Whether every cell has the section, whatever its axis values. */
  readonly sure: boolean;
  /** The axes that the section depends on, as far as known. */
  readonly follows: Set<string>;
  /** Its value by the values of these axes, as far as evaluated. */
  readonly rows: Map<string, Rows[number]>;
}

/** Some rows of a table, each with a cell that has it. */
interface Job {
  readonly table: Table;
  readonly cells: ReadonlyMap<string, PlacedCell>;
}

/** Evaluates the sections of a matrix within one Jsonnet evaluation. */
export class Sections {
  readonly #tables: Table[] = [];
  readonly #regular: readonly PlacedCell[];
  #queue: Job[] = [];
  /** The current job; null if its result is useless. */
  #current: Job | null = null;

  constructor(private readonly shape: MatrixShape) {
    this.#regular = shape.cells.filter(({ order }) => !isOverridden(order));
  }

  /** A plan with tables in place of cells; cells with settings of their own (overrides) are evaluated whole. */
  plan(plan: EvaluationPlan): EvaluationPlan {
    const probes = new Map(this.#regular.map(({ order }) => [order.base, order]));
    return {
      ...plan,
      cells: plan.cells.filter(isOverridden),
      probes: [...probes.values()],
      fields: Object.fromEntries(Object.entries(this.shape.axes).map(([axis, values]) => [axis, fieldsOf(values)])),
    };
  }

  /** Returns the first table to evaluate. */
  begin({ sections, bases }: BaseFields): TableOrder | null {
    const { axes, baseAxis, hidden } = this.shape;
    const known = bases.map(([all]) => all);
    const everywhere = Object.entries(axes)
      .filter(([axis, values]) => axis === baseAxis || !keepsFields(Object.values(values), known))
      .map(([axis]) => axis);
    const added = Object.entries(axes).filter(([axis]) => axis !== baseAxis);
    const fields = new Map(added.map(([axis, values]) => [axis, fieldsOf(values)]));
    // A section that only some values of an axis set may be missing from the sampled cells.
    for (const section of [...new Set([...sections, ...[...fields.values()].flat()])].sort()) {
      // The cell's name is composed here, not in Jsonnet.
      if (section === NAME) continue;
      const setting = [...fields].filter(([, own]) => own.includes(section)).map(([axis]) => axis);
      const sure = !hidden.has(section) && bases.every(([, visible]) => visible.includes(section));
      const table: Table = { section, sure, follows: new Set([...everywhere, ...setting]), rows: new Map() };
      this.#tables.push(table);
      this.#ask(table);
    }
    return this.#next();
  }

  /** Called during evaluation when a section read what an axis sets: the axis joins its own, and the section starts over. */
  touched(section: string, axis: string): void {
    const table = must(
      this.#tables.find((one) => one.section === section),
      `a table of ${section}`,
    );
    if (table.follows.has(axis)) return;
    table.follows.add(axis);
    table.rows.clear();
    if (this.#current?.table === table) this.#current = null;
    this.#queue = this.#queue.filter((job) => job.table !== table);
    this.#ask(table);
  }

  /** Takes the result of the last order; returns the next, null when all is done. */
  take(rows: Rows): TableOrder | null {
    if (this.#current !== null) {
      const { table, cells } = this.#current;
      [...cells.keys()].forEach((key, place) => table.rows.set(key, rows[place]));
    }
    return this.#next();
  }

  /** The settings of every cell, given those that were evaluated whole; equal sections are the same object. */
  cells(whole: readonly Record<string, unknown>[]): Record<string, unknown>[] {
    let next = 0;
    return this.shape.cells.map((cell) => {
      if (isOverridden(cell.order)) return whole[next++];
      const value: Record<string, unknown> = { run_name: cell.run_name };
      for (const { section, follows, rows } of this.#tables) {
        const found = must(rows.get(keyOf(cell, follows)), `a row of ${section}`);
        if (found.length > 0) value[section] = found[0];
      }
      return value;
    });
  }

  #ask(table: Table): void {
    const rows = new Map<string, PlacedCell>();
    for (const cell of this.#regular) {
      const key = keyOf(cell, table.follows);
      if (!rows.has(key)) rows.set(key, cell);
    }
    const all = [...rows];
    for (let from = 0; from < all.length; from += ROWS_AT_ONCE) {
      this.#queue.push({ table, cells: new Map(all.slice(from, from + ROWS_AT_ONCE)) });
    }
  }

  #next(): TableOrder | null {
    this.#current = this.#queue.shift() ?? null;
    if (this.#current === null) return null;
    const { table, cells } = this.#current;
    const order = new OrderedTable(this.shape, table, this.#regular[0]);
    for (const cell of cells.values()) order.add(cell);
    return order.order;
  }
}

/** The order of a table as a tree, so that what rows share is merged once. */
class OrderedTable {
  readonly #parts: Part[] = [];
  readonly #nodes: (readonly [number | null, number | null])[] = [];
  readonly #rows: number[] = [];
  readonly #lasts: number[] = [];
  readonly #names: string[] = [];
  /** Indices of parts and nodes, by what they are made from. */
  readonly #places = new Map<string, number>();
  readonly #axes: readonly string[];
  /** One value represents all values of a watched axis. */
  readonly #watched: ReadonlyMap<string, number>;

  constructor(
    private readonly shape: MatrixShape,
    private readonly table: Table,
    first: PlacedCell,
  ) {
    this.#axes = Object.keys(shape.axes)
      .filter((axis) => axis !== shape.baseAxis && Object.values(shape.axes[axis]).some((fields) => fields.length > 0))
      .sort();
    this.#watched = this.#mixinsOf(first);
  }

  get order(): TableOrder {
    const { section, sure, follows } = this.table;
    const watchName = !follows.has(NAME);
    const names = watchName ? this.#names.slice(0, 1) : this.#names;
    return {
      section,
      sure,
      parts: this.#parts,
      nodes: this.#nodes,
      rows: this.#rows,
      lasts: this.#lasts,
      names,
      watchName,
    };
  }

  add(cell: PlacedCell): void {
    const own = this.#mixinsOf(cell);
    let node = this.#node(null, cell.order.base);
    let last: number | null = null;
    for (const axis of this.#axes) {
      const follows = this.table.follows.has(axis);
      const mixin = (follows ? own : this.#watched).get(axis) ?? null;
      if (mixin === null && follows) continue;
      if (last !== null) node = this.#node(node, last);
      last = follows ? mixin : this.#part([mixin, axis]);
    }
    this.#rows.push(node);
    this.#lasts.push(last ?? this.#part([null, null]));
    this.#names.push(cell.run_name);
  }

  #mixinsOf({ order }: PlacedCell): ReadonlyMap<string, number> {
    return new Map(order.mixins.map((mixin) => [this.shape.mixins[mixin], mixin]));
  }

  #node(parent: number | null, part: number | null): number {
    return this.#place(`node ${parent} ${part}`, this.#nodes, [parent, part]);
  }

  #part(part: Part): number {
    return -1 - this.#place(`part ${part.join(' ')}`, this.#parts, part);
  }

  #place<T>(key: string, all: T[], one: T): number {
    const known = this.#places.get(key);
    if (known !== undefined) return known;
    this.#places.set(key, all.length);
    return all.push(one) - 1;
  }
}

/** The fields that the values of an axis set. */
function fieldsOf(values: Readonly<Record<string, readonly string[]>>): string[] {
  return [...new Set(Object.values(values).flat())];
}

function isOverridden({ overrides }: CellOrder): boolean {
  return overrides.length > 0;
}

/** Whether a cell has the same fields for all values of an axis. */
function keepsFields(values: readonly (readonly string[])[], bases: readonly (readonly string[])[]): boolean {
  return [...new Set(values.flat())].every(
    (field) => values.every((own) => own.includes(field)) || bases.every((base) => base.includes(field)),
  );
}

function keyOf({ run_name, axes }: PlacedCell, follows: ReadonlySet<string>): string {
  if (follows.has(NAME)) return run_name;
  let key = '';
  for (const axis in axes) if (follows.has(axis)) key += `${axes[axis]} `;
  return key;
}
