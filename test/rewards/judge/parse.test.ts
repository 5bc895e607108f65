import { describe, expect, it } from 'vitest';
import { parseScores, parseScoreTag } from '../../../src/rewards/judge/parse.js';
import type { UnscoredReason } from '../../../src/rewards/score/types.js';
import { fuzzJudgeTexts } from './fuzz_judge_texts.js';

type Expected = readonly number[] | UnscoredReason;

function outcome(parsed: ReturnType<typeof parseScores>): Expected {
  return parsed.ok ? parsed.scores : parsed.problem;
}

const good = '{"score": [7, 8], "reasoning": "The ball is red."}';

/** What judges were seen to answer where two scores were asked for, and what is made of it. Groups: around the answer, in its form, no object, its content. */
const judgeTexts: readonly (readonly [string, string, Expected])[] = [
  // Around a good answer.
  ['plain', good, [7, 8]],
  ['prose around', `Here is my rating:\n${good}\nI hope it helps.`, [7, 8]],
  ['fence', '```json\n' + good + '\n```', [7, 8]],
  ['two delimiters', `||V^=^V||\n${good}\n||V^=^V||`, [7, 8]],
  ['one delimiter', `||V^=^V||\n${good}`, [7, 8]],
  ['three delimiters', `||V^=^V||||V^=^V||${good}||V^=^V||`, [7, 8]],
  ['fence inside delimiters', '||V^=^V||\n```json\n' + good + '\n```\n||V^=^V||', [7, 8]],
  ['delimiters quoted before the answer', `I use ||V^=^V|| and ||V^=^V||. ${good}`, [7, 8]],
  ['an object before the delimiters', `{"score": [1, 1]} ||V^=^V||${good}||V^=^V||`, [7, 8]],
  ['delimited bare list', '||V^=^V||[7, 8]||V^=^V||', [7, 8]],
  ['array root', `[${good}]`, [7, 8]],
  ['nested object', `{"result": ${good}}`, [7, 8]],
  ['object in a list in an object', `{"results": [${good}]}`, [7, 8]],
  ['nested behind a list without it', `{"at": [1, 2], "result": ${good}}`, [7, 8]],
  ['an object that quotes another one before', `{"plan": "{'score': [1, 2]}"} ${good}`, [7, 8]],
  ['an empty list before', `{"score": []} ${good}`, [7, 8]],
  ['text with a brace behind', `${good} so {that} is } it`, [7, 8]],
  ['an object without score before', `{"plan": "look"} ${good}`, [7, 8]],
  ['two objects that disagree', `${good}\n{"score": [1, 2]}`, 'unparsable'],
  ['two objects that disagree in one place', `${good}\n{"score": [7, 9]}`, 'unparsable'],
  ['two objects that disagree in how many', `{"score": 7} ${good}`, 'unparsable'],
  ['an object that repeats another', `${good}\nSo: {'score': [7.0, 8]}`, [7, 8]],
  ['a placeholder behind', `${good} as {"score": [a, b]}`, [7, 8]],
  ['objects that disagree between delimiters', `||V^=^V||${good} {"score": [1, 2]}||V^=^V||`, 'unparsable'],
  ['objects that disagree in a list', `[${good}, {"score": [1, 2]}]`, 'unparsable'],
  ['objects that disagree in an object', `{"a": ${good}, "b": {"score": [1, 2]}}`, 'unparsable'],
  ['objects that agree in an object', `{"a": ${good}, "b": ${good}}`, [7, 8]],
  ['another score beside it', '{"score": [7, 8], "final": {"score": [1, 2]}}', 'unparsable'],
  ['another score before it', '{"draft": {"score": [1, 2]}, "score": [7, 8]}', 'unparsable'],
  ['another score in a list beside it', '{"score": [7, 8], "notes": [1, {"score": [1, 2]}]}', 'unparsable'],
  ['another score deeper beside it', '{"score": [7, 8], "a": {"b": {"score": [1, 2]}}}', 'unparsable'],
  ['one of other length beside it', '{"score": [7, 8], "details": {"score": 7}}', 'unparsable'],
  ['scores within a score', '{"score": [{"score": 7}, {"score": 8}]}', 'unparsable'],
  ['the same score beside it', '{"score": [7, 8], "final": {"score": [7, 8]}}', [7, 8]],
  ['a placeholder beside it', '{"score": [7, 8], "form": {"score": "[a, b]"}}', [7, 8]],
  ['a key twice that disagrees', '{"score": [7, 8], "score": [1, 2]}', 'unparsable'],
  ['a key twice that disagrees in its case', '{"score": [7, 8], "Score": [1, 2]}', 'unparsable'],
  ['a key twice that agrees', '{"score": [7, 8], "reasoning": "x", "score": [7, 8]}', [7, 8]],
  ['a key twice, a placeholder first', '{"score": [a, b], "score": [7, 8]}', [7, 8]],
  ['another key twice', '{"reasoning": 1, "reasoning": 2, "score": [7, 8]}', [7, 8]],
  ['template echoed before', `{"score": [edit, over]} -> ${good}`, [7, 8]],
  ['think block', `<think>{"score": [1, 1]} hm, no</think>${good}`, [7, 8]],
  ['think block opened in the prompt', `{"score": [1, 1]} hm, no</think>${good}`, [7, 8]],
  ['think block of which only the end is left', `</think>${good}`, [7, 8]],
  ['think block that never ends behind the answer', `${good}<think>{"score": [1, 1]}`, [7, 8]],
  ['think block that never ends', '<think>{"score": [1, 1]} and then', 'truncated'],
  ['reasoning first', '{"reasoning": "fine", "score": [7, 8]}', [7, 8]],
  ['score quoted in the reasoning', '{"reasoning": "not \\"score\\": [1, 2]", "score": [7, 8]}', [7, 8]],
  ['lists quoted in the reasoning', '{"reasoning": "at [1, 2]", "score": [7, 8]}', [7, 8]],
  // Its form: punctuation is repaired, values are not.
  ['line break in a string', '{"score": [7, 8], "reasoning": "one\ntwo"}', [7, 8]],
  ['control character in a string', '{"score": [7, 8], "reasoning": "one\u0001two"}', [7, 8]],
  ['string that never ends, scores behind it', '{"reasoning": "fine, "score": [7, 8]}', 'unparsable'],
  ['tab in a string', '{"score": [7, 8], "reasoning": "one\ttwo"}', [7, 8]],
  ['cut off in the reasoning', '{"score": [7, 8], "reasoning": "The ball', [7, 8]],
  ['cut off behind the list', '{"score": [7, 8]', [7, 8]],
  ['cut off inside the list', '{"score": [7, 1', 'unparsable'],
  ['cut off inside the list, a list quoted before', '{"reasoning": "as "[9, 9]" says", "score": [7, 1', 'unparsable'],
  ['trailing comma in the object', '{"score": [7, 8], "reasoning": "x",}', [7, 8]],
  ['trailing comma in the list', '{"score": [7, 8,], "reasoning": "x"}', [7, 8]],
  ['single quotes', "{'score': [7, 8], 'reasoning': 'it's red'}", [7, 8]],
  ['typographic quotes', '{\u201cscore\u201d: [7, 8], \u201creasoning\u201d: \u201cred\u201d}', [7, 8]],
  ['unescaped inner quotes', '{"score": [7, 8], "reasoning": "the "red" ball, or "blue", is"}', [7, 8]],
  ['missing comma between fields', '{"score": [7, 8] "reasoning": "x"}', [7, 8]],
  ['missing comma in the list', '{"score": [7 8], "reasoning": "x"}', 'unparsable'],
  ['bare keys', '{score: [7, 8], reasoning: "x"}', [7, 8]],
  ['bare keys and words', '{score: [7, 8], reasoning: fine}', [7, 8]],
  ['full-width colon', '{"score"\uff1a [7, 8]}', [7, 8]],
  ['Python words', "{'score': [7, 8], 'note': None, 'ok': True}", [7, 8]],
  ['capitalised name', '{"Score": [7, 8]}', [7, 8]],
  ['decimals', '{"score": [7.5, 8.0]}', [7.5, 8]],
  ['minus zero', '{"score": [-0, 8]}', [0, 8]],
  ['no score', '{"rating": [7, 8], "reasoning": "x"}', 'unparsable'],
  ['bare keys, no score', '{rating: 7, reasoning: good}', 'unparsable'],
  ['score is a word', '{"score": "high"}', 'unparsable'],
  ['score is null', '{"score": null}', 'unparsable'],
  ['score is a list in a string', '{"score": "[7, 8]"}', 'unparsable'],
  ['score is None', '{"score": None}', 'unparsable'],
  ['score is empty', '{"score": []}', 'unparsable'],
  ['score is an object', '{"score": {"success": 7, "overedit": 8}}', 'unparsable'],
  ['nested lists', '{"score": [[7, 8]]}', 'unparsable'],
  ['strings as scores', '{"score": ["7", " 8.5 "]}', [7, 8.5]],
  ['strings that are no plain numbers', '{"score": ["7/10", "8"]}', 'unparsable'],
  ['strings with an exponent', '{"score": ["1e1", "8"]}', 'unparsable'],
  ['empty strings', '{"score": ["", "8"]}', 'unparsable'],
  ['strings that were cut off', '{"score": ["7", "1', 'unparsable'],
  ['null among scores', '{"score": [null, 8]}', 'unparsable'],
  ['NaN among scores', '{"score": [NaN, 8]}', 'unparsable'],
  ['Infinity among scores', '{"score": [1e999, 8]}', 'unparsable'],
  ['minus Infinity among scores', '{"score": [-Infinity, 8]}', 'unparsable'],
  ['Infinity as a word', '{"score": [Infinity, 8]}', 'unparsable'],
  ['true among scores', '{"score": [true, 8]}', 'unparsable'],
  ['an empty place among scores', '{"score": [7, , 8]}', 'unparsable'],
  ['decimal commas', '{"score": [7,5, 8,5]}', 'unparsable'],
  ['hexadecimal', '{"score": [0x7, 8]}', 'unparsable'],
  ['full-width digits', '{"score": [\uff17, \uff11\uff10]}', [7, 10]],
  ['full-width commas', '{"score"\uff1a [7\uff0c8]\uff0c "reasoning": "x"}', [7, 8]],
  [
    'full-width commas in quoted text',
    '{"reasoning": "a \u201cred\u201d\uff0cball", "score": ["\uff17"\uff0c"8"]}',
    [7, 8],
  ],
  ['other digits', '{"score": [\u0667, \u0668]}', 'unparsable'],
  ['units', '{"score": [7 points, 8 points]}', 'unparsable'],
  ['ranges', '{"score": [6-7, 8]}', 'unparsable'],
  ['fractions', '{"score": [7/10, 8/10]}', 'unparsable'],
  ['one score of two', '{"score": [7]}', 'unparsable'],
  ['a lone number of two', '{"score": 7}', 'unparsable'],
  ['three scores of two', '{"score": [7, 8, 9]}', 'unparsable'],
  ['out of range', '{"score": [11, -2]}', 'out_of_range'],
  ['just out of range', '{"score": [10.1, 5]}', 'out_of_range'],
  ['percentages', '{"score": [70, 80]}', 'out_of_range'],
  ['a scale of 25', '{"score": [20, 18]}', 'out_of_range'],
  ['negative', '{"score": [5, -1]}', 'out_of_range'],
  ['just below zero', '{"score": [5, -0.1]}', 'out_of_range'],
  ['an unusable object never falls back to a list', '{"score": [11, 2, 3]} [7, 8]', 'unparsable'],
  // No object at all.
  ['alone', '[7, 8]', [7, 8]],
  ['in prose', 'My scores are [7, 8] overall.', [7, 8]],
  ['two spaces', '[7,  8]', [7, 8]],
  ['decimals', '[7.5, 8.5]', [7.5, 8.5]],
  ['repeated', '[7, 8] ... so [7, 8]', [7, 8]],
  ['a list of a list before', '[[1, 2], 3] and [7, 8]', [7, 8]],
  ['two that differ in one place', 'not [7, 9] but [7, 8]', 'unparsable'],
  ['two different ones', 'from [0, 10]: [7, 8]', 'unparsable'],
  ['of one', '[7]', 'unparsable'],
  ['of three', '[7, 8, 9]', 'unparsable'],
  ['percentages', '[70, 80]', 'out_of_range'],
  ['slash form', 'Score: 7/10', 'unparsable'],
  ['number', '11', 'unparsable'],
  ['number within the scale', '7', 'unparsable'],
  ['two numbers', '7, 8', 'unparsable'],
  ['strings', '["7", "8"]', [7, 8]],
  ['full-width', '[\uff17\uff0c\uff18]', [7, 8]],
  ['null', '[null, 8]', 'unparsable'],
  ['NaN', '[NaN, 8]', 'unparsable'],
  ['an empty list', '[]', 'unparsable'],
  ['an error message', 'Internal Server Error', 'unparsable'],
  ['HTML', '<html><body>[7, 8</body></html>', 'empty'],
  ['nothing', '', 'empty'],
  ['spaces', ' \n ', 'empty'],
  ['repeated garbage', '!'.repeat(500), 'unparsable'],
  ['refusal', "I'm sorry, but I can't help with rating this image.", 'refused'],
  ['refusal in other words', 'As an AI, I do not rate images of people. [0, 0]?', 'refused'],
  ['regret and scores all the same', 'I\'m sorry to say that it failed: {"score": [0, 10]}', [0, 10]],
  ['refusal with typographic quote', 'I\u2019m sorry, I cannot compare these.', 'refused'],
  ['refusal between delimiters', '||V^=^V||\nI cannot rate it: [0, 0]\n||V^=^V||', 'unparsable'],
];

