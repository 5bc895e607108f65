/** Feeds garbled judge texts to the readers of scores: good replies that are mutated by rules, and plain noise. */
import { RandomStream } from '../../../src/core/random.js';
import { parseExpectedDigit } from '../../../src/rewards/judge/first_token.js';
import { parseReply, type ReplyForm } from '../../../src/rewards/judge/forms.js';
import { parseScores, parseScoreTag, type Parsed } from '../../../src/rewards/judge/parse.js';

/** A reader of scores, and the range of its results. */
interface Reader {
  readonly read: (text: string) => Parsed;
  /** The upper bound of each of its scores. */
  readonly highest: readonly number[];
  /** The lower bound of its scores. Default: 0. */
  readonly lowest?: number;
  /** Whether its last score may be N/A. */
  readonly lastOptional?: boolean;
  /** Whether its scores are numbers that occur in the text, not computed from them. */
  readonly quotes: boolean;
}

const twoOf25: ReplyForm = { kind: 'scores', count: 2, scale: [0, 25] };
const report: ReplyForm = {
  kind: 'aspects',
  scale: [1, 4],
  aspects: [
    { heading: 'Text Faithfulness', optional: false },
    { heading: 'Physical and Visual Quality', optional: false },
    { heading: 'Text Rendering', optional: true },
  ],
};

const named: ReplyForm = { kind: 'named', names: ['Final Score', 'knowledge_score'], scale: [1, 5] };
const lines: ReplyForm = { kind: 'lines', count: 3, scale: [1, 5] };

const readers = {
  'two scores': { read: (text) => parseScores(text, 2), highest: [10, 10], quotes: true },
  'one score': { read: (text) => parseScores(text, 1), highest: [10], quotes: true },
  'one score, cut off': { read: (text) => parseScores(text, 1, true), highest: [10], quotes: true },
  'score tag': { read: parseScoreTag, highest: [10], quotes: true },
  'two of 25': { read: (text) => parseReply(twoOf25, text), highest: [25, 25], quotes: true },
  'two of 25, cut off': { read: (text) => parseReply(twoOf25, text, true), highest: [25, 25], quotes: true },
  report: { read: (text) => parseReply(report, text), highest: [4, 4, 4], lowest: 1, lastOptional: true, quotes: true },
  'report, cut off': {
    read: (text) => parseReply(report, text, true),
    highest: [4, 4, 4],
    lowest: 1,
    lastOptional: true,
    quotes: true,
  },
  named: { read: (text) => parseReply(named, text), highest: [5, 5], lowest: 1, quotes: true },
  'named, cut off': { read: (text) => parseReply(named, text, true), highest: [5, 5], lowest: 1, quotes: true },
  lines: { read: (text) => parseReply(lines, text), highest: [5, 5, 5], lowest: 1, quotes: true },
  'lines, cut off': { read: (text) => parseReply(lines, text, true), highest: [5, 5, 5], lowest: 1, quotes: true },
  winner: { read: (text) => parseReply({ kind: 'winner' }, text), highest: [1, 1], quotes: false },
  'expected digit': { read: (text) => parseExpectedDigit(text, 5), highest: [5, 1], quotes: false },
} as const satisfies Record<string, Reader>;

export type ReaderName = keyof typeof readers;

export interface FuzzReport {
  readonly texts: number;
  readonly readers: Readonly<Record<ReaderName, { readonly scored: number; readonly rejected: number }>>;
  /** The first texts for which a reader broke a promise, with the result. */
  readonly failures: readonly string[];
}

/**
 * Reads this many texts with every reader and checks its promises: it does not throw, and it gives the requested number of scores, finite, in range
 * and contained in the text; the same text gives the same result, at once and at the end; and no reader uses random numbers (`Math.random` raises
 * meanwhile).
 */
export function fuzzJudgeTexts({ texts, seed }: { readonly texts: number; readonly seed: string }): FuzzReport {
  const random = new RandomStream('judge texts', seed);
  const counts = Object.fromEntries(Object.keys(readers).map((name) => [name, { scored: 0, rejected: 0 }])) as Record<
    ReaderName,
    { scored: number; rejected: number }
  >;
  const failures: string[] = [];
  const kept: { readonly text: string; readonly name: ReaderName; readonly result: string }[] = [];
  const real = Math.random;
  Math.random = () => {
    throw new Error('a random number was asked for');
  };
  try {
    for (let i = 0; i < texts && failures.length < 10; i++) {
      const text = judgeText(random);
      for (const [name, reader] of Object.entries(readers) as [ReaderName, Reader][]) {
        const { failure, parsed, result } = readOnce(reader, text);
        if (failure !== null) failures.push(`${name}: ${failure}: ${JSON.stringify(text)}`);
        if (parsed?.ok === true) counts[name].scored++;
        else counts[name].rejected++;
        if (i % 997 === 0) kept.push({ text, name, result });
      }
    }
    for (const { text, name, result } of kept) {
      const again = readOnce(readers[name], text).result;
      if (again !== result) failures.push(`${name}: first ${result}, at the end ${again}: ${JSON.stringify(text)}`);
    }
  } finally {
    Math.random = real;
  }
  return { texts, readers: counts, failures };
}

