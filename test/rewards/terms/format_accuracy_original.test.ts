/**
 * The rule of the original (https://github.com/ChristianLin0420/Qwen2.5-VL-Video, commit d66174e, `compute_format_reward` and
 * `compute_accuracy_reward` of its GRPO trainer): values that were read off it by hand, and the rule itself, written down a second time.
 */
import { describe, expect, it } from 'vitest';
import { RandomStream } from '../../../src/core/random.js';
import { rewardSettingsSchema } from '../../../src/rewards/score/settings.js';
import { createReward } from '../../../src/rewards/score/combined.js';
import { wholeItem } from './term_contract.js';
import { testServices } from './term_services.js';

const reward = await createReward(
  rewardSettingsSchema.parse({ mode: 'format_accuracy', zero_if_unfinished: false }),
  testServices(),
);

async function partsOf(answer: string, expected: string): Promise<readonly [format: number, accuracy: number]> {
  const { parts } = await reward.score(wholeItem({ answer, expected, source: null, edited: null, truth: null }));
  return [parts['format_accuracy/format'], parts['format_accuracy/accuracy']];
}

const LABEL = '<answer>(1) tighten the screw (3) close the lid</answer>';
const said = (answer: string): string => `<think>I look.</think> <answer>${answer}</answer>`;

/** An answer, the label (LABEL where null), what its form is worth, and its agreement. */
const byHand: readonly (readonly [answer: string, label: string | null, format: number, accuracy: number])[] = [
  // Right answers, however they are written.
  [said('(1) tighten the screw (3) close the lid'), null, 1, 1],
  [said('**(1)** tighten **(3)** close'), null, 1, 1],
  [said('(3)(1)'), null, 1, 1],
  [said('\n(1) tighten\n(3) close\n'), null, 1, 1],
  [said('((1)) and ((3))'), null, 1, 1],
  [said('step(1),step(3)'), null, 1, 1],
  // Labels are not compared.
  [said('(1) open (3) paint'), null, 1, 1],
  // A repeated number is one.
  [said('(1)(3)(1)(3)'), null, 1, 1],
  // Half right.
  [said('(3)'), null, 1, 1 / 2],
  [said('(1)(1)'), null, 1, 1 / 2],
  [said('(1)(2)(3)'), null, 1, 2 / 3],
  [said('(1)(2)'), null, 1, 1 / 3],
  [said('(1) tighten the model of (2023) (3) close'), null, 1, 2 / 3],
  [said('(1)(2)(3)(4)(5)(6)(7)(8)(9)(10)'), null, 1, 1 / 5],
  // Wrong, or no numbers in parentheses.
  [said('(13)'), null, 1, 0],
  [said('(01) tighten (3) close'), null, 1, 1 / 3],
  [said('1) tighten 3) close'), null, 1, 0],
  [said('( 1 ) ( 3 )'), null, 1, 0],
  [said('[1] [3]'), null, 1, 0],
  [said('(1, 3)'), null, 1, 0],
  [said('(1.0) (3.0)'), null, 1, 0],
  [said('(-1) (+3)'), null, 1, 0],
  [said('\uFF081\uFF09 \uFF083\uFF09'), null, 1, 0],
  // The original is Python, whose digits are those of every script.
  [said('(\uFF11) (\uFF13)'), null, 1, 0],
  [said('(\u0663)'), '(\u0663)', 1, 1],
  [said(''), null, 1, 0],
  // Form: what is missing, and in which order it stands.
  ['<answer>(1) tighten (3) close</answer>', null, 0.3, 1],
  ['<answer>(1)(3)</answer> <think>I look.</think>', null, 0.6, 1],
  ['<think>(1) and (3)</think> (1) (3)', null, 0.3, 0],
  ['(1) tighten (3) close', null, 0, 0],
  ['', null, 0, 0],
  ['<think>I look.</think> <answer>(1) (3)', null, 0.3, 0],
  ['<think>I look. <answer>(1) (3)</answer>', null, 0.3, 1],
  ['<Think>a</Think> <Answer>(1)(3)</Answer>', null, 0, 0],
  // The first answer counts, be it in the thoughts.
  ['<think>a</think><answer>(2)</answer> no, <answer>(1)(3)</answer>', null, 1, 0],
  ['<think>perhaps <answer>(1)(3)</answer>?</think> <answer>(2)</answer>', null, 0.6, 1],
  ['<think>write <answer> now</think> (2) <answer>(1)(3)</answer>', null, 0.6, 2 / 3],
  ['<think>a</think> b <think>c</think> <answer>(1)(3)</answer>', null, 1, 1],
  // Labels: without tags, with a year, with a repeated number, with two blocks.
  [said('(7)'), '(7)turn the (8)', 1, 1 / 2],
  [said('(1)'), '(1) the model of (2023)', 1, 1 / 2],
  [said('(1)'), '<think>(2)</think><answer>(1)(1)</answer>', 1, 1],
  [said('(2)'), '<answer>(1)</answer> <answer>(2)</answer>', 1, 0],
];