describe('parseScores, two scores', () => {
  it.each(judgeTexts)('%s', (_name, text, expected) => {
    expect(outcome(parseScores(text, 2))).toEqual(expected);
  });
});

describe('parseScores, one score', () => {
  it.each<readonly [string, string, Expected]>([
    ['scalar', '{"score": 7, "reasoning": "x"}', [7]],
    ['list of one', '{"score": [7]}', [7]],
    ['bare words and scalar', '{score: 7, reasoning: good}', [7]],
    ['a lone number', ' 7 ', [7]],
    ['a lone number out of range', '11', 'out_of_range'],
    ['a lone number with its sign', '+7', [7]],
    ['a lone number with a fraction', '7.25', [7.25]],
    ['a lone number below the scale', '-7', 'out_of_range'],
    ['a lone full-width number', '\uff17', [7]],
    ['a number in quotes', '{"score": "7"}', [7]],
    ['two that disagree within', '{"a": {"score": 7}, "b": {"score": 3}}', 'unparsable'],
    ['a lone number in a fence', '```text\n7\n```', [7]],
    ['a lone number in a fence of a language with a dash', '```plain-text\n7\n```', [7]],
    ['a lone number with a full stop', '7.', 'unparsable'],
    ['a lone number with an exponent', '1e1', 'unparsable'],
    ['digits on both sides of a delimiter', '1||V^=^V||0', 'unparsable'],
    ['digits on both sides of a fence', '1``` 0', 'unparsable'],
    ['a number behind words', 'It is 7', 'unparsable'],
    ['a number before words', '7 it is', 'unparsable'],
    ['a scalar that is not finite', '{"score": 1e999}', 'unparsable'],
    ['a list that is not finite', '{"score": [1e999]}', 'unparsable'],
    ['a word where a number was asked for', '{"score": high}', 'unparsable'],
    ['a word, and a number within', '{"score": high, "then": {"score": 7}}', [7]],
    ['a scalar that was cut off', '{"score": 1', 'unparsable'],
    ['a scalar with a fraction', '{"score": 7/10}', 'unparsable'],
    ['two for one', '{"score": [7, 8]}', 'unparsable'],
  ])('%s', (_name, text, expected) => {
    expect(outcome(parseScores(text, 1))).toEqual(expected);
  });
});

