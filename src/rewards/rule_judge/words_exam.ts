/** An exam on text answers, whose quality follows from how they were made: questions about some of the things in a list. */
import { RandomStream } from '../../core/random.js';
import { OTHER_WORDS, type ExamAnswer, type ExamCase, type ExamSet } from '../exam/cases.js';

/** Right things, and an equal number of wrong ones. */
interface Choice {
  /** The question, such as `which of these are even`. */
  readonly criterion: string;
  /** The right things in words, such as `the even ones`. */
  readonly named: string;
  readonly right: readonly string[];
  readonly wrong: readonly string[];
}

/** The numbers of right and wrong things in a question. */
const OF_EACH = 4;

const THINGS = {
  animals: ['badger', 'falcon', 'heron', 'lizard', 'otter', 'rabbit', 'salmon', 'weasel', 'zebra', 'donkey'],
  fruits: ['apricot', 'banana', 'cherry', 'lemon', 'mango', 'papaya', 'plum', 'quince', 'raspberry', 'fig'],
  tools: ['chisel', 'drill', 'hammer', 'pliers', 'saw', 'screwdriver', 'spanner', 'trowel', 'axe', 'rasp'],
  garments: ['apron', 'blouse', 'cardigan', 'glove', 'jacket', 'scarf', 'skirt', 'sock', 'trousers', 'vest'],
} as const;
type Kind = keyof typeof THINGS;
const KINDS = Object.keys(THINGS) as readonly Kind[];

/** Two digits, so that no claimed grade equals one of them. */
const NUMBERS = Array.from({ length: 89 }, (_, i) => 11 + i);

function numbers(random: RandomStream, criterion: string, isRight: (value: number) => boolean): Choice {
  const drawn = (from: readonly number[]): string[] => drawSome(random, from).map(String);
  return {
    criterion: `which of these are ${criterion}`,
    named: `the ones that are ${criterion}`,
    right: drawn(NUMBERS.filter(isRight)),
    wrong: drawn(NUMBERS.filter((value) => !isRight(value))),
  };
}

function things(random: RandomStream): Choice {
  const kind = random.pick(KINDS);
  const others = KINDS.filter((one) => one !== kind).flatMap((one) => THINGS[one]);
  return {
    criterion: `which of these are ${kind}`,
    named: `the ${kind} there`,
    right: drawSome(random, THINGS[kind]),
    wrong: drawSome(random, others),
  };
}

const CHOICES: readonly ((random: RandomStream) => Choice)[] = [
  things,
  (random) => numbers(random, 'even', (value) => value % 2 === 0),
  (random) => numbers(random, 'divisible by three', (value) => value % 3 === 0),
  (random) => numbers(random, 'above fifty', (value) => value > 50),
];

function drawSome<T>(random: RandomStream, from: readonly T[]): T[] {
  return random.shuffled(from).slice(0, OF_EACH);
}

/** `a, b and c`. */
const listed = (words: readonly string[]): string => `${words.slice(0, -1).join(', ')} and ${words[words.length - 1]}`;

function caseAt(seed: number, index: number): ExamCase {
  const random = new RandomStream(seed, 'exam of words', index);
  const { criterion, named, right, wrong } = CHOICES[index % CHOICES.length](random);
  const list = random.shuffled([...right, ...wrong]).join(', ');
  const instruction = `${criterion}: ${list}?`;
  const answers: readonly ExamAnswer[] = [
    { name: 'right', truth: 1, made: `${listed(right)}.` },
    { name: OTHER_WORDS, truth: 1, made: `I would call ${listed(right.toReversed())} ${named}.` },
    { name: 'half_done', truth: 0.5, made: `${listed(right.slice(0, OF_EACH / 2))}.` },
    { name: 'too_much', truth: 0.5, made: `${listed(random.shuffled([...right, ...wrong]))}.` },
    { name: 'wrong', truth: 0, made: `${listed(wrong)}.` },
    {
      name: 'evasive',
      truth: 0,
      made: 'That depends on how one looks at it, and there is something to be said for each.',
    },
    { name: 'echo', truth: 0, made: instruction },
  ];
  return {
    name: String(index),
    instruction,
    reworded: `Please tell me ${instruction}`,
    source: null,
    answers,
    tricked: { not_pay: 'wrong', not_move: 'half_done' },
    labelled: listed(right),
  };
}

/** This many cases. Each is a pure function of the seed and its number. */
export function wordsExam(length: number, seed = 0): ExamSet {
  return {
    name: seed === 0 ? 'words' : `words-${seed}`,
    length,
    reads: 'words',
    labelled: true,
    at: async (index) => caseAt(seed, index),
  };
}
