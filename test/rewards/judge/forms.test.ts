import { describe, expect, it } from 'vitest';
import { parseReply, type ReplyForm } from '../../../src/rewards/judge/forms.js';
import type { UnscoredReason } from '../../../src/rewards/score/types.js';

type Expected = readonly (number | null)[] | UnscoredReason;
type Case = readonly [what: string, reply: string, expected: Expected, cutOff?: true];

function outcome(form: ReplyForm, text: string, cutOff = false): Expected {
  const parsed = parseReply(form, text, cutOff);
  return parsed.ok ? parsed.scores : parsed.problem;
}

function check(form: ReplyForm, cases: readonly Case[]): void {
  for (const [what, reply, expected, cutOff] of cases) {
    it(what, () => {
      expect(outcome(form, reply, cutOff)).toEqual(expected);
    });
  }
}

describe('two scores from 0 to 25', () => {
  check({ kind: 'scores', count: 2, scale: [0, 25] }, [
    // The form that the published prompts show, with the comma at its end.
    ['the published form', '{\n"reasoning" : "The ball is red.",\n"score" : [23, 21],\n}', [23, 21]],
    ['both ends', '{"reasoning": "x", "score": [0, 25]}', [0, 25]],
    ['decimals', '{"reasoning": "x", "score": [12.5, 24.75]}', [12.5, 24.75]],
    ['a fence', '```json\n{"reasoning": "x", "score": [20, 11]}\n```', [20, 11]],
    ['numbers in quotes', '{"reasoning": "x", "score": ["20", "11"]}', [20, 11]],
    ['curly quotes', '{\u201creasoning\u201d: \u201cx\u201d, \u201cscore\u201d: [20, 11]}', [20, 11]],
    ['quotes inside the reasoning', '{"reasoning": "the word "STOP" is there", "score": [20, 11]}', [20, 11]],
    ['a bare list', '[20, 11]', [20, 11]],
    ['a zero with a sign', '{"score": [-0, 3]}', [0, 3]],
    ['more than the scale', '{"score": [26, 10]}', 'out_of_range'],
    ['less than the scale', '{"score": [-1, 10]}', 'out_of_range'],
    ['one score', '{"reasoning": "x", "score": [20]}', 'unparsable'],
    ['one number', '{"reasoning": "x", "score": 20}', 'unparsable'],
    ['three scores', '{"reasoning": "x", "score": [20, 11, 3]}', 'unparsable'],
    ['no scores', '{"reasoning": "x", "score": []}', 'unparsable'],
    ['N/A', '{"reasoning": "x", "score": [20, "N/A"]}', 'unparsable'],
    ['null', '{"reasoning": "x", "score": [20, null]}', 'unparsable'],
    ['fractions', '{"reasoning": "x", "score": [20/25, 11/25]}', 'unparsable'],
    ['a contradiction', '{"score": [20, 11]} or {"score": [2, 1]}', 'unparsable'],
    ['a refusal that upstream turns into a guess', "I'm sorry, but I can't assist with that request.", 'refused'],
    ['nothing', ' \n', 'empty'],
    ['cut off in the reasoning', '{"reasoning": "The ball is', 'unparsable', true],
    ['cut off in the scores', '{"reasoning": "x", "score": [20, 1', 'unparsable', true],
    ['cut off behind the scores', '{"reasoning": "x", "score": [20, 11]', [20, 11], true],
  ]);
});

const report: ReplyForm = {
  kind: 'aspects',
  scale: [1, 4],
  aspects: [
    { heading: 'Text Faithfulness', optional: false },
    { heading: 'Image Faithfulness', optional: false },
    { heading: 'Physical and Visual Quality', optional: false },
    { heading: 'Text Rendering', optional: true },
  ],
};

/** A report in the published form. */
function reported(grades: readonly string[] = ['3.5', '4', '2.0', 'N/A'], end = '\n# Summary: a fair edit'): string {
  const [text, image, quality, rendering] = grades;
  return `# User Request Analysis
Paint the ball red.
# Detailed Judgement
1. Text Faithfulness:
## Justification: The ball is red.
## Score: ${text}
2. Image Faithfulness:
## Justification: Nothing else changed.
## Score: ${image}
3. Physical and Visual Quality:
## Justification: A seam.
## Score: ${quality}
4. Text Rendering:
## Justification: No text is asked for.
## Score: ${rendering}${end}`;
}

