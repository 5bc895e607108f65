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
