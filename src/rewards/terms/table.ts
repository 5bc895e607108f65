/** Every kind of term, by its name in a config. A new kind is one file beside this one and one line here. */
import type { TermKind } from './term.js';
import { benchmarks } from '../benchmarks/table.js';
import { benchmarkTerm } from './judged/benchmark_term.js';
import { alignQuality } from './align_quality.js';
import { answerJudge } from './answer_judge.js';
import { clip } from './clip.js';
import { formatAccuracy } from './format_accuracy.js';
import { groundScore } from './ground_score.js';
import { imageSimilarity } from './image_similarity.js';
import { jpegSize } from './jpeg_size.js';
import { logitExpectation } from './logit_expectation.js';
import { moduleTerm } from './module.js';
import { ocr, ocrConfidence } from './ocr.js';
import { pairwise } from './pairwise.js';
import { qualityAndGround } from './quality_and_ground.js';
import { promptQualityTerm } from './prompt_quality.js';
import { remote } from './remote.js';
import { viescore } from './viescore.js';
import { wordOverlap } from './word_overlap.js';
import { editscore } from './editscore.js';
import { editR1 } from './edit_r1.js';
import { graded } from './graded.js';
import { viescorePublished } from './viescore_published.js';
import { pvcJudge } from './pvc_judge.js';
import { rationalRewardsEdit } from './rational_rewards_edit.js';
import { unifiedRewardEdit } from './unified_reward_edit.js';
import { exactWords, wordSequence } from './word_sequence.js';

export const termKinds = {
  viescore,
  ground_score: groundScore,
  'sqrt(viescore_pqxground_score)': qualityAndGround,
  jpeg_size: jpegSize,
  image_similarity: imageSimilarity,
  format_accuracy: formatAccuracy,
  word_sequence: wordSequence,
  exact_words: exactWords,
  word_overlap: wordOverlap,
  answer_judge: answerJudge,
  align_quality: alignQuality,
  logit_expectation: logitExpectation,
  pairwise,
  editscore,
  unified_reward_edit: unifiedRewardEdit,
  rational_rewards_edit: rationalRewardsEdit,
  pvc_judge: pvcJudge,
  viescore_published: viescorePublished,
  edit_r1: editR1,
  graded,
  gedit: benchmarkTerm(benchmarks.gedit),
  imgedit: benchmarkTerm(benchmarks.imgedit),
  rise: benchmarkTerm(benchmarks.rise),
  kris: benchmarkTerm(benchmarks.kris),
  gedit_v2: benchmarkTerm(benchmarks.gedit_v2),
  ocr,
  ocr_confidence: ocrConfidence,
  clip,
  prompt_quality: promptQualityTerm,
  remote,
  module: moduleTerm,
} as const satisfies Record<string, TermKind>;

export type TermName = keyof typeof termKinds;
/** In the order of the table. */
export const termNames = Object.keys(termKinds) as TermName[];
