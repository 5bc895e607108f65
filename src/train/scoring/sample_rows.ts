/** Rows of a run's datasets with answers that need no model: what rewards are tried on before anything is trained. */
import type { RgbImage } from '../../core/images/image.js';
import type { JudgeItem } from '../../rewards/score/types.js';

/** An answer to a row that is there without a model. */
export interface SampleAnswer {
  /** A description for people: 'the labeled answer', 'an empty answer'. */
  readonly what: string;
  /** Its words. Absent where the recipe's answers have none. */
  readonly answer?: string;
  readonly edited: RgbImage | null;
}

export interface SampleRow {
  /** The location of the row. */
  readonly place: string;
  readonly item: Pick<JudgeItem, 'instruction' | 'source' | 'beside' | 'truth' | 'mask' | 'expected' | 'row'>;
  readonly answers: readonly SampleAnswer[];
}

/** The first rows of one dataset. */
export interface SampledSet {
  /** The path as the config gives it. */
  readonly path: string;
  readonly heldOut: boolean;
  readonly rows: readonly SampleRow[];
}

/** Answers in words: the label if there is one, the prompt itself, and an empty answer. `edited` is the image that comes with each. */
export function wordAnswers(
  { instruction, expected }: Pick<JudgeItem, 'instruction' | 'expected'>,
  edited: RgbImage | null = null,
): SampleAnswer[] {
  const label = expected === undefined ? [] : [{ what: 'the labelled answer', answer: expected, edited }];
  return [
    ...label,
    { what: 'the prompt itself', answer: instruction, edited },
    { what: 'an empty answer', answer: '', edited },
  ];
}

interface Sources<T> {
  readonly train: readonly T[];
  readonly validation: readonly T[];
}

/** Reads the first rows of every dataset of a config, one after the other. */
export async function sampledSets<T extends { readonly path: string }>(
  { train, validation }: Sources<T>,
  read: (source: T) => Promise<readonly SampleRow[]>,
): Promise<SampledSet[]> {
  const sets: SampledSet[] = [];
  const all = [...train.map((one) => ({ one, heldOut: false })), ...validation.map((one) => ({ one, heldOut: true }))];
  for (const { one, heldOut } of all) sets.push({ path: one.path, heldOut, rows: await read(one) });
  return sets;
}