describe('a report with aspects from 1 to 4', () => {
  const whole = [3.5, 4, 2, null];
  check(report, [
    ['the published form', reported(), whole],
    ['a score of the last aspect', reported(['3.5', '4', '2.0', '1.25']), [3.5, 4, 2, 1.25]],
    ['bold scores', reported(['**3.5**', '**4**', '**2.0**', '**N/A**']), whole],
    ['bold names of scores', reported().replaceAll('## Score:', '**Score:**'), whole],
    ['bold headings', reported().replace(/^(\d\. )(.*:)$/gm, '$1**$2**'), whole],
    ['headings of Markdown', reported().replace(/^(\d\. .*)$/gm, '### $1'), whole],
    ['scores with their end', reported(['3.5/4', '4 / 4', '2.0/4.0', 'N/A']), whole],
    ['scores with words', reported(['3.5 (minor mismatch)', '4', '2.0', 'N/A (no text)']), whole],
    ['Windows line ends', reported().replaceAll('\n', '\r\n'), whole],
    ['tags and brackets in its words', reported().replace('A seam.', 'The sign [EXIT] in <image> has a seam.'), whole],
    ['a thought before it', `<think>1. Text Faithfulness:\n## Score: 1\n</think>${reported()}`, whole],
    [
      'a proposal that repeats a heading',
      `${reported()}\n# User Request Refinement:\n1. Text Faithfulness:\n## Score: 1`,
      whole,
    ],
    ['an aspect twice, equal', `${reported(undefined, '')}\n1. Text Faithfulness:\n## Score: 3.5`, whole],
    ['an aspect twice, different', `${reported(undefined, '')}\n1. Text Faithfulness:\n## Score: 1`, 'unparsable'],
    ['two scores of one aspect', reported(['3.5\n## Score: 2', '4', '2', 'N/A']), 'unparsable'],
    ['no aspect', 'The edit is good: 4 of 4.', 'unparsable'],
    ['an aspect without a score', reported(['', '4', '2.0', 'N/A']), 'unparsable'],
    ['an aspect that is missing', reported().replace('2. Image Faithfulness:', '2. Fidelity:'), 'unparsable'],
    ['N/A for an aspect that has to be graded', reported(['3.5', 'N/A', '2.0', 'N/A']), 'unparsable'],
    ['a range', reported(['3-4', '4', '2.0', 'N/A']), 'unparsable'],
    ['two choices', reported(['3 or 4', '4', '2.0', 'N/A']), 'unparsable'],
    ['another end', reported(['3.5/5', '4', '2.0', 'N/A']), 'unparsable'],
    ['words', reported(['three', '4', '2.0', 'N/A']), 'unparsable'],
    [
      'the form itself',
      reported(['[ float score ]', '[ float score ]', '[ float score ]', '[ float score or N/A ]']),
      'unparsable',
    ],
    ['more than the scale', reported(['4.5', '4', '2.0', 'N/A']), 'out_of_range'],
    ['less than the scale', reported(['0', '4', '2.0', 'N/A']), 'out_of_range'],
    ['a refusal', "I'm sorry, I can't help with that.", 'refused'],
    ['cut off before its last score', reported().slice(0, reported().indexOf('4. Text Rendering')), 'truncated', true],
    ['cut off in its last score', reported(['3.5', '4', '2.0', '1'], ''), 'truncated', true],
    ['cut off behind its last score', reported(['3.5', '4', '2.0', '1'], '\n# Sum'), [3.5, 4, 2, 1], true],
  ]);
});

