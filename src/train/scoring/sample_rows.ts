/** Rows of a run's datasets with answers that need no model. Rewards are tried on them before training. */
import type { RgbImage } from '../../core/images/image.js';
import type { JudgeItem } from '../../rewards/score/types.js';

/** An answer to a row that needs no model. */
export interface SampleAnswer {
  /** A description for people: 'the labeled answer', 'an empty answer'. */
  readonly what: string;
  /** Its words. Absent if the recipe's answers have none. */
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
  /** The path in the config. */
  readonly path: string;
  readonly heldOut: boolean;
  readonly rows: readonly SampleRow[];
}

/**
 * Text answers: the label if there is one, the prompt itself, and an empty answer. `edited` is the image of each.
 */
export function wordAnswers(
  { instruction, expected }: Pick<JudgeItem, 'instruction' | 'expected'>,
  edited: RgbImage | null = null,
): SampleAnswer[] {
  const label = expected === undefined ? [] : [{ what: 'the labeled answer', answer: expected, edited }];
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

/** Reads the first rows of every dataset of a config, one dataset after another. */
export async function sampledSets<T extends { readonly path: string }>(
  { train, validation }: Sources<T>,
  read: (source: T) => Promise<readonly SampleRow[]>,
): Promise<SampledSet[]> {
  const sets: SampledSet[] = [];
  const all = [...train.map((one) => ({ one, heldOut: false })), ...validation.map((one) => ({ one, heldOut: true }))];
  for (const { one, heldOut } of all) sets.push({ path: one.path, heldOut, rows: await read(one) });
  return sets;
}