describe('what keeps a text from being read', () => {
  it('is a lone number in a reply that was cut off, unless something closed it', () => {
    expect(outcome(parseScores('1', 1, true))).toBe('truncated');
    expect(outcome(parseScores('[1]', 1, true))).toEqual([1]);
    expect(outcome(parseScores('||V^=^V||1||V^=^V||', 1, true))).toEqual([1]);
  });

  it('is the sixty-fifth bracket', () => {
    for (const [bracket, answer] of [
      ['{a} ', good],
      ['[a] ', '[7, 8]'],
    ]) {
      expect(outcome(parseScores(bracket.repeat(63) + answer, 2))).toEqual([7, 8]);
      expect(outcome(parseScores(bracket.repeat(64) + answer, 2))).toBe('unparsable');
    }
  });

  it('is more than forty thousand characters', () => {
    expect(outcome(parseScores(good.padEnd(40_000), 2))).toEqual([7, 8]);
    expect(parseScores(good.padEnd(40_001), 2)).toMatchObject({ detail: 'the reply has 40001 characters' });
    expect(outcome(parseScoreTag('<score>7</score>'.padEnd(40_001)))).toBe('unparsable');
  });

  it.each<readonly [string, number, UnscoredReason, string]>([
    ['[7] [8]', 1, 'unparsable', 'contradict'],
    ['{"score": [7]}', 2, 'unparsable', 'not 2 plain numbers'],
    ['[11, 2]', 2, 'out_of_range', '[11,2]'],
    ['a'.repeat(120), 2, 'unparsable', `"${'a'.repeat(120)}"`],
    ['a'.repeat(121), 2, 'unparsable', `"${'a'.repeat(117)}..."`],
  ])('is told: %j', (text, arity, problem, detail) => {
    expect(parseScores(text, arity)).toEqual({ ok: false, problem, detail: expect.stringContaining(detail) as string });
  });
});