interface Reading {
  readonly failure: string | null;
  readonly parsed: Parsed | null;
  readonly result: string;
}

function readOnce(reader: Reader, text: string): Reading {
  try {
    const parsed = reader.read(text);
    const result = JSON.stringify(parsed);
    const again = JSON.stringify(reader.read(text));
    const failure = again === result ? brokenPromise(reader, parsed, text) : `first ${result}, then ${again}`;
    return { failure, parsed, result };
  } catch (error) {
    return { failure: `it threw ${String(error)}`, parsed: null, result: 'threw' };
  }
}

function brokenPromise(
  { highest, lowest = 0, lastOptional = false, quotes }: Reader,
  parsed: Parsed,
  text: string,
): string | null {
  if (!parsed.ok) return parsed.detail === '' ? 'no reason is given' : null;
  const { scores } = parsed;
  if (scores.length !== highest.length) return `${scores.length} scores`;
  const numbers = scores.filter((score, i) => score !== null || !lastOptional || i < scores.length - 1);
  if (!numbers.every((score, i) => score !== null && score >= lowest && score <= highest[i])) {
    return `out of range: ${scores.join(', ')}`;
  }
  if (!quotes) return null;
  const ascii = text.replace(/[\uff10-\uff19]/g, (digit) => String(digit.charCodeAt(0) - 0xff10));
  const written = new Set((ascii.match(/\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g) ?? []).map(Number));
  const made = numbers.filter((score) => score !== null && !written.has(score));
  return made.length === 0 ? null : `${made.join(', ')} is not in the text`;
}

/** A text that a judge might send: most often a good reply with up to six mutations. */
function judgeText(random: RandomStream): string {
  const kind = random.integer(10);
  if (kind === 0) return noise(random, random.integer(80));
  let text = kind < 3 ? alternatives(random) : goodReply(random);
  for (let left = random.integer(7); left > 0; left--) text = random.pick(mutations)(text, random);
  return text;
}

type Write = (random: RandomStream) => string;

function score(random: RandomStream): string {
  return String(random.integer(3) === 0 ? random.integer(101) / 10 : random.integer(11));
}

const words: readonly Write[] = [
  () => 'The ball is red.',
  () => 'at [3, 4] the "edge" is blurred, {see} below',
  (random) => `I first thought of ${score(random)}/10`,
  (random) => `a score of [${score(random)}, ${score(random)}] seems fair`,
  (random) => noise(random, random.integer(30)),
];

const replies: readonly Write[] = [
  (random) =>
    `I see.\n**Final Score:** **${1 + random.integer(5 + random.integer(2))}**\n"knowledge_score": ${1 + random.integer(5 + random.integer(2))}`,
  (random) =>
    [
      'Brief reasoning: It is fine.',
      ...['Prompt Compliance', 'Naturalness', 'Detail'].map(
        (name) => `${name}: ${1 + random.integer(5 + random.integer(2))}`,
      ),
    ].join('\n'),
  (random) =>
    `{"score": [${score(random)}, ${score(random)}], "reasoning": ${JSON.stringify(random.pick(words)(random))}}`,
  (random) =>
    `{"reasoning": ${JSON.stringify(random.pick(words)(random))}, "score": [${score(random)}, ${score(random)}]}`,
  (random) => `{'score': [${score(random)}, ${score(random)}], 'reasoning': '${random.pick(words)(random)}'}`,
  (random) => `{score: [${score(random)}, ${score(random)}], reasoning: fine}`,
  (random) => `{"score": ${score(random)}, "reasoning": "x"}`,
  (random) => `{"score": [${score(random)}]}`,
  (random) => `[${score(random)}, ${score(random)}]`,
  (random) => `{"score": ["${score(random)}", "${score(random)}"]}`,
  (random) => `{"score"\uff1a [${score(random)}\uff0c${score(random)}]\uff0c"reasoning"\uff1a"\uff17"}`,
  (random) => score(random),
  (random) => `${random.pick(words)(random)}\n<score>${score(random)}</score>`,
  () => "I'm sorry, but I can't help with rating this image.",
  reportOf,
  reportOf,
  reportOf,
  (random) => JSON.stringify({ winner: random.pick(winners), reason: random.pick(words)(random) }),
  (random) => JSON.stringify({ winner: random.pick(winners) }),
  (random) => `{"reasoning": "${random.pick(words)(random)}", "score": [${score(random)}, ${20 + random.integer(8)}],}`,
];

const winners: readonly string[] = [
  'Image A',
  'Image B',
  'Tie',
  'A',
  'image_b',
  'Image C',
  "'Image A' or 'Image B'",
  '',
];

/** A report in Markdown, with a grade of each aspect. */
function reportOf(random: RandomStream): string {
  const grade = (): string => `${1 + random.integer(4)}${random.integer(2) === 0 ? '' : `.${random.integer(10)}`}`;
  const last = random.integer(3) === 0 ? 'N/A' : grade();
  const grades = { 'Text Faithfulness': grade(), 'Physical and Visual Quality': grade(), 'Text Rendering': last };
  const sections = Object.entries(grades).map(
    ([heading, found], i) =>
      `${i + 1}. ${heading}:\n## Justification: ${random.pick(words)(random)}\n## Score: ${found}`,
  );
  return `# Detailed Judgement\n${sections.join('\n')}\n# Summary: ${random.pick(words)(random)}`;
}