describe('a named score from 1 to 5', () => {
  check({ kind: 'named', names: ['Final Score'], scale: [1, 5] }, [
    ['the published form', 'The peel is gone.\n\n**Final Score:** **4**', [4]],
    ['the stars elsewhere', '**Final Score**: **4**', [4]],
    ['without stars', 'Final Score: 4', [4]],
    ['without a space', 'Final Score:4', [4]],
    ['on the next line', '**Final Score:**\n4', [4]],
    ['in capitals', 'FINAL SCORE: 4', [4]],
    ['as a plural', '**Final Scores:** 4', [4]],
    ['with the end of the scale', 'Final Score: 4/5', [4]],
    ['with the end of the scale in words', 'Final Score: 4 out of 5', [4]],
    ['with a point', 'Final Score: 4.', [4]],
    ['as a whole decimal', 'Final Score: 4.0', [4]],
    ['full-width digits', 'Final Score\uff1a\uff14', [4]],
    ['the form before', 'I end with **Final Score:** **X**.\n**Final Score:** **4**', [4]],
    ['twice the same', 'Final Score: 4\n**Final Score:** 4', [4]],
    ['a thought with another score', '<think>Final Score: 1</think>Final Score: 4', [4]],
    ['a contradiction', 'Final Score: 4\nFinal Score: 3', 'unparsable'],
    ['the form behind', 'Final Score: 4. I used **Final Score:** **X**', 'unparsable'],
    ['a range', '**Final Score:** **1-5**', 'unparsable'],
    ['another range', 'Final Score: 3 \u2013 4', 'unparsable'],
    ['a fraction', 'Final Score: 4.5', 'unparsable'],
    ['another end', 'Final Score: 4/10', 'unparsable'],
    ['a sentence behind it', 'Final Score: 4. Two of 3 objects are kept', [4]],
    ['words behind it', 'Final Score: 5 - excellent', [5]],
    ['a choice', 'Final Score: 4 or 5', 'unparsable'],
    ['another choice', 'Final Score: 4, or maybe 3', 'unparsable'],
    ['a range in words', 'Final Score: 3 to 4', 'unparsable'],
    ['a list', 'Final Score: 4, 5', 'unparsable'],
    ['a decimal comma', 'Final Score: 1,5', 'unparsable'],
    ['a percentage', 'Final Score: 4%', 'unparsable'],
    ['an ordinal', 'Final Score: 4th', 'unparsable'],
    ['a power', 'Final Score: 4e1', 'unparsable'],
    ['a superscript', 'Final Score: 3\u00b2', 'unparsable'],
    ['a letter', 'Final Score: X', 'unparsable'],
    ['a word', 'Final Score: four', 'unparsable'],
    ['no name', 'I give it 4 of 5.', 'unparsable'],
    ['another name', 'Semifinal Score: 4', 'unparsable'],
    ['the name alone', 'Final Score', 'unparsable'],
    ['less than the scale', 'Final Score: 0', 'out_of_range'],
    ['more than the scale', 'Final Score: 44', 'out_of_range'],
    ['a negative number', 'Final Score: -4', 'out_of_range'],
    ['a refusal', "I'm sorry, I can't assist with that.", 'refused'],
    ['nothing', '\n', 'empty'],
    ['cut off before it', 'The peel is', 'truncated', true],
    ['cut off in its name', 'The peel is gone. **Final Sc', 'truncated', true],
    ['cut off in its number', 'Final Score: 4', 'truncated', true],
    ['cut off behind it', '**Final Score:** **4**', [4], true],
  ]);
});

describe('named fields', () => {
  check({ kind: 'named', names: ['instruction_score', 'knowledge_score'], scale: [1, 5] }, [
    ['an object', '{"instruction_score": 5, "instruction_reasoning": "x", "knowledge_score": 1}', [5, 1]],
    ['in the other order', '{"knowledge_score": 1, "instruction_score": 5}', [5, 1]],
    ['in a fence', '```json\n{"instruction_score": 5, "knowledge_score": 1}\n```', [5, 1]],
    ['words without quotes', '{\n"instruction_score": 5,\n"x": 1. Detect 2. Match\n"knowledge_score": 1\n}', [5, 1]],
    ['numbers in quotes', '{"instruction_score": "5", "knowledge_score": "1"}', [5, 1]],
    ['spaces in the names', 'Instruction Score: 5\nKnowledge Score: 1', [5, 1]],
    ['one missing', '{"instruction_score": 5}', 'unparsable'],
    ['null', '{"instruction_score": 5, "knowledge_score": null}', 'unparsable'],
    [
      'two objects',
      '{"instruction_score": 5, "knowledge_score": 1} {"instruction_score": 4, "knowledge_score": 1}',
      'unparsable',
    ],
    ['fields on one line', 'Instruction Score: 5, Knowledge Score: 1', [5, 1]],
    ['the form', '{"instruction_score": X, "knowledge_score": X}', 'unparsable'],
    ['the choices', '{"instruction_score": 1|2|3|4|5, "knowledge_score": 1|2|3|4|5}', 'unparsable'],
  ]);
});

