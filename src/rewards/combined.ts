/** The judged rewards by mode: which questions each asks, and how the answers make its value. */
import type { Judge } from './judge.js';
import { JudgeImages } from './judge_images.js';
import { prepareItem, unscoredOutcome } from './judged_item.js';
import { groundQuestion } from './ground_score.js';
import { maxScore } from './parse.js';
import { loadPrompts } from './prompts.js';
import type { Question } from './question.js';
import type { RewardMode, RewardSettings, ScoreName } from './settings.js';
import type { JudgeItem, Outcome, Reward, ScoreOptions, ScoreParts } from './types.js';
import { consistencyQuestion, overallViescore, qualityQuestion } from './viescore.js';

interface Mode {
  readonly questions: readonly Question[];
  /** The value from 0 to 10, of the parts that all questions gave. */
  readonly value: (parts: ScoreParts) => number;
}

/** VIEScore's overall; NaN where one of its parts is missing. */
const overall = (parts: ScoreParts): number =>
  overallViescore(parts['viescore/semantic_consistency'], parts['viescore/perceptual_quality']);

const modes: Readonly<Record<RewardMode, Mode>> = {
  viescore: { questions: [consistencyQuestion, qualityQuestion], value: overall },
  ground_score: { questions: [groundQuestion], value: (parts) => parts['ground_score/overall'] },
  'sqrt(viescore_pqxground_score)': {
    questions: [qualityQuestion, groundQuestion],
    value: (parts) => Math.sqrt(parts['viescore/perceptual_quality'] * parts['ground_score/overall']),
  },
};

const questionsOfScore: Readonly<Record<ScoreName, readonly Question[]>> = {
  viescore: [consistencyQuestion, qualityQuestion],
  ground_score: [groundQuestion],
};

export interface RewardDeps {
  readonly judge: Judge;
}

/** The judged reward that the settings describe. Raises ConfigError for prompt files that cannot be used. */
export function createReward(settings: RewardSettings, { judge }: RewardDeps): Reward {
  const mode = modes[settings.mode];
  const prompts = loadPrompts(settings.prompts);
  const images = new JudgeImages();
  const extra = settings.also_compute.flatMap((score) => questionsOfScore[score]);
  const all = [...new Set([...mode.questions, ...extra])];
  const rules = {
    zeroIfUnfinished: settings.zero_if_unfinished,
    needsTruthFor: mode.questions.some(({ needsTruth }) => needsTruth) ? settings.mode : null,
    usesTruth: all.some(({ needsTruth }) => needsTruth),
  };

  async function score(item: JudgeItem, signal?: AbortSignal, options?: ScoreOptions): Promise<Outcome> {
    const prepared = prepareItem(item, rules, images);
    if ('kind' in prepared) return prepared;
    // What is only recorded besides is left out where the item lacks what it compares with.
    const asked = all.filter(({ needsTruth }) => !needsTruth || prepared.truth !== null);
    const answers = await Promise.all(
      asked.map(async (question) => {
        const judgement = await judge.ask(question.query(prepared, prompts), signal, options);
        return { question, judgement, parts: judgement.problem === null ? question.parts(judgement.scores) : {} };
      }),
    );
    const parts: Record<string, number> = {};
    for (const answer of answers) Object.assign(parts, answer.parts);
    const together = overall(parts);
    if (!Number.isNaN(together)) parts['viescore/overall'] = together;
    const decisive = answers.filter(({ question }) => mode.questions.includes(question));
    const unscored = unscoredOutcome(
      decisive.map(({ judgement }) => judgement),
      parts,
    );
    if (unscored !== null) return unscored;
    const value = mode.value(parts);
    return { kind: 'scored', value, normalised: value / maxScore, parts };
  }

  return { name: settings.mode, score };
}