describe('a refusal', () => {
  it.each([
    "I'm sorry.",
    'Im sorry.',
    'I\u2019m very sorry.',
    "  **I'm so sorry",
    'Sorry, no.',
    'I cannot do that.',
    "I can't do that.",
    'I can\u2019t do that.',
    'I am unable to.',
    'I am not able to.',
    'I am sorry.',
    'I must decline.',
    "I won't.",
    'I won\u2019t.',
    'As an AI model, no.',
    'Unfortunately, I can only look.',
    'Unfortunately, I am no judge.',
  ])('is %j', (text) => {
    expect(outcome(parseScores(text, 2))).toBe('refused');
  });

  it.each([
    "They say: I'm sorry.",
    "I'm not sorry.",
    'Sorry sight.',
    'I can tell.',
    'I am able to.',
    'As an aim, no.',
    'Unfortunately, I saw it.',
    'It is unfortunate.',
  ])('is not %j', (text) => {
    expect(outcome(parseScores(text, 2))).toBe('unparsable');
  });
});

/** Marks around thoughts, as models write them. */
const marks: readonly (readonly [string, string])[] = [
  ['<think>', '</think>'],
  ['<thinking>', '</thinking>'],
  ['<Think time="3">', '</Think>'],
  ['<seed:think>', '</seed:think>'],
  ['<mm:think>', '</mm:think>'],
  ['\u25c1think\u25b7', '\u25c1/think\u25b7'],
  ['[THINK]', '[/THINK]'],
  ['<reflection>', '</reflection>'],
  ['\u3010\u601d\u8003\u3011', '\u3010/\u601d\u8003\u3011'],
  ['<|channel|>analysis<|message|>', '<|end|><|start|>assistant<|channel|>final<|message|>'],
  ['<|START_THINKING|>', '<|END_THINKING|><|START_RESPONSE|>'],
];
const draft = 'A first draft would be {"score": [3, 3], "reasoning": "x"}, but the colour';

