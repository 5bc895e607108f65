/** The common steps of every judged reward before and after its questions: rules that need no judge, and one outcome from several answers. */
import { DataError } from '../../core/errors.js';
import type { RgbImage } from '../../core/images/image.js';
import { isShowable, judgeImage, whyUnshowable, type JudgeImage } from '../judge/images.js';
import { excerpt } from '../judge/parse.js';
import type { JudgeItem, Judgement, Outcome, ScoreParts } from './types.js';

/** An item to be judged, with its images prepared. */
export interface JudgedItem {
  readonly key: string;
  readonly instruction: string;
  readonly source: JudgeImage;
  readonly edited: JudgeImage;
  /** Null if the reward does not use it. */
  readonly truth: JudgeImage | null;
}

/**
 * Applies the rules that need no judge: returns an outcome if they decide, else the prepared item. An edited image of a shape that no judge
 * accepts (200:1 or longer) is the answer's fault and counts as undecodable. A source or labeled result of such a shape is the dataset's
 * fault and leaves the item unscored. Images that are only small are enlarged. `truthFor` names the reward that compares with the labeled
 * result, or is null. Raises DataError for an item that lacks an image it needs.
 */
export function prepareItem(item: JudgeItem, truthFor: string | null): JudgedItem | Outcome {
  if (truthFor !== null && item.truth === null) {
    throw new DataError(`reward '${truthFor}' compares with the labeled result, but this prompt has none`, {
      where: item.key,
      next: "Train on data with labeled results, or choose a reward that needs none, such as 'viescore'.",
    });
  }
  if (item.source === null) {
    throw new DataError('a judged edit needs its source image, but this item has none', {
      where: item.key,
      next: 'Choose a reward that judges the artifact alone, such as align_quality, ocr or clip.',
    });
  }
  const shownTruth = truthFor === null ? null : item.truth;
  if (item.edited === null || !isShowable(item.edited)) {
    return { kind: 'zero_by_rule', reason: 'undecodable', parts: {} };
  }
  const problem = problemOf('source image', item.source) ?? problemOf('labeled result', shownTruth);
  if (problem !== null) {
    return { kind: 'unscored', reason: 'bad_request', detail: `${item.key}, ${problem}`, parts: {} };
  }
  const prepare = (image: RgbImage, what: string): JudgeImage => judgeImage(image, `${item.key}, ${what}`);
  return {
    key: item.key,
    instruction: item.instruction,
    source: prepare(item.source, 'source image'),
    edited: prepare(item.edited, 'edited image'),
    truth: shownTruth === null ? null : prepare(shownTruth, 'labeled result'),
  };
}

function problemOf(what: string, image: RgbImage | null): string | null {
  const problem = image === null ? null : whyUnshowable(image);
  return problem === null ? null : `${what}: ${problem}`;
}

/** The outcome of an item if at least one question got no scores: unscored, for the reason of the first one. Null if all got scores. */
export function unscoredOutcome(judgements: readonly Judgement[], parts: ScoreParts): Outcome | null {
  for (const { key, problem, detail, text } of judgements) {
    if (problem === null) continue;
    const found = detail ?? (text === '' ? problem : excerpt(text));
    return { kind: 'unscored', reason: problem, detail: `${key}: ${found}`, parts };
  }
  return null;
}
