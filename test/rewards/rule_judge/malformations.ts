/**
 * Ways in which judges have been seen to garble a correct answer, each written from the true scores. If a careful reader can still recover the
 * scores, it may find the true ones and no others; if not, it must find none.
 */
import { writeAnswer, type Answer } from '../../../src/rewards/rule_judge/protocol.js';

/** `scores`: the true scores can still be read; `nothing`: no score may be read. */
export type Gives = 'scores' | 'nothing';

export interface Malformation {
  readonly description: string;
  /** By the form that the question asks for. */
  readonly gives: Readonly<Record<Answer['form'], Gives>>;
  readonly write: Readonly<Record<Answer['form'], (answer: Answer) => string>>;
}

type Writer = (scores: string, reasoning: string, answer: Answer) => string;

/** If a garbling has no counterpart for a tag, the score is given without one. */
const untagged: readonly [Gives, Writer] = ['nothing', (score) => `Score: ${score}/10`];

/**
 * @param list for a JSON list, given the scores without their brackets and the reasoning without quotes
 * @param tag for a tag, given the score; absent where the garbling is one of JSON alone
 */
function garbled(
  description: string,
  [listGives, list]: readonly [Gives, Writer],
  [tagGives, tag]: readonly [Gives, Writer] = untagged,
): Malformation {
  const writer =
    (write: Writer) =>
    (answer: Answer): string =>
      write(answer.scores.join(', '), answer.reasoning.replaceAll('"', "'"), answer);
  return { description, gives: { list: listGives, tag: tagGives }, write: { list: writer(list), tag: writer(tag) } };
}

/** Wraps the text of a good answer, whatever its form. */
function wrapped(description: string, gives: Gives, wrap: (text: string) => string): Malformation {
  const writer: readonly [Gives, Writer] = [gives, (_scores, _reasoning, answer) => wrap(writeAnswer(answer))];
  return garbled(description, writer, writer);
}

function constant(description: string, text: string): Malformation {
  return wrapped(description, 'nothing', () => text);
}

const delimiter = '||V^=^V||';

