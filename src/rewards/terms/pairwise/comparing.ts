/** A term that compares the answers of a group in pairs, or a single answer with a rival, whatever its question. */
import { DataError } from '../../../core/errors.js';
import { judgeImage, whyUnshowable } from '../../judge/images.js';
import { prepareItem } from '../../score/judged_item.js';
import type { AnswerGroup, JudgeItem, Outcome, ScoreOptions } from '../../score/types.js';
import type { Term } from '../term.js';
import type { Rival } from './fields.js';
import { compareAlone, compareGroup, type Ask } from './meeting.js';
import type { Rounds } from './tournament.js';

interface Comparing {
  readonly name: string;
  readonly rounds: Rounds;
  readonly against: Rival;
  readonly ask: Ask;
}

/** Its `score` raises DataError for a single answer without the rival that it needs. */
export function comparingTerm({ name, rounds, against, ask }: Comparing): Term {
  const byGroup = new WeakMap<AnswerGroup, Promise<ReadonlyMap<string, Outcome>>>();

  async function score(item: JudgeItem, signal?: AbortSignal, options?: ScoreOptions): Promise<Outcome> {
    const prepared = prepareItem(item, null);
    if ('kind' in prepared) return prepared;
    const group = options?.group;
    if (group !== undefined) {
      if (group.answers.length + group.ruledOut < 2) return withoutRivals(item);
      const compared = byGroup.get(group) ?? compareGroup(group, { rounds, ask }, signal, options);
      byGroup.set(group, compared);
      const found = (await compared).get(item.key);
      return found ?? { kind: 'unscored', reason: 'aborted', detail: `${item.key} is not in its group`, parts: {} };
    }
    const rival = against === 'label' ? item.truth : item.source;
    if (rival === null) {
      throw new DataError(`the term '${name}' compares with the labeled result, but this prompt has none`, {
        where: item.key,
        next: `Evaluate on data with labeled results, or leave ${name}.against at 'source'.`,
      });
    }
    const problem = whyUnshowable(rival);
    if (problem !== null) {
      return {
        kind: 'unscored',
        reason: 'bad_request',
        detail: `${item.key}, ${against} image: ${problem}`,
        parts: {},
      };
    }
    return compareAlone(prepared, judgeImage(rival, `${item.key}, ${against} image`), ask, signal, options);
  }

  return {
    name,
    score: async (item, signal, options) => partsOfTerm(name, await score(item, signal, options)),
    close: async () => {},
  };
}

/** Names the parts of a meeting by the term, so that two terms of one run keep theirs apart. */
function partsOfTerm(name: string, outcome: Outcome): Outcome {
  const parts = Object.entries(outcome.parts).map(([part, value]) => [part.replace(/^pairwise(?=\/)/, name), value]);
  return { ...outcome, parts: Object.fromEntries(parts) as Outcome['parts'] };
}

/** All others of its group are lost: compared with the source, it would be worth something else than they are. */
function withoutRivals({ key }: JudgeItem): Outcome {
  const detail = `${key}: its group has no other answer to compare with`;
  return { kind: 'unscored', reason: 'aborted', detail, parts: {} };
}