describe('format and accuracy as the original gives them', () => {
  it.each(byHand)('%j against %j: %d and %d', async (answer, label, format, accuracy) => {
    const [foundFormat, foundAccuracy] = await partsOf(answer, label ?? LABEL);
    expect(foundFormat).toBeCloseTo(format, 12);
    expect(foundAccuracy).toBeCloseTo(accuracy, 12);
  });
});

/** The original's form, step by step: three searches, of which the dot matches line ends. */
function originalForm(text: string): number {
  const think = /<think>[^]*?<\/think>/.exec(text);
  const answer = /<answer>[^]*?<\/answer>/.exec(text);
  let score = 0;
  if (think !== null) score += 0.3;
  if (answer !== null) score += 0.3;
  if (think !== null && answer !== null && think.index + think[0].length <= answer.index) score += 0.4;
  return score;
}

/** The original's agreement: equal sorted lists, else what two sets share over what they hold together. */
function originalAgreement(text: string, label: string): number {
  const block = /<answer>([^]*?)<\/answer>/;
  const generated = block.exec(text);
  if (generated === null) return 0;
  const listed = (words: string): string[] =>
    [...words.trim().matchAll(/\((\p{Nd}+)\)/gu)].map((found) => found[1]).sort();
  const ours = listed(generated[1]);
  const theirs = listed(block.exec(label)?.[1] ?? label);
  if (JSON.stringify(ours) === JSON.stringify(theirs)) return 1;
  const shared = new Set(ours.filter((one) => theirs.includes(one))).size;
  return shared > 0 ? shared / new Set([...ours, ...theirs]).size : 0;
}

const pieces = [
  ...['<think>', '</think>', '<answer>', '</answer>', '<answer>', '</answer>'],
  ...['(1)', '(2)', '(3)', '(12)', '(01)', '(2023)', '(1)', '(3)', '(', ')', '1', ' ', '\n', ', ', '**', ':', ' turn'],
];

function generated(seed: number): readonly [answer: string, label: string] {
  const random = new RandomStream(seed, 'format_accuracy');
  const some = (from: readonly string[], most: number): string =>
    Array.from({ length: random.integer(most + 1) }, () => from[random.integer(from.length)]).join('');
  // Half of them have the usual form with anything in it, the others any form.
  const words = some(pieces, 14);
  const answer =
    random.integer(2) === 0 ? words : `<think>${some(pieces, 4)}</think>${some(pieces, 3)}<answer>${words}</answer>`;
  const label = `(${1 + random.integer(3)})${some(pieces.slice(6), 6)}`;
  return [answer, random.integer(2) === 0 ? label : `<answer>${label}</answer>`];
}

describe('format and accuracy of a thousand generated answers', () => {
  it('are those of the rule written down a second time', async () => {
    const agreements = new Map<number, number>();
    for (let seed = 0; seed < 1000; seed++) {
      const [answer, label] = generated(seed);
      const [form, agreement] = await partsOf(answer, label);
      expect(form, JSON.stringify(answer)).toBeCloseTo(originalForm(answer), 12);
      expect(agreement, JSON.stringify([answer, label])).toBe(originalAgreement(answer, label));
      agreements.set(agreement, (agreements.get(agreement) ?? 0) + 1);
    }
    // The generated answers are neither all right nor all wrong.
    expect(Math.min(agreements.get(0) ?? 0, agreements.get(1) ?? 0, agreements.get(0.5) ?? 0)).toBeGreaterThan(10);
  });
});
