/** What optimizer steps at a training server do, on a model that nobody uses afterwards. */
import type { Sequence } from '../prompts.js';
import type { Reduction } from '../served.js';
import { compareShifted, lag } from './compare.js';
import { finding, KINDS, measuredFinding, missingFinding, unmeasuredFinding, type Finding } from './findings.js';
import { isWritten, type DrawnAnswer, type Scratch } from './scratch.js';

/** Answers that are drawn to see what samples, and how long they may be. */
const ANSWERS = 16;
const LENGTH = 4;
/** A token is pushed that is no likelier than this at the beginning: it has room to rise. */
const ROOM = -1;
/** From then on half of the answers begin with it, so that the sampler shows it. */
const LIKELY = Math.log(0.5);
const RISEN = 0.5;
const FALLEN = -1;
/** The change of a log-probability that tells a direction. */
const DECIDED = 0.2;
/** Less than this on average tells nothing of a sampler that lags behind. */
const LEAST_WAY = 0.1;

interface Stepped {
  readonly findings: readonly Finding[];
  readonly reduction: Reduction | null;
}

export interface SteppedOptions {
  /** What the settings say; null for what is found. */
  readonly reduction: Reduction | null;
  /** Whether the run samples while it trains. */
  readonly samplesAhead: boolean;
  /** Whether sampler and trainer match without training. */
  readonly isAsItIs: boolean;
  /** Tokens that end an answer. */
  readonly stop: readonly number[];
}

/**
 * What steps do: to the token that is pushed, to what the sampler then tells, and by how much where two answers pull at it. The weights of before have
 * been published; `trained` are the log-probabilities of `tried`, answers of one token to the prompt.
 */
export async function findingsOfSteps(
  scratch: Scratch,
  prompt: readonly number[],
  tried: readonly Sequence[],
  trained: readonly Float32Array[],
  { stop, isAsItIs, reduction, samplesAhead }: SteppedOptions,
): Promise<Stepped> {
  const at = trained.map((found) => found[prompt.length - 1]);
  const [token, known] = roomy(tried, at);
  const other = tried.map(({ answer }) => answer[0]).find((id) => id !== token) ?? token;
  const alone = { prompt, answer: Int32Array.of(token) };
  const pair = { prompt, answer: Int32Array.of(token, other) };

  const pushed = await scratch.push([{ ...alone, advantages: [1] }], known, (before, now) => {
    const rise = now - before;
    return rise <= FALLEN || (rise >= RISEN && now >= LIKELY);
  });
  const direction = measuredFinding('direction', pushed.now - pushed.before);
  const draw = async (): Promise<DrawnAnswer[]> =>
    (await scratch.draw([{ ids: prompt }], { count: ANSWERS, maxTokens: LENGTH, stop })).filter(isWritten);
  // Still with the weights of before the steps.
  const older = samplesAhead ? await draw() : [];
  const [again] = samplesAhead ? await scratch.logProbs([alone]) : [];
  await scratch.publish();
  const drawn = await draw();
  const after = await scratch.logProbs(drawn);
  await scratch.begin();
  const before = await scratch.logProbs(drawn);
  const olderBefore = samplesAhead ? await scratch.logProbs(older) : [];
  const moved = isAsItIs
    ? [
        freshOf(drawn, before, after),
        ...(samplesAhead ? [apartOf(older, olderBefore, Math.abs(again[prompt.length - 1] - pushed.now))] : []),
      ]
    : (['fresh', 'apart'] as const).map((name) =>
        unmeasuredFinding(name, 'without training, sampler and trainer do not match'),
      );
  if (direction.state === 'failed') {
    return settled([direction, ...moved], null, reduction, 'a step does not go where it has to');
  }

  /** Whether the token rises where an answer of it alone pulls it down, and one of two tokens up by so much. */
  const rises = async (up: number): Promise<boolean | null> => {
    const lessons = [
      { ...alone, advantages: [-1] },
      { ...pair, advantages: [up, 0] },
    ];
    const { before, now } = await scratch.push(lessons, known, (from, to) => Math.abs(to - from) >= DECIDED);
    return Math.abs(now - before) < DECIDED ? null : now > before;
  };
  const first = await rises(BETWEEN);
  await scratch.begin();
  const second = await rises(first === true ? BELOW : ABOVE);
  const found =
    first === true && second === false ? 'sum' : first === false && second === true ? 'mean_per_datum' : null;
  return settled([direction, ...moved], found, reduction, NEITHER);
}

/** A token of an answer of two weighs 1 where losses are summed, and a half where they are averaged: it takes more than 1 or 2 to outweigh one. */
const [BELOW, BETWEEN, ABOVE] = [0.75, 1.5, 3];
const WEIGHTS: Readonly<Record<Reduction, number>> = { sum: 1, mean_per_datum: 0.5 };
const NEITHER = 'the server neither sums the losses of tokens nor averages them over each answer';

function settled(findings: readonly Finding[], found: Reduction | null, set: Reduction | null, why: string): Stepped {
  const own = (): Finding => {
    if (found !== null) {
      const said = set === null ? '' : `; policy.trainer.reduction is '${set}'`;
      return finding(
        'reduction',
        set === null || set === found,
        WEIGHTS[found],
        `${KINDS.reduction.figure}: '${found}'${said}`,
      );
    }
    if (why === NEITHER) {
      return missingFinding('reduction', why, 'Check the version of the server: this program cannot train at it.');
    }
    return set === null
      ? missingFinding('reduction', why, 'Set policy.trainer.reduction.')
      : unmeasuredFinding('reduction', why);
  };
  return { findings: [...findings, own()], reduction: set ?? found };
}

/** The likeliest token that has room to rise; the unlikeliest where none has. */
function roomy(tried: readonly Sequence[], at: readonly number[]): readonly [token: number, logProb: number] {
  const all = tried.map(({ answer }, i) => [answer[0], at[i]] as const).sort(([, x], [, y]) => y - x);
  return all.find(([, logProb]) => logProb <= ROOM) ?? all[all.length - 1];
}

const UNTOLD = 'the server tells no log-probabilities of what it samples';

/** `shift`: how far sampling with older weights has moved what the trainer tells. */
function apartOf(older: readonly DrawnAnswer[], before: readonly Float32Array[], shift: number): Finding {
  const pairs = older.flatMap(({ prompt, logProbs }, i) =>
    logProbs === null ? [] : [{ one: before[i].slice(prompt.length - 1), other: logProbs }],
  );
  const found = compareShifted(pairs, KINDS.apart.limit);
  if (found === null) return missingFinding('apart', UNTOLD, 'Set rollout.ahead to 0.');
  return measuredFinding('apart', Math.max(shift, found.difference));
}

function freshOf(
  drawn: readonly DrawnAnswer[],
  before: readonly Float32Array[],
  after: readonly Float32Array[],
): Finding {
  if (drawn.some(({ logProbs }) => logProbs === null)) {
    return unmeasuredFinding('fresh', UNTOLD);
  }
  const behind = lag(
    drawn.map(({ prompt, logProbs }, i) => {
      const from = prompt.length - 1;
      return { found: logProbs ?? [], before: before[i].slice(from), after: after[i].slice(from) };
    }),
    LEAST_WAY,
  );
  return behind === null
    ? unmeasuredFinding('fresh', 'steps changed too little to see it')
    : measuredFinding('fresh', behind);
}
