/** The samples of datasets, whatever the format of their files, and everything that is wrong with a list of them as one error. */
import { DataError } from '../core/errors.js';
import type { ListDigest } from './datalist.js';

/** A row's values by the names of its columns. */
export type Row = Readonly<Record<string, unknown>>;

/** A rectangle of vision codes (indices into the tokenizer's codebook, not vocabulary ids), row by row. */
export interface CodeGrid {
  readonly height: number;
  readonly width: number;
  readonly codes: Int32Array;
}

/** One edit: a source image, an instruction, and, if labeled, the answer. */
export interface EditSample {
  /** Stable across runs and machines: the sample's path relative to its dataset. */
  readonly id: string;
  readonly instruction: string;
  readonly source: CodeGrid;
  /** The source's pixels as PNG bytes, for judges and contact sheets. Null if it only has codes. */
  readonly sourcePng: Uint8Array | null;
  /** The labeled answer's codes. Null in prompt-only data. */
  readonly target: CodeGrid | null;
  /** The labeled answer's pixels as PNG bytes. Null in prompt-only data, and if the answer only has codes. */
  readonly targetPng: Uint8Array | null;
  /** The expected thoughts of a thinking policy before the edit. Null without any. */
  readonly rationale: string | null;
}

/** Random access to samples. They are read on demand, so a dataset need not fit in memory. */
export interface SampleSource<T> {
  readonly name: string;
  readonly length: number;
  /** A note for the user about opening it. Null without one. */
  readonly remark: string | null;
  /** Changes with the listed content, not with its location. */
  readonly digest: ListDigest;
  /** The id of the image tokenizer for the samples' codes, if known. */
  readonly tokenizer?: string | null;
  /** Raises DataError naming the file when a sample cannot be read. */
  read(index: number): T;
}

/** Problems that are shown at once. */
const MAX_SHOWN = 20;

/** All problems of a list, at least one, as one error. */
export function oneOf(path: string, problems: readonly DataError[]): DataError {
  const [first] = problems;
  if (problems.length === 1) return first;
  const shown = problems.slice(0, MAX_SHOWN).map(({ where, message }) => `${where}: ${message}`);
  const more = problems.length > MAX_SHOWN ? [`and ${problems.length - MAX_SHOWN} more`] : [];
  return new DataError([`${problems.length} problems found`, ...shown, ...more].join('\n  '), {
    where: path,
    next: `\`editrl data check ${path}\` lists all of them, and also checks the files.`,
  });
}
