/** A published benchmark of image edits as data: its questions to a judge, and how their answers become the numbers of its tables. */
import type { z } from 'zod';
import type { Row } from '../../data/types.js';
import type { ReplyForm } from '../judge/forms.js';
import type { ImageName, Placeholders } from '../judge/template.js';
import type { ScoreParts } from '../score/types.js';
import type { Manner } from '../terms/judged/prompted.js';

/** An image of a question: the edit itself, or a file, relative to the folder of the benchmark. */
export type BenchmarkImage = 'edited' | { readonly file: string };

/** Images with a label before each. */
export type LabeledImages = readonly { readonly label: string; readonly image: BenchmarkImage }[];

export interface BenchmarkQuestion {
  /** Its name in keys of judgements. */
  readonly name: string;
  /** The name of its prompt file, without `.txt`. */
  readonly prompt: string;
  readonly words: Readonly<Record<string, string>>;
  readonly images: Readonly<Partial<Record<ImageName, BenchmarkImage | LabeledImages>>>;
  readonly form: ReplyForm;
  /** The parts of its scores, in order. Null for a score that follows from another. */
  readonly parts: readonly (string | null)[];
  /** The judge model, if it is not that of the other questions. */
  readonly model?: string;
}

/** An edit of a benchmark. */
export interface BenchmarkAnswer {
  readonly row: Row;
  /** The scores of its questions by part. Null if the judge gave none. */
  readonly parts: ScoreParts | null;
}

/** A table of results. A line counts the edits with scores (`n`) and without. A null is a number that does not exist. */
export interface BenchmarkTable {
  readonly title: string;
  readonly columns: readonly string[];
  readonly lines: readonly BenchmarkLine[];
}

export interface BenchmarkLine {
  readonly name: string;
  readonly n: number;
  readonly unscored: number;
  readonly values: readonly (number | null)[];
}

export interface Benchmark<Name extends string = string, Fields extends z.ZodRawShape = z.ZodRawShape> {
  readonly name: Name;
  readonly title: string;
  /** Where its prompts and its published script come from. */
  readonly repository: string;
  /** The judge of its published numbers. */
  readonly judge: string;
  readonly manner: Manner;
  /** Settings of its own. */
  readonly fields: Fields;
  /** The prompt files by name, with their placeholders. */
  readonly prompts: Readonly<Record<string, Placeholders<ImageName>>>;
  /** Whether the judge gets the edit in the size of the source (Pillow's bicubic interpolation). */
  readonly inSourceSize: boolean;
  /** How its numbers may differ from published ones, besides the judge and what all benchmarks have in common. */
  readonly differences: readonly string[];
  /** The names of all questions that an edit may have. */
  asks(settings: z.output<z.ZodObject<Fields>>): readonly string[];
  /** The questions about an edit. Raises DataError for a row without a column that they need. */
  questions(row: Row, settings: z.output<z.ZodObject<Fields>>): readonly BenchmarkQuestion[];
  /** The value of an edit from 0 to 1. */
  value(parts: ScoreParts, row: Row): number;
  tables(answers: readonly BenchmarkAnswer[], settings: z.output<z.ZodObject<Fields>>): readonly BenchmarkTable[];
}

/** Keeps the types of a benchmark's own fields. */
export function benchmark<Name extends string, Fields extends z.ZodRawShape>(
  one: Benchmark<Name, Fields>,
): Benchmark<Name, Fields> {
  return one;
}

/** How every benchmark differs from its published client. */
export const commonDifferences: readonly string[] = [
  'Images are sent as PNG, and sides above 1024 pixels are reduced.',
  'Texts are inserted on one line, and control tokens in them are broken up.',
  'An unreadable reply is asked again with another seed, and then leaves its edit out of all numbers.',
];