describe('thoughts', () => {
  it.each(marks)('are no answer within %s', (open, close) => {
    for (const lead of ['', '\n', 'Let me see.\n']) {
      expect(outcome(parseScores(lead + open + draft, 2, true))).toBe('truncated');
      expect(outcome(parseScores(lead + open + draft, 2))).toBe('truncated');
      expect(outcome(parseScores(`${lead}${open}${draft} is right.${close}${good}`, 2))).toEqual([7, 8]);
      expect(outcome(parseScores(`${lead}${open}${draft} is right.${close}It has no number.`, 2))).toMatch(
        /^(?:unparsable|truncated)$/,
      );
    }
    const tag = 'It might be <score>3</score>, but';
    expect(outcome(parseScoreTag(open + tag, true))).toBe('truncated');
    expect(outcome(parseScoreTag(`${open}${tag}${close}<score>7</score>`))).toEqual([7]);
  });

  it.each<readonly [string, string, Expected]>([
    ['prose before the object', draft, 'truncated'],
    ['prose before the list', 'Perhaps [3, 3], but', 'truncated'],
    ['a bare channel name', `analysis${draft}`, 'truncated'],
    ['a fence around thoughts', '```thinking\n' + draft, 'truncated'],
    ['the object first', good.slice(0, -5), [7, 8]],
    ['the object first in a fence', '```json\n' + good.slice(0, -5), [7, 8]],
    ['the object behind closed thoughts', `<think>${draft}</think>\n${good.slice(0, -5)}`, [7, 8]],
    ['thoughts behind the object', `${good}\n<think>${draft}`, [7, 8]],
  ])('in a reply that was cut off: %s', (_name, text, expected) => {
    expect(outcome(parseScores(text, 2, true))).toEqual(expected);
  });

  it.each<readonly [string, string, Expected]>([
    ['an answer in a block of its own', `<think>${draft}</think><answer>${good}</answer>`, [7, 8]],
    ['a fenced answer in a block of its own', `<answer>\n\`\`\`json\n${good}\n\`\`\`\n</answer>`, [7, 8]],
    ['an answer in a box', `<think>${draft}</think><answer><|begin_of_box|>${good}<|end_of_box|></answer>`, [7, 8]],
    ['an answer before the end of the turn', `${good}<|im_end|>`, [7, 8]],
    ['thoughts alone', `<think>${draft}</think>`, 'empty'],
    ['thoughts that are an object alone', `<think>${good}</think>`, 'empty'],
    ['thoughts that do not end before the answer', `<think>${draft}<answer>${good}</answer>`, 'truncated'],
    ['two blocks that disagree', `{"score": [1, 1]} <answer>${good}</answer>`, 'unparsable'],
    ['tags in the reasoning', '{"score": [7, 8], "reasoning": "the <mask> and </b> of [IMG]"}', [7, 8]],
    ['closed tags in a sentence', `It is <b>red</b>: ${good}`, [7, 8]],
    ['thoughts that begin within a line and never end', `Well, <think>${draft}`, 'truncated'],
    ['a tag behind the answer', `${good} The <mask> is red.`, [7, 8]],
  ])('of a whole reply: %s', (_name, text, expected) => {
    expect(outcome(parseScores(text, 2))).toEqual(expected);
  });
});