const wrappers: readonly ((text: string, random: RandomStream) => string)[] = [
  (text) => text,
  (text) => '```json\n' + text + '\n```',
  (text) => `||V^=^V||\n${text}\n||V^=^V||`,
  (text, random) => `<think>${random.pick(words)(random)} ${random.pick(replies)(random)}</think>${text}`,
  (text, random) => `${random.pick(words)(random)}\n${text}\n${random.pick(words)(random)}`,
  (text, random) => `${text}\n${random.pick(replies)(random)}`,
  (text) => JSON.stringify(text),
];

function goodReply(random: RandomStream): string {
  return random.pick(wrappers)(random.pick(replies)(random), random);
}

/** The alternatives of a first token, as `readFirstToken` keeps them. */
function alternatives(random: RandomStream): string {
  const tokens = ['0', '1', '2', '3', '4', '5', ' 5', '5\n', '6', '10', '', 'The', '\u0665', '\uff15', '5.'];
  const logprob = (): number | null => {
    const kind = random.integer(12);
    return kind === 0 ? null : kind === 1 ? -9999 : -random.integer(1200) / 100;
  };
  return JSON.stringify(Array.from({ length: 1 + random.integer(20) }, () => [random.pick(tokens), logprob()]));
}

/** Random code units, including halves of surrogate pairs, and characters from all of Unicode. */
function noise(random: RandomStream, length: number): string {
  let text = '';
  for (let i = 0; i < length; i++) {
    const kind = random.integer(4);
    if (kind === 0) text += String.fromCharCode(random.integer(0x10000));
    else if (kind === 1) text += String.fromCodePoint(random.integer(0x110000));
    else if (kind === 2) text += random.pick(fragments);
    else text += String.fromCharCode(32 + random.integer(95));
  }
  return text;
}

const fragments: readonly string[] = [
  ...[
    '{',
    '}',
    '[',
    ']',
    '(',
    ')',
    '"',
    "'",
    ',',
    ':',
    ';',
    '\\',
    '\n',
    '\r',
    '\t',
    '\u0000',
    '\ud83d',
    '\u2028',
    '\ufeff',
  ],
  ...[
    '{"score":',
    '"score"',
    'score',
    'Score',
    '"reasoning": "',
    '[7,',
    '8]',
    '[]',
    '{}',
    '[[',
    ']]',
    '{"a":{"score":',
  ],
  ...[
    '<think>',
    '</think>',
    '<score>',
    '</score>',
    '<Score>',
    '```',
    '```json',
    '||V^=^V||',
    '\u201c',
    '\u2019',
    '\uff1a',
    '\uff0c',
  ],
  ...[
    'null',
    'None',
    'NaN',
    'Infinity',
    '-Infinity',
    'true',
    '"7"',
    '7/10',
    '1e',
    '1e999',
    '-1',
    '-0',
    '0x10',
    '1_0',
    '10',
    '11',
  ],
  ...[
    '.5',
    '5.',
    '1,5',
    '\u0667',
    '\uff17',
    '\u00bd',
    '99999999999999999999',
    '0.1e2',
    '+3',
    '--3',
    '!!!!!!!!!!',
    '-9999',
    '[["5",0.5]]',
  ],
];

const mutations: readonly ((text: string, random: RandomStream) => string)[] = [
  // Cut off.
  (text, random) => text.slice(0, random.integer(text.length + 1)),
  (text, random) => text.slice(random.integer(text.length + 1)),
  // A piece is inserted, removed or doubled.
  (text, random) => insert(text, random, random.pick(fragments)),
  (text, random) => insert(text, random, noise(random, 1 + random.integer(4))),
  (text, random) => {
    const at = random.integer(text.length + 1);
    return text.slice(0, at) + text.slice(at + 1 + random.integer(6));
  },
  (text, random) => {
    const at = random.integer(text.length + 1);
    return insert(text, random, text.slice(at, at + random.integer(24)));
  },
  // Another reply is put inside, before or after.
  (text, random) => insert(text, random, goodReply(random)),
  // A number is replaced by another.
  (text, random) => {
    const numbers = [...text.matchAll(/-?\d+(?:\.\d+)?/g)];
    if (numbers.length === 0) return text;
    const { index, 0: found } = random.pick(numbers);
    return text.slice(0, index) + random.pick(fragments) + text.slice(index + found.length);
  },
  (text, random) =>
    text.replaceAll(random.pick(['"', ',', ' ', ':', '[', ']', '{', '}', '\n']), random.pick(fragments)),
  (text, random) => (random.integer(2) === 0 ? text.toUpperCase() : text.replaceAll('"', "'")),
];

function insert(text: string, random: RandomStream, piece: string): string {
  const at = random.integer(text.length + 1);
  return text.slice(0, at) + piece + text.slice(at);
}