describe('lines with a score from 1 to 5', () => {
  const lines = (...scores: readonly (string | number)[]): string =>
    [
      'Brief reasoning: It is fine, 4 of 5.',
      ...scores.map((score, i) => `${['Compliance', 'Seamless', 'Detail', 'More'][i]}: ${score}`),
    ].join('\n');
  check({ kind: 'lines', count: 3, scale: [1, 5] }, [
    ['the published form', lines(5, 4, 3), [5, 4, 3]],
    ['stars', lines(5, 4, 3).replaceAll(/(\w+): (\d)$/gm, '**$1:** $2'), [5, 4, 3]],
    ['stars around all', lines(5, 4, 3).replaceAll(/(\w+): (\d)$/gm, '**$1: $2**'), [5, 4, 3]],
    ['a list', lines(5, 4, 3).replaceAll(/^(\w+): (\d)$/gm, '- $1: $2'), [5, 4, 3]],
    ['points', lines('5.', '4.', '3.'), [5, 4, 3]],
    ['the end of the scale', lines('5/5', '4/5', '3/5'), [5, 4, 3]],
    ['a name with a sign', lines(5, 4, 3).replace('Detail', 'Physical & Detail Coherence'), [5, 4, 3]],
    ['spaces', lines(5, 4, 3).replaceAll('\n', ' \r\n '), [5, 4, 3]],
    ['the reasoning last', 'A: 5\nB: 4\nC: 3\nBrief reasoning: fine', [5, 4, 3]],
    ['twice the same', `${lines(5, 4, 3)}\nDetail: 3`, [5, 4, 3]],
    ['two lines', lines(5, 4), 'unparsable'],
    ['four lines', lines(5, 4, 3, 2), 'unparsable'],
    ['a contradiction', `${lines(5, 4, 3)}\nDetail: 2`, 'unparsable'],
    ['the form', lines('A number from 1 to 5', 'A number', 'X'), 'unparsable'],
    ['a fraction', lines(5, 4.5, 3), 'unparsable'],
    ['a range', lines(5, '3-4', 3), 'unparsable'],
    ['another end', lines('5/10', '4/10', '3/10'), 'unparsable'],
    ['one line', 'Compliance: 5, Seamless: 4, Detail: 3', 'unparsable'],
    ['words behind', lines('5 good', '4 fine', '3 so'), 'unparsable'],
    ['less than the scale', lines(5, 0, 3), 'out_of_range'],
    ['more than the scale', lines(5, 6, 3), 'out_of_range'],
    ['a refusal', "I'm sorry, but I can't help.", 'refused'],
    ['cut off before its last score', lines(5, 4), 'truncated', true],
    ['cut off in its last score', lines(5, 4, 3), 'truncated', true],
    ['cut off behind its last score', `${lines(5, 4, 3)}\n`, 'truncated', true],
  ]);
});

describe('a winner', () => {
  check({ kind: 'winner' }, [
    ['the first', '```json\n{\n    "winner": "Image A"\n}\n```', [1, 0]],
    ['the second', '{"winner": "Image B"}', [0, 1]],
    ['a tie', '{"winner": "Tie"}', [0.5, 0.5]],
    ['a letter', '{"winner": "b"}', [0, 1]],
    ['a name with a line', '{"winner": "image_a"}', [1, 0]],
    ['both', '{"winner": "both"}', [0.5, 0.5]],
    ['single quotes', "{'winner': 'Image B'}", [0, 1]],
    ['words around', 'I compare both.\n{"winner": "Image A"}\nDone.', [1, 0]],
    ['a reason before', '{"reason": "Image B is blurred", "winner": "Image A"}', [1, 0]],
    ['a name alone', '**Image B**', [0, 1]],
    ['a thought with another winner', '<think>{"winner": "Image B"}?</think>{"winner": "Image A"}', [1, 0]],
    ['the form before', `{"winner": "Choose one from: 'Image A', 'Image B', or 'Tie'"} {"winner": "Image A"}`, [1, 0]],
    ['the form alone', `{"winner": "Choose one from: 'Image A', 'Image B', or 'Tie'"}`, 'unparsable'],
    ['twice the same', '{"winner": "Image A", "final": {"winner": "A"}}', [1, 0]],
    ['two winners', '{"winner": "Image A"} {"winner": "Image B"}', 'unparsable'],
    ['two winners in an object', '{"winner": "Image A", "winner": "Tie"}', 'unparsable'],
    ['an unknown winner beside', '{"winner": "Image A"} {"winner": "Image C"}', 'unparsable'],
    ['an unknown winner', '{"winner": "Image C"}', 'unparsable'],
    ['a number', '{"winner": 1}', 'unparsable'],
    ['a list', '{"winner": ["Image A"]}', 'unparsable'],
    ['null', '{"winner": null}', 'unparsable'],
    ['no field', '{"best": "Image A"}', 'unparsable'],
    ['a sentence', 'Image A is better.', 'unparsable'],
    ['a refusal', "I'm sorry, I can't compare these.", 'refused'],
    ['many objects', `${'{'.repeat(70)}"winner": "Image A"}`, 'unparsable'],
    ['cut off', '{"winner": "Image', 'unparsable', true],
    ['cut off behind', '{"winner": "Image A", "reas', [1, 0], true],
    ['cut off in a sentence', 'A', 'truncated', true],
  ]);
});