describe('parseScoreTag', () => {
  it('counts a tag of a reply that was cut off only at its end', () => {
    expect(outcome(parseScoreTag('Hence <score>7</score>', true))).toEqual([7]);
    expect(outcome(parseScoreTag('At first <score>3</score>, but', true))).toBe('truncated');
  });

  it.each<readonly [string, string, Expected]>([
    ['plain', 'The change agrees.\n<score>8</score>', [8]],
    ['inner spaces', '<score> 8 </score>', [8]],
    ['one decimal', '<score>7.5</score>', [7.5]],
    ['two decimals', '<score>7.55</score>', 'unparsable'],
    ['zero', '<score>0</score>', [0]],
    ['ten', '<score>10</score>', [10]],
    ['two that disagree', '<score>3</score> would be harsh: <score>6</score>', 'unparsable'],
    ['two that agree', '<score>6</score>, so <score> 6.0 </score>', [6]],
    ['a placeholder before', 'as <score>n</score> or <score>0-10</score>: <score>6</score>', [6]],
    ['one out of range before', '<score>11</score> no: <score>6</score>', 'unparsable'],
    ['full-width digits', '<score>\uff11\uff10</score>', [10]],
    ['line breaks inside', '<score>\n8\n</score>', [8]],
    ['in a fence', '```\n<score>8</score>\n```', [8]],
    ['between delimiters', '||V^=^V||<score>8</score>||V^=^V||', [8]],
    ['words behind', '<score>8</score>\nThat is my score.', [8]],
    ['leading zero', '<score>08</score>', [8]],
    ['minus zero', '<score>-0</score>', [0]],
    ['in thinking only', '<think><score>3</score></think>done', 'unparsable'],
    ['capitalised', '<Score>6</Score>', [6]],
    ['eleven', '<score>11</score>', 'out_of_range'],
    ['just above', '<score>10.1</score>', 'out_of_range'],
    ['percent', '<score>80</score>', 'out_of_range'],
    ['percent sign', '<score>80%</score>', 'unparsable'],
    ['negative', '<score>-1</score>', 'out_of_range'],
    ['just below zero', '<score>-0.1</score>', 'out_of_range'],
    ['in words', '<score>eight</score>', 'unparsable'],
    ['empty', '<score></score>', 'unparsable'],
    ['NaN', '<score>NaN</score>', 'unparsable'],
    ['exponent', '<score>1e1</score>', 'unparsable'],
    ['decimal comma', '<score>7,5</score>', 'unparsable'],
    ['two numbers', '<score>7 8</score>', 'unparsable'],
    ['a list', '<score>[8]</score>', 'unparsable'],
    ['bold', '<score>**8**</score>', 'unparsable'],
    ['as an attribute', '<score value="8"/>', 'unparsable'],
    ['another closing tag', '<score>8<score>', 'unparsable'],
    ['inside itself', '<score><score>8</score></score>', [8]],
    ['escaped', '&lt;score&gt;8&lt;/score&gt;', 'unparsable'],
    ['signed', '<score>+8</score>', [8]],
    ['of five digits', '<score>00008</score>', 'unparsable'],
    ['a number before something else', '<score>8 or 9</score>', 'unparsable'],
    ['a space in the closing tag', '<score>8</ score>', 'unparsable'],
    ['far apart', `<score>${' '.repeat(500)}8</score>`, [8]],
    ['no tag but JSON', '{"score": [8]}', 'unparsable'],
    ['fraction', '<score>8/10</score>', 'unparsable'],
    ['a last tag that is no number', '<score>5</score> or <score>8/10</score>', 'unparsable'],
    ['a last tag that was cut off', '<score>5</score> no, <score>1', 'unparsable'],
    ['no tag', '8', 'unparsable'],
    ['nothing', '', 'empty'],
    ['refusal', 'I cannot assist with that.', 'refused'],
  ])('%s', (_name, text, expected) => {
    expect(outcome(parseScoreTag(text))).toEqual(expected);
  });
});

