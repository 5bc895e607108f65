/** What every judged reward does before and after it asks: rules that need no judge, and joining several answers to one outcome. */
import { DataError } from '../core/errors.js';
import type { JudgeImage, JudgeImages } from './judge_images.js';
import { isShowable } from './judge_images.js';
import { excerpt } from './parse.js';
import type { JudgeItem, Judgement, Outcome, ScoreParts } from './types.js';

/** An item that has to be judged: its images are there and prepared. */
export interface JudgedItem {
  readonly key: string;
  readonly instruction: string;
  readonly source: JudgeImage;
  readonly edited: JudgeImage;
  /** Null where the dataset has no labelled result, or nothing asks for it. */
  readonly truth: JudgeImage | null;
}

export interface ItemRules {
  /** An answer that did not end by itself scores 0. */
  readonly zeroIfUnfinished: boolean;
  /** The mode that compares with the labelled result, by name; null where none is needed. */
  readonly needsTruthFor: string | null;
  /** Whether any question, recorded ones included, shows the labelled result. */
  readonly usesTruth: boolean;
}

/**
 * Applies the rules that need no judge: an outcome where they decide, else the prepared item. An edited image too small to be shown is the
 * answer's fault and counts as undecodable. Raises DataError for what is the dataset's: a missing labelled result, a source too small.
 */
export function prepareItem(item: JudgeItem, rules: ItemRules, images: JudgeImages): JudgedItem | Outcome {
  if (rules.needsTruthFor !== null && item.truth === null) {
    throw new DataError(
      `reward mode '${rules.needsTruthFor}' compares with the labelled result, but this prompt has none`,
      {
        where: item.key,
        next: "Train on data with labelled results, or set reward.mode to 'viescore', which needs none.",
      },
    );
  }
  if (item.source === null) {
    throw new DataError('a judged edit needs its source image, but this item has none', {
      where: item.key,
      next: 'Choose a reward that looks at the artifact alone, such as align_quality, ocr or clip.',
    });
  }
  const source = images.prepare(item.source, `${item.key}, source image`);
  const truth =
    rules.usesTruth && item.truth !== null ? images.prepare(item.truth, `${item.key}, labelled result`) : null;
  if (item.edited === null || !isShowable(item.edited)) {
    return { kind: 'zero_by_rule', reason: 'undecodable', parts: {} };
  }
  if (rules.zeroIfUnfinished && !item.finished) return { kind: 'zero_by_rule', reason: 'unfinished', parts: {} };
  const edited = images.prepare(item.edited, `${item.key}, edited image`);
  return { key: item.key, instruction: item.instruction, source, edited, truth };
}

/** The outcome of an item of which at least one question got no scores: unscored, for the first one's reason. Null where all did. */
export function unscoredOutcome(judgements: readonly Judgement[], parts: ScoreParts): Outcome | null {
  for (const { key, problem, detail, text } of judgements) {
    if (problem === null) continue;
    const found = detail ?? (text === '' ? problem : excerpt(text));
    return { kind: 'unscored', reason: problem, detail: `${key}: ${found}`, parts };
  }
  return null;
}
