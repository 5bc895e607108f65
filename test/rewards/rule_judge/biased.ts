import { examine } from '../../../src/rewards/exam/examine.js';
import { marksOf, type ExamMarks } from '../../../src/rewards/exam/findings.js';
import { overallViescore } from '../../../src/rewards/terms/judged/viescore_parts.js';
import type { JudgeItem, Outcome } from '../../../src/rewards/score/types.js';
import { must } from '../../../src/core/errors.js';
import { withBiases, type BiasContext } from '../../../src/rewards/rule_judge/biases.js';
import { scoreConsistency } from '../../../src/rewards/rule_judge/consistency.js';
import { tinyExam } from '../../../src/rewards/rule_judge/exam_cases.js';
import { scoreQuality } from '../../../src/rewards/rule_judge/quality.js';
import { readScene } from '../../../src/rewards/rule_judge/read_scene.js';
import { DEFAULT_GEOMETRY } from '../../../src/data/tiny/world.js';
import { wrongScores, type WrongWays } from './wrong_ways.js';

/** VIEScore by a biased rule judge, without a server between. */
export function biasedScore(biases: WrongWays) {
  return async ({ instruction, ...item }: JudgeItem): Promise<Outcome> => {
    const [source, edited] = [must(item.source, 'a source'), must(item.edited, 'an edit')];
    const reading = readScene(edited, DEFAULT_GEOMETRY);
    const { success, overedit } = scoreConsistency(readScene(source, DEFAULT_GEOMETRY), instruction, reading);
    const { naturalness, artifacts } = scoreQuality(reading);
    const images = [source, edited].map(({ data }) => Buffer.from(data).toString('base64'));
    const asked = (scores: readonly number[], kind: 'consistency' | 'quality') => {
      const shown = kind === 'quality' ? 1 : 0;
      const seen: BiasContext = {
        question: {
          kind,
          instruction: kind === 'quality' ? '' : instruction,
          images: images.slice(shown),
          graded: null,
        },
        images: [source, edited].slice(shown),
      };
      return withBiases({ form: 'list', scores: wrongScores(scores, seen, biases), reasoning: '' }, seen, biases);
    };
    const [consistency, quality] = [
      asked([success, overedit], 'consistency'),
      asked([naturalness, artifacts], 'quality'),
    ];
    if (consistency === null || quality === null) {
      return { kind: 'unscored', reason: 'unparsable', detail: 'undecided', parts: {} };
    }
    const value = overallViescore(Math.min(...consistency.scores), Math.min(...quality.scores));
    return { kind: 'scored', value, normalised: value / 10, parts: {} };
  };
}

/** The marks of a biased rule judge. */
export async function examined(biases: WrongWays, seed: number, cases: number): Promise<ExamMarks> {
  const { signal } = new AbortController();
  return marksOf(await examine(tinyExam(cases, seed), { repeats: 2, atOnce: 4, signal, score: biasedScore(biases) }));
}

export const accusedOf = ({ findings }: ExamMarks): string[] =>
  findings.filter(({ accused }) => accused).map(({ name }) => name);