describe('any text at all', () => {
  it('gives in-range scores of the asked number or a reason, the same each time, without chance and without throwing', () => {
    const found = fuzzJudgeTexts({ texts: 2_000, seed: 'unit tests' });
    expect(found.failures).toEqual([]);
    expect(found.texts).toBe(2_000);
    // Both outcomes have to occur, or the texts test nothing.
    for (const { scored, rejected } of Object.values(found.readers)) {
      expect(scored).toBeGreaterThan(10);
      expect(rejected).toBeGreaterThan(10);
    }
  });

  it('never reads a score out of an answer that was cut off inside its scores', () => {
    const whole = '{"score": [10, 10], "reasoning": "fine"}';
    for (let length = 0; length < whole.length; length++) {
      const parsed = parseScores(whole.slice(0, length), 2);
      expect(parsed.ok ? parsed.scores : null).toEqual(length >= '{"score": [10, 10]'.length ? [10, 10] : null);
    }
    const tagged = 'the same change\n<score>10</score>';
    for (let length = 0; length < tagged.length; length++) {
      expect(parseScoreTag(tagged.slice(0, length)).ok).toBe(false);
    }
    for (const length of [1, 2]) expect(outcome(parseScores('10'.slice(0, length), 1, true))).toBe('truncated');
    expect(outcome(parseScores('10', 1))).toEqual([10]);
  });

  it.each(['{', '[', '{"a":', '[{', "{'", '"', '<think>', '{"score":'])('stays quick on many of %s', (piece) => {
    expect(parseScores(piece.repeat(40_000 / piece.length), 2).ok).toBe(false);
  });
});
