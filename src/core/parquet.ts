/** Parquet files that are written a row at a time, with types that are said beforehand and never guessed from rows. */
import { fileWriter, ParquetWriter, type ColumnSource } from 'hyparquet-writer';
import { must } from './errors.js';

/** What a column holds; `integers` are lists of 32 bits. Every value may be null. */
export type ColumnType = 'text' | 'number' | 'integer' | 'boolean' | 'integers' | 'numbers' | 'texts';

/** The types of columns by their names, in the order of the file. */
export type ColumnTypes = Readonly<Record<string, ColumnType>>;

/** A row's values by column; a column that is missing is null there. */
export type TableRow = Readonly<Record<string, unknown>>;

type SchemaElement = ConstructorParameters<typeof ParquetWriter>[0]['schema'][number];

const TEXT = { type: 'BYTE_ARRAY', converted_type: 'UTF8', logical_type: { type: 'STRING' } } as const;
const NUMBER = { type: 'DOUBLE' } as const;
const INTEGER = { type: 'INT64' } as const;

/** The parts of a schema that each type is written as. */
const ELEMENTS: Readonly<Record<ColumnType, (name: string) => SchemaElement[]>> = {
  text: (name) => [{ name, repetition_type: 'OPTIONAL', ...TEXT }],
  number: (name) => [{ name, repetition_type: 'OPTIONAL', ...NUMBER }],
  integer: (name) => [{ name, repetition_type: 'OPTIONAL', ...INTEGER }],
  boolean: (name) => [{ name, repetition_type: 'OPTIONAL', type: 'BOOLEAN' }],
  integers: (name) => listOf(name, { type: 'INT32' }),
  numbers: (name) => listOf(name, NUMBER),
  texts: (name) => listOf(name, TEXT),
};

function listOf(name: string, element: Omit<SchemaElement, 'name'>): SchemaElement[] {
  return [
    { name, repetition_type: 'OPTIONAL', num_children: 1, converted_type: 'LIST', logical_type: { type: 'LIST' } },
    { name: 'list', repetition_type: 'REPEATED', num_children: 1 },
    { name: 'element', repetition_type: 'OPTIONAL', ...element },
  ];
}

/** How a value of each type is handed over; whoever appends rows answers for its kind. */
const STORED: Readonly<Partial<Record<ColumnType, (value: never) => unknown>>> = {
  integer: (value: number) => BigInt(value),
};

/** A group of rows is written once it has this many, or holds about this much text. */
const GROUP_ROWS = 20_000;
const GROUP_BYTES = 32 * 2 ** 20;

/** A parquet file under way. Only the rows of one group are held in memory. Every method raises the system's error where the disk refuses. */
export class ParquetTable {
  readonly #writer: ParquetWriter;
  /** Values of the group by column; a column is shorter than the group while its last values are null. */
  readonly #columns: ReadonlyMap<string, unknown[]>;
  #rows = 0;
  #bytes = 0;
  #count = 0;

  /** Begins the file, over what was there. */
  constructor(
    readonly path: string,
    private readonly types: ColumnTypes,
  ) {
    const names = Object.keys(types);
    this.#columns = new Map(names.map((name) => [name, []]));
    const schema = [
      { name: 'root', num_children: names.length },
      ...names.flatMap((name) => ELEMENTS[types[name]](name)),
    ];
    this.#writer = new ParquetWriter({ writer: fileWriter(path), schema, createdBy: 'editrl' });
  }

  /** Rows that were appended. */
  get count(): number {
    return this.#count + this.#rows;
  }

  /** Appends a row of several parts, of about so many bytes. */
  append(parts: readonly TableRow[], bytes: number): void {
    for (const part of parts) {
      for (const name in part) {
        const column = must(this.#columns.get(name), `a column ${name}`);
        padTo(column, this.#rows);
        column.push(part[name]);
      }
    }
    this.#rows++;
    this.#bytes += bytes;
    if (this.#rows >= GROUP_ROWS || this.#bytes >= GROUP_BYTES) this.#flush();
  }

  /** Ends the file. */
  finish(): void {
    this.#flush();
    void this.#writer.finish();
  }

  #flush(): void {
    const rows = this.#rows;
    if (rows === 0) return;
    const columnData = [...this.#columns].map(([name, column]): ColumnSource => {
      padTo(column, rows);
      const stored = STORED[this.types[name]] as ((value: unknown) => unknown) | undefined;
      const data = column.splice(0);
      return { name, data: stored === undefined ? data : data.map((value) => (value === null ? null : stored(value))) };
    });
    // Done once it returns: what writes to a file gives no promise.
    void this.#writer.write({ columnData, rowGroupSize: rows });
    this.#count += rows;
    [this.#rows, this.#bytes] = [0, 0];
  }
}

function padTo(column: unknown[], length: number): void {
  while (column.length < length) column.push(null);
}
