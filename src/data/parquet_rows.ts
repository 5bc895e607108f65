/** The rows of parquet files as JSON values. */
import { isUtf8 } from 'node:buffer';
import { closeSync, fstatSync, openSync, readSync } from 'node:fs';
import {
  parquetMetadata,
  parquetReadObjects,
  parquetSchema,
  type ParquetReadOptions,
  type SchemaTree,
} from 'hyparquet';
import { DataError } from '../core/errors.js';
import { refuseLfsPointer } from '../core/text.js';
import type { Row } from './types.js';

/** Bytes that are not UTF-8 stay bytes: hyparquet's own decoders replace them by U+FFFD. */
export const STRICT_TEXTS: NonNullable<ParquetReadOptions['parsers']> = {
  stringFromBytes: (bytes: Uint8Array | undefined) => strictText(bytes),
  jsonFromBytes: (bytes: Uint8Array | undefined) => {
    const text = strictText(bytes);
    return typeof text === 'string' ? (JSON.parse(text) as unknown) : text;
  },
};

function strictText(bytes: Uint8Array | undefined): string | Uint8Array | undefined {
  return bytes !== undefined && isUtf8(bytes) ? new TextDecoder().decode(bytes) : bytes;
}

/** The first `most` rows, or all. A row whose text is not UTF-8 is an error, naming file and row. Raises DataError for a file that cannot be read. */
export async function readParquetRows(
  bytes: Uint8Array,
  file: string,
  most?: number,
): Promise<readonly (Row | DataError)[]> {
  const { compressors } = await import('hyparquet-compressors');
  // A copy: the pool that small files are read into is shared.
  const whole = bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength) as ArrayBuffer;
  try {
    const metadata = parquetMetadata(whole);
    const tree = parquetSchema(metadata);
    const decimals = new Map<SchemaTree, number>();
    takeDecimals(tree, decimals);
    const rowEnd = most === undefined ? {} : { rowEnd: most };
    const options = { file: whole, metadata, compressors, utf8: false, parsers: STRICT_TEXTS, ...rowEnd };
    const found = await parquetReadObjects(options);
    return found.map((row, i) => {
      try {
        return plainValue(row, tree, decimals) as Row;
      } catch (cause) {
        if (!(cause instanceof DataError)) throw cause;
        return new DataError(cause.message, { where: `${file}:${i + 1}`, next: 'Write the text as UTF-8.' });
      }
    });
  } catch (cause) {
    throw parquetError(cause, file);
  }
}

/**
 * A row with the columns of a file and without values, from its footer alone. Raises DataError for a file without one.
 */
export function parquetColumns(path: string): Row {
  const footer = parquetFooter(path);
  try {
    return emptyOf(parquetSchema(parquetMetadata(footer))) as Row;
  } catch (cause) {
    throw parquetError(cause, path);
  }
}

/**
 * The error for a file that hyparquet cannot read: an unsupported feature, or damage, which its own words do not
 * explain.
 */
export function parquetError(cause: unknown, where: string): DataError {
  if (cause instanceof DataError) return cause;
  const reason = (cause as Error).message;
  const [found, next] = /not supported|unsupported(?!.*undefined)/.test(reason)
    ? [reason, 'Write the file again with pandas, pyarrow or DuckDB, without that feature.']
    : ['it is damaged or was cut short', 'Fetch the file again.'];
  return new DataError(`cannot be read as parquet: ${found}`, { where, next, cause });
}

/** The file's end: the footer, its length in four bytes, and PAR1. */
function parquetFooter(path: string): Uint8Array {
  const file = openSync(path, 'r');
  try {
    const { size } = fstatSync(file);
    const start = Buffer.alloc(64);
    refuseLfsPointer(start.subarray(0, readSync(file, start, 0, start.length, 0)), path);
    const tail = Buffer.alloc(8);
    if (size >= 12) readSync(file, tail, 0, 8, size - 8);
    const length = tail.readUInt32LE(0);
    if (tail.toString('latin1', 4) !== 'PAR1' || length > size - 12) {
      throw new DataError('cannot be read as parquet: it does not end as one does', {
        where: path,
        next: 'Fetch the file again.',
      });
    }
    const footer = Buffer.alloc(length + 8);
    readSync(file, footer, 0, footer.length, size - footer.length);
    return footer;
  } finally {
    closeSync(file);
  }
}