export const malformations = {
  fence: wrapped('in a code fence', 'scores', (text) => '```json\n' + text + '\n```'),
  prose: wrapped('with prose around it', 'scores', (text) => `Here is my rating:\n${text}\nI hope this helps!`),
  delimiter_once: wrapped('behind one delimiter', 'scores', (text) => `${delimiter}\n${text}`),
  delimiter_twice: wrapped('between two delimiters', 'scores', (text) => `${delimiter}\n${text}\n${delimiter}`),
  delimiter_thrice: wrapped(
    'among three delimiters',
    'scores',
    (text) => `${delimiter}${delimiter}${text}${delimiter}`,
  ),
  fence_in_delimiters: wrapped(
    'in a code fence between delimiters',
    'scores',
    (text) => `${delimiter}\n\`\`\`json\n${text}\n\`\`\`\n${delimiter}`,
  ),
  think_block: wrapped(
    'behind a think block that holds other scores',
    'scores',
    (text) => `<think>Maybe {"score": [1, 1]} or <score>1</score>? No.</think>\n${text}`,
  ),
  think_unclosed: wrapped('inside a think block that never ends', 'nothing', (text) => `<think>${text} But then`),
  brace_behind: wrapped('with stray braces behind it', 'scores', (text) => `${text} so {that} is } it`),
  array_root: garbled('the object in a list', ['scores', (s, r) => `[{"score": [${s}], "reasoning": "${r}"}]`]),
  nested: garbled('the object in an object', [
    'scores',
    (s, r) => `{"result": {"score": [${s}], "reasoning": "${r}"}}`,
  ]),
  two_objects: garbled(
    'a second object with other scores behind it',
    ['nothing', (s, r) => `{"score": [${s}], "reasoning": "${r}"}\n{"score": [0.5, 0.5], "reasoning": "an example"}`],
    ['nothing', (s) => `<score>0.5</score> would be harsh.\n<score>${s}</score>`],
  ),
  template_echo: garbled('the template of the question before it', [
    'scores',
    (s, r) => `{"score": [a, b], "reasoning": "..."}\n{"score": [${s}], "reasoning": "${r}"}`,
  ]),
  reasoning_first: garbled('the reasoning first', ['scores', (s, r) => `{"reasoning": "${r}", "score": [${s}]}`]),
  line_break: garbled('a line break inside a string', [
    'scores',
    (s, r) => `{"score": [${s}], "reasoning": "${r}\nso"}`,
  ]),
  tab: garbled('a tab inside a string', ['scores', (s, r) => `{"score": [${s}], "reasoning": "${r}\tso"}`]),
  inner_quotes: garbled('unescaped quotes inside a string', [
    'scores',
    (s, r) => `{"score": [${s}], "reasoning": "the "red" one: ${r}"}`,
  ]),
  trailing_comma: garbled(
    'trailing commas',
    ['scores', (s, r) => `{"score": [${s},], "reasoning": "${r}",}`],
    ['nothing', (s) => `<score>${s},</score>`],
  ),
  single_quotes: garbled('single quotes', ['scores', (s) => `{'score': [${s}], 'reasoning': 'it's fine'}`]),
  bare_keys: garbled('keys without quotes', ['scores', (s, r) => `{score: [${s}], reasoning: "${r}"}`]),
  missing_comma: garbled('no comma between the fields', ['scores', (s, r) => `{"score": [${s}] "reasoning": "${r}"}`]),
  full_width_colon: garbled('a full-width colon', ['scores', (s) => `{"score"\uff1a [${s}]}`]),
  python_words: garbled("Python's words", ['scores', (s) => `{'score': [${s}], 'note': None, 'ok': True}`]),
  capitalised: garbled(
    'a capitalised name',
    ['scores', (s, r) => `{"Score": [${s}], "reasoning": "${r}"}`],
    ['scores', (s) => `<Score>${s}</Score>`],
  ),
  bare_list: garbled('the list alone', ['scores', (s) => `[${s}]`]),
  bare_list_in_prose: garbled('the list alone, in prose', ['scores', (s) => `My scores are [${s}] overall.`]),
  cut_in_reasoning: garbled('broken off in its reasoning', [
    'scores',
    (s, r) => `{"score": [${s}], "reasoning": "${r.slice(0, 12)}`,
  ]),
  cut_in_scores: garbled(
    'broken off before its last score ends',
    ['nothing', (s) => `{"score": [${s}`],
    ['nothing', (s, r) => `${r}\n<score>${s}`],
  ),
  missing_score: garbled('another name for the scores', ['nothing', (s) => `{"rating": "${s}", "reasoning": "fine"}`]),
  scalar: garbled('one number instead of a list', [
    'nothing',
    (_s, r, { scores }) => `{"score": ${scores[0]}, "reasoning": "${r}"}`,
  ]),
  too_few: garbled('a score too few', [
    'nothing',
    (_s, r, { scores }) => `{"score": [${scores[0]}], "reasoning": "${r}"}`,
  ]),
  too_many: garbled('a score too many', ['nothing', (s, r) => `{"score": [${s}, 5], "reasoning": "${r}"}`]),
  out_of_range: garbled(
    'scores above 10',
    ['nothing', (_s, r, { scores }) => `{"score": ${JSON.stringify(scores.map((n) => n + 11))}, "reasoning": "${r}"}`],
    ['nothing', (_s, _r, { scores }) => `<score>${Math.round(scores[0]) + 11}</score>`],
  ),
  negative: garbled(
    'scores below 0',
    ['nothing', (_s, r, { scores }) => `{"score": ${JSON.stringify(scores.map((n) => -1 - n))}, "reasoning": "${r}"}`],
    ['nothing', (_s, _r, { scores }) => `<score>${-1 - Math.round(scores[0])}</score>`],
  ),
  strings: garbled(
    'the scores as strings',
    ['scores', (_s, r, { scores }) => `{"score": ${JSON.stringify(scores.map(String))}, "reasoning": "${r}"}`],
    ['nothing', (s) => `<score>"${s}"</score>`],
  ),
  nulls: garbled(
    'null among the scores',
    ['nothing', (_s, r, { scores }) => `{"score": [null, ${scores[0]}], "reasoning": "${r}"}`],
    ['nothing', () => '<score>null</score>'],
  ),
  nan_scores: garbled(
    'NaN among the scores',
    ['nothing', (_s, r, { scores }) => `{"score": [NaN, ${scores[0]}], "reasoning": "${r}"}`],
    ['nothing', () => '<score>NaN</score>'],
  ),
  infinite_scores: garbled(
    'a number that overflows among the scores',
    ['nothing', (_s, r, { scores }) => `{"score": [1e999, ${scores[0]}], "reasoning": "${r}"}`],
    ['nothing', () => '<score>1e999</score>'],
  ),
  empty_list: garbled('an empty list of scores', ['nothing', (_s, r) => `{"score": [], "reasoning": "${r}"}`]),
  nested_list: garbled('the list in a list', ['nothing', (s, r) => `{"score": [[${s}]], "reasoning": "${r}"}`]),
  scores_by_name: garbled('the scores by name', [
    'nothing',
    (_s, r, { scores }) => `{"score": {"first": ${scores[0]}, "second": ${scores.at(-1)}}, "reasoning": "${r}"}`,
  ]),
  fractions: garbled(
    'fractions of 10',
    ['nothing', (_s, r, { scores }) => `{"score": [${scores.map((n) => `${n}/10`).join(', ')}], "reasoning": "${r}"}`],
    ['nothing', (s) => `<score>${s}/10</score>`],
  ),
  percent: garbled(
    'percentages',
    [
      'nothing',
      (_s, r, { scores }) => `{"score": [${scores.map((n) => `${n * 10}%`).join(', ')}], "reasoning": "${r}"}`,
    ],
    ['nothing', (_s, _r, { scores }) => `<score>${Math.round(scores[0] * 10)}%</score>`],
  ),
  slash_prose: garbled('in words, as n/10', ['nothing', (_s, _r, { scores }) => `Score: ${scores[0]}/10`]),
  prose_only: constant('praise instead of scores', 'What a lovely picture!'),
  refusal: constant('a refusal', "I'm sorry, but I can't help with rating this image."),
  repeated_garbage: constant('one character over and over', '!'.repeat(500)),
  blank: constant('white space', ' \n\t '),
  empty: constant('no text', ''),
} as const satisfies Readonly<Record<string, Malformation>>;

export type MalformationName = keyof typeof malformations;
