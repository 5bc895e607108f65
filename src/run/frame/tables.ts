/** The tables that a run's records become for other programs: their columns, and a row from a recorded line. */
import type { ColumnType, ColumnTypes, TableRow } from '../../core/parquet.js';
import { isHeldOut } from '../../rewards/score/types.js';
import { parseHeldOutKey } from '../held_out_key.js';
import { decodeNumber } from '../journal.js';
import { iterationOfKey } from '../judgement_files.js';
import { metricsOfLine } from '../metrics.js';

/** A recorded line as JSON. */
export type RecordedLine = Readonly<Record<string, unknown>>;

/** What all rows of a run have in common. */
export interface RowOwner {
  readonly run: string;
  /** The cell's name within its experiment; null for a run that is none. */
  readonly cell: string | null;
  readonly seed: number | null;
  /** The cell's value on each axis. */
  readonly axes: Readonly<Record<string, string>>;
}

/** One kind of record as a table. */
export interface FrameTable {
  /** Columns that are there whatever the rows hold. */
  readonly columns: ColumnTypes;
  /** Values of a line that have columns of their own by what they are called, all of them numbers. */
  readonly named: (line: RecordedLine) => Readonly<Record<string, number>>;
  readonly row: (line: RecordedLine) => TableRow;
}

const OWNER = { run: 'text', cell: 'text', seed: 'integer' } as const satisfies ColumnTypes;

export const AXIS = 'axis/';

/** The columns that each table has whatever the rows hold. */
export const COLUMNS = {
  metrics: { ...OWNER, iteration: 'integer' },
  episodes: {
    ...OWNER,
    iteration: 'integer',
    key: 'text',
    held_out: 'boolean',
    set: 'text',
    sampling: 'text',
    sample: 'text',
    instruction: 'text',
    finished: 'boolean',
    text: 'text',
    answer: 'text',
    expected: 'text',
    tokens: 'integers',
    outcome: 'text',
    reason: 'text',
    detail: 'text',
    value: 'number',
    normalised: 'number',
    log_prob: 'number',
    advantage: 'number',
    source: 'text',
    edited: 'text',
    truth: 'text',
    other: 'text',
  },
  judgements: {
    ...OWNER,
    iteration: 'integer',
    key: 'text',
    held_out: 'boolean',
    episode: 'text',
    query: 'text',
    model: 'text',
    text: 'text',
    problem: 'text',
    detail: 'text',
    scores: 'numbers',
    attempts: 'integer',
    latency_ms: 'number',
    prompt_tokens: 'integer',
    completion_tokens: 'integer',
    request_hash: 'text',
    prompt_hash: 'text',
    left_out: 'texts',
  },
} as const satisfies Readonly<Record<string, ColumnTypes>>;

export type TableName = keyof typeof COLUMNS;

/** Something for each table. */
export function perTable<T>(of: (name: TableName) => T): Readonly<Record<TableName, T>> {
  return { metrics: of('metrics'), episodes: of('episodes'), judgements: of('judgements') };
}

export const TABLES: Readonly<Record<TableName, FrameTable>> = {
  metrics: {
    columns: COLUMNS.metrics,
    named: (line) => metricsOfLine(line).metrics,
    row: ({ iteration }) => ({ iteration: integer(iteration) }),
  },
  episodes: {
    columns: COLUMNS.episodes,
    named: (line) => {
      const { parts, terms, measures } = object(line['outcome']);
      const weighed = Array.isArray(terms) ? terms.map(object) : [];
      return {
        ...numbersOf(object(parts), (name) => `parts/${name}`),
        ...numbersOf(
          Object.fromEntries(weighed.map(({ name, normalised }) => [String(name), normalised])),
          (name) => `terms/${name}`,
        ),
        ...numbersOf(
          object(measures),
          (name) => `measures/${name}`,
          (measured) => decodeNumber(object(measured)['value']),
        ),
      };
    },
    row: ({ outcome, ...line }) => {
      const { kind, reason, detail, value, normalised } = object(outcome);
      const place = parseHeldOutKey(line['key']);
      const own = pick(COLUMNS.episodes, {
        ...line,
        outcome: kind,
        reason,
        detail,
        value,
        normalised,
        held_out: place !== null,
        set: place?.set,
        sampling: place?.sampling,
      });
      const rest = Object.entries(line).filter(([name]) => !Object.hasOwn(COLUMNS.episodes, name));
      return { ...own, other: rest.length === 0 ? null : JSON.stringify(Object.fromEntries(rest)) };
    },
  },
  judgements: {
    columns: COLUMNS.judgements,
    named: () => ({}),
    row: (line) => {
      const key = String(line['key']);
      const cut = key.lastIndexOf('/');
      const iteration = iterationOfKey(key);
      const { prompt, completion } = object(line['tokens']);
      return pick(COLUMNS.judgements, {
        ...line,
        iteration: iteration < 0 ? null : iteration,
        held_out: isHeldOut({ key }),
        episode: cut < 0 ? null : key.slice(0, cut),
        query: key.slice(cut + 1),
        prompt_tokens: prompt,
        completion_tokens: completion,
      });
    },
  },
};

/** The values that all rows of a run have. */
export function ownerRow({ run, cell, seed, axes }: RowOwner): TableRow {
  return { run, cell, seed, ...renamed(axes, (name) => `${AXIS}${name}`) };
}

/** The values that columns can hold; anything else, as of another version, is null there. */
function pick(columns: ColumnTypes, values: Readonly<Record<string, unknown>>): TableRow {
  const row: Record<string, unknown> = {};
  for (const name in columns) if (!Object.hasOwn(OWNER, name)) row[name] = READ[columns[name]](values[name]);
  return row;
}

const READ: Readonly<Record<ColumnType, (value: unknown) => unknown>> = {
  text: (value) => (typeof value === 'string' ? value : null),
  number: decodeNumber,
  integer,
  boolean: (value) => (typeof value === 'boolean' ? value : null),
  integers: (value) => listed(value, integer),
  numbers: (value) => listed(value, decodeNumber),
  texts: (value) => listed(value, (item) => (typeof item === 'string' ? item : null)),
};

function integer(value: unknown): number | null {
  return Number.isSafeInteger(value) ? (value as number) : null;
}

function listed<T>(value: unknown, read: (item: unknown) => T | null): (T | null)[] | null {
  return Array.isArray(value) ? value.map(read) : null;
}

function object(value: unknown): RecordedLine {
  return typeof value === 'object' && value !== null ? (value as RecordedLine) : {};
}

function numbersOf(
  values: RecordedLine,
  nameOf: (name: string) => string,
  valueOf = decodeNumber,
): Record<string, number> {
  const numbers: Record<string, number> = {};
  for (const name in values) {
    const number = valueOf(values[name]);
    if (number !== null) numbers[nameOf(name)] = number;
  }
  return numbers;
}

/** The same values under other names. */
export function renamed<T>(values: Readonly<Record<string, T>>, nameOf: (name: string) => string): Record<string, T> {
  const all: Record<string, T> = {};
  for (const name in values) all[nameOf(name)] = values[name];
  return all;
}