/** Null for a column of values or lists. An object for one of named fields. */
function emptyOf({ element, children }: SchemaTree): unknown {
  const isNested = children.length > 0 && !['LIST', 'MAP'].includes(element.converted_type ?? '');
  if (!isNested) return null;
  return Object.fromEntries(children.map((child) => [child.element.name, emptyOf(child)]));
}

/**
 * hyparquet returns decimals as numbers, which lose digits. Without their mark they are returned as the stored whole
 * numbers.
 */
function takeDecimals(node: SchemaTree, found: Map<SchemaTree, number>): void {
  const { element, children } = node;
  const logical = element.logical_type;
  if (element.converted_type === 'DECIMAL' || logical?.type === 'DECIMAL') {
    found.set(node, element.scale ?? (logical?.type === 'DECIMAL' ? logical.scale : 0));
    delete element.converted_type;
    delete element.logical_type;
  }
  for (const child of children) takeDecimals(child, found);
}

/**
 * The JSON value. Whole numbers arrive as bigint. One that a number cannot hold exactly becomes text, and so does a
 * decimal, with all its digits. Bytes of a column without a type become text if possible. Raises DataError for a text
 * column with bytes that are not UTF-8.
 */
function plainValue(value: unknown, node: SchemaTree | null, decimals: ReadonlyMap<SchemaTree, number>): unknown {
  if (value === null || value === undefined) return null;
  if (Array.isArray(value)) return value.map((one) => plainValue(one, node, decimals));
  if (typeof value === 'object' && Object.getPrototypeOf(value) === Object.prototype) {
    const entries = Object.entries(value);
    return Object.fromEntries(entries.map(([key, one]) => [key, plainValue(one, fieldOf(node, key), decimals)]));
  }
  const leaf = leafOf(node);
  const scale = leaf === null ? undefined : decimals.get(leaf);
  if (scale !== undefined) return decimalText(value as number | bigint | Uint8Array, scale);
  if (typeof value === 'bigint') return Number.isSafeInteger(Number(value)) ? Number(value) : String(value);
  if (!(value instanceof Uint8Array)) return value;
  const { converted_type: type, logical_type: logical } = leaf?.element ?? {};
  if (['UTF8', 'JSON', 'ENUM'].includes(type ?? '') || logical?.type === 'STRING') {
    throw new DataError(`column '${leaf?.path.join('.')}' has a text that is not UTF-8`);
  }
  return isUtf8(value) && !value.includes(0) ? strictText(value) : value;
}

/** The part of a schema that a field of a value has. Lists and maps have inner nodes that their values do not show. */
function fieldOf(node: SchemaTree | null, key: string): SchemaTree | null {
  if (node === null || node.children.length === 0) return null;
  if (['MAP', 'MAP_KEY_VALUE'].includes(node.element.converted_type ?? '')) return node.children[0].children[1] ?? null;
  const named = node.children.find(({ element }) => element.name === key);
  return named ?? (node.children.length === 1 ? fieldOf(node.children[0], key) : null);
}

function leafOf(node: SchemaTree | null): SchemaTree | null {
  return node?.children.length === 1 ? leafOf(node.children[0]) : node;
}

/** A decimal with the number of digits after the point that its column has. */
function decimalText(stored: number | bigint | Uint8Array, scale: number): string {
  const bytes = stored instanceof Uint8Array ? Buffer.from(stored).toString('hex') : null;
  const value =
    bytes === null ? BigInt(stored as number | bigint) : BigInt.asIntN(bytes.length * 4, BigInt(`0x${bytes}`));
  const digits = String(value < 0n ? -value : value).padStart(scale + 1, '0');
  const point = scale === 0 ? '' : `.${digits.slice(-scale)}`;
  return `${value < 0n ? '-' : ''}${digits.slice(0, digits.length - scale)}${point}`;
}
