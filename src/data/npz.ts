/** Edit samples as .npz files: a zip of .npy arrays, as numpy.savez writes them. */
import { unzipSync, zipSync } from 'fflate';
import { DataError } from '../core/errors.js';
import { textOf } from '../core/text.js';
import { decodeNpy, encodeNpy, type NpyArray } from './npy.js';
import type { CodeGrid, EditSample } from './types.js';

/** Writes named arrays, uncompressed; the same arrays give the same bytes. */
export function encodeNpz(arrays: Readonly<Record<string, NpyArray>>): Uint8Array {
  const entries = Object.entries(arrays).map(([name, array]) => [`${name}.npy`, encodeNpy(array)] as const);
  // A fixed date (zip knows none before 1980) keeps the bytes free of the clock.
  return zipSync(Object.fromEntries(entries), { level: 0, mtime: new Date(1980, 0, 1) });
}

/** A sample is an instruction, grids of codes and two pictures: a megabyte or two. */
const MOST_UNPACKED_BYTES = 256 * 2 ** 20;

function tooLarge(where: string): DataError {
  return new DataError(
    `unpacked, the .npz file has more than ${MOST_UNPACKED_BYTES / 2 ** 20} MiB, which no sample has`,
    {
      where,
      next: 'See where it comes from; make or copy the dataset again.',
    },
  );
}

/** Reads the named arrays of a zip, stored or deflated. Raises DataError naming `where`, also for one that unpacks to more than 256 MiB. */
export function decodeNpz(bytes: Uint8Array, where: string): Map<string, NpyArray> {
  let entries: Record<string, Uint8Array>;
  let unpacked = 0;
  try {
    entries = unzipSync(bytes, {
      // What an entry says is what it gets: more than that is cut off.
      filter: ({ originalSize }) => {
        unpacked += originalSize;
        if (unpacked > MOST_UNPACKED_BYTES) throw tooLarge(where);
        return true;
      },
    });
  } catch (cause) {
    if (cause instanceof DataError) throw cause;
    throw new DataError(`not a readable .npz file (${cause instanceof Error ? cause.message : String(cause)})`, {
      where,
      next: 'The file is cut short or was never one: make or copy the dataset again.',
      cause,
    });
  }
  const arrays = new Map<string, NpyArray>();
  for (const [name, entry] of Object.entries(entries)) {
    arrays.set(name.replace(/\.npy$/, ''), decodeNpy(entry, `${where}:${name}`));
  }
  return arrays;
}

function text(value: string): NpyArray {
  const data = new TextEncoder().encode(value);
  return { dtype: 'uint8', shape: [data.length], data };
}

function grid(codes: CodeGrid): NpyArray {
  return { dtype: 'int32', shape: [codes.height, codes.width], data: codes.codes };
}

/** A sample as this program makes them: with its source's pixels. */
type DrawnSample = Omit<EditSample, 'id'> & { readonly sourcePng: Uint8Array };

/** A sample as the bytes of its file; parts that are null are left out. */
export function encodeEditSample(sample: DrawnSample): Uint8Array {
  const png = (data: Uint8Array): NpyArray => ({ dtype: 'uint8', shape: [data.length], data });
  return encodeNpz({
    instruction: text(sample.instruction),
    source_tokens: grid(sample.source),
    source_png: png(sample.sourcePng),
    ...(sample.target === null ? {} : { target_tokens: grid(sample.target) }),
    ...(sample.targetPng === null ? {} : { target_png: png(sample.targetPng) }),
    ...(sample.rationale === null ? {} : { rationale: text(sample.rationale) }),
  });
}

/** A sample from the bytes of its file. Raises DataError naming `where` and the field that is missing or wrong. */
export function decodeEditSample(bytes: Uint8Array, id: string, where: string): EditSample {
  const arrays = decodeNpz(bytes, where);
  const wrong = (name: string, wanted: string): DataError => {
    const found = arrays.get(name);
    const what = found === undefined ? 'is missing' : `is ${found.dtype} [${found.shape.join(', ')}]`;
    return new DataError(`the field '${name}' ${what}; it has to be ${wanted}`, {
      where,
      next: 'Make the dataset again with fields instruction, source_tokens, source_png and, where labelled, target_tokens, target_png, rationale.',
    });
  };
  const byteField = (name: string): Uint8Array => {
    const array = arrays.get(name);
    if (array?.dtype !== 'uint8' || array.shape.length !== 1) throw wrong(name, 'uint8 with one axis');
    return array.data;
  };
  const gridField = (name: string): CodeGrid => {
    const array = arrays.get(name);
    if (array?.dtype !== 'int32' || array.shape.length !== 2) throw wrong(name, 'int32 [height, width]');
    if (array.data.some((code) => code < 0)) throw wrong(name, 'codes of 0 and above');
    return { height: array.shape[0], width: array.shape[1], codes: array.data };
  };
  const textField = (name: string): string => textOf(byteField(name), `${where}: field '${name}'`);
  const optional = <T>(name: string, read: (name: string) => T): T | null => (arrays.has(name) ? read(name) : null);
  return {
    id,
    instruction: textField('instruction'),
    source: gridField('source_tokens'),
    sourcePng: byteField('source_png'),
    target: optional('target_tokens', gridField),
    targetPng: optional('target_png', byteField),
    rationale: optional('rationale', textField),
  };
}
