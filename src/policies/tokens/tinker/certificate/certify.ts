/**
 * Looks at what a training server computes before anything is spent on it: trainer, sampler and base model on the same tokens, the end of answers,
 * the direction of a step, whether the sampler follows it, and what the server makes of the losses of tokens.
 */
import { Deadline } from '../../../../core/deadline.js';
import type { TinkerConnection } from '../../../../engines/tinker/connection.js';
import { AnswerError, TinkerError } from '../../../../engines/tinker/errors.js';
import type { TinkerSession } from '../../../../engines/tinker/session.js';
import type { TokenFormat } from '../../format.js';
import { PromptChunks, type Sequence, type Sight } from '../prompts.js';
import { TIDY_MS, type Reduction } from '../served.js';
import { compareShifted, wrongEnds, type ByPosition, type Pair } from './compare.js';
import {
  FINDING_NAMES,
  KINDS,
  measuredFinding,
  missingFinding,
  unmeasuredFinding,
  type Finding,
  type FindingName,
} from './findings.js';
import { findingsOfPictures } from './pictures.js';
import { isWritten, Scratch, type WithDeadline, type DrawnAnswer } from './scratch.js';
import { findingsOfSteps } from './steps.js';

/** Gives the log-probabilities of the answers' tokens, or says why it cannot. */
export type OwnEngine =
  | { readonly logProbs: (sequences: readonly Sequence[]) => Promise<readonly Float32Array[]> }
  | { readonly why: string };

export interface CertifyOptions {
  readonly connection: Pick<TinkerConnection, 'clock'>;
  /** One of its own, which is closed afterwards. */
  readonly session: TinkerSession;
  readonly concurrency: number;
  readonly asked: WithDeadline;
  readonly format: Pick<TokenFormat, 'size' | 'ends'>;
  /** What the settings say; null for what is found. */
  readonly reduction: Reduction | null;
  /** Whether the run reads log-probabilities of the base model. */
  readonly needsPrompts: boolean;
  /** Whether the run samples while it trains. */
  readonly samplesAhead: boolean;
  readonly own: OwnEngine;
  /** How its policy sees; null for one that does not. */
  readonly sight: Sight | null;
}

export interface CertificateResult {
  /** By the order of their names. */
  readonly findings: readonly Finding[];
  /** What is to be sent for; null where it is unknown, which a finding says. */
  readonly reduction: Reduction | null;
}

const PROMPTS = 4;
const ANSWERS = 4;
/** Tokens of an answer that is compared. */
const LENGTH = 16;
/** Tokens that the server makes a prompt of. */
const OPENING = 8;
/** Tokens that end an answer, where ends are looked at. */
const MOST_STOPS = 32;
/** Tokens of which one is pushed. */
const CANDIDATES = 12;
/** Its requests raise EndpointError where the server stays away or refuses. */
export function certify(options: CertifyOptions): Promise<CertificateResult> {
  return withScratch(options, (scratch) => looked(options, scratch));
}

type ScratchOptions = Pick<CertifyOptions, 'session' | 'connection' | 'concurrency' | 'asked' | 'sight'>;

/**
 * Uses up what a run that was killed between a pass and its step may have left: SkyRL gives that gradient to the next model in the same place. Raises
 * as `certify`.
 */
export function clearPlace(options: ScratchOptions): Promise<void> {
  return withScratch(options, async (scratch) => {
    await scratch.begin();
    await scratch.spend();
  });
}

async function withScratch<R>(
  { session, connection, concurrency, asked, sight }: ScratchOptions,
  work: (scratch: Scratch) => Promise<R>,
): Promise<R> {
  try {
    return await work(new Scratch(session, new PromptChunks(sight), concurrency, asked));
  } finally {
    const brief = new Deadline(connection.clock, TIDY_MS);
    await session.close(brief).finally(() => brief.dispose());
  }
}

async function looked(options: CertifyOptions, scratch: Scratch): Promise<CertificateResult> {
  const { format } = options;
  const ends = [...format.ends].sort((x, y) => x - y);
  await scratch.begin();
  await scratch.publish();
  const openings = await scratch.draw(
    spread(format, PROMPTS).map((id) => ({ ids: [id] })),
    { count: 1, maxTokens: OPENING, stop: ends },
  );
  const prompts = openings.map(({ prompt, answer }) => [...prompt, ...answer]);
  const drawn = await scratch.draw(
    prompts.map((ids) => ({ ids })),
    { count: ANSWERS, maxTokens: LENGTH, stop: ends },
  );
  const end = await endOf(scratch, prompts, drawn, ends);
  const answers = drawn.filter(isWritten);

  const tried = candidates(prompts[0], answers, format);
  const sequences = [...answers, ...tried];
  const trained = await unlessMissing(scratch.logProbs(sequences));
  const base = await unlessRefused(scratch.promptLogProbs(answers));
  const lengths = lengthsOf(answers, trained, base);
  if (lengths.state === 'failed' || typeof trained === 'string') {
    return certifiedAs([lengths, end], 'there are log-probabilities missing or too many', options);
  }
  const told = {
    sampler: samplerPairs(answers, trained),
    prompts: typeof base === 'string' ? base : promptPairs(base, trained),
    own_engine: await ownPairs(options.own, answers, trained),
  };
  const { positions, found } = matches(told, options.needsPrompts);
  const still = [lengths, positions, ...found, end];
  if (positions.state === 'failed') return certifiedAs(still, 'log-probabilities are shifted', options);
  const passed = (name: FindingName): boolean => found.find((one) => one.name === name)?.state === 'passed';
  if (options.sight !== null) {
    const { sight, needsPrompts } = options;
    const reads = { sampler: passed('sampler'), base: needsPrompts && passed('prompts') };
    const pictured = await findingsOfPictures(scratch, { sight, openings: prompts, stop: ends, reads });
    still.push(...pictured.findings);
    if (passed('own_engine') && pictured.answers.length > 0) {
      // With pictures it may fail where it has passed with words: then this is what counts.
      const pairs = await ownPairs(options.own, pictured.answers, pictured.trained);
      still.unshift(...matches({ own_engine: pairs }, false).found.filter(({ state }) => state === 'failed'));
    }
  }
  const isAsItIs = found.find(({ name }) => name === 'sampler')?.state !== 'failed';
  const moved = await findingsOfSteps(scratch, prompts[0], tried, trained.slice(answers.length), {
    ...options,
    stop: ends,
    isAsItIs,
  });
  return certifiedAs([...still, ...moved.findings], '', { ...options, reduction: moved.reduction });
}

const whole = ({ prompt, answer }: Sequence): number[] => [...prompt, ...answer];

/** Ids across the vocabulary that end no answer. */
function spread({ size, ends }: CertifyOptions['format'], count: number): number[] {
  const plain = (id: number): number => (ends.has(id) ? plain((id + 1) % size) : id);
  return Array.from({ length: count }, (_, i) => plain(Math.floor(((i + 1) * size) / (count + 1))));
}

/** Answers of one token to a prompt: those that answers begin with, and others. */
function candidates(
  prompt: readonly number[],
  answers: readonly Sequence[],
  format: CertifyOptions['format'],
): Sequence[] {
  const known = answers.flatMap(({ answer }) => [...answer.slice(0, 1)]);
  const ids = [...new Set([...known, ...spread(format, CANDIDATES)])].slice(0, CANDIDATES);
  return ids.map((id) => ({ prompt, answer: Int32Array.of(id) }));
}

/** What the answers are, or that numbers are missing in them. */
async function unlessMissing<T>(work: Promise<T>): Promise<T | string> {
  return work.catch((error: unknown) => {
    if (error instanceof AnswerError && error.index === null) return error.message;
    throw error;
  });
}

/** What the server tells, or how it refuses to. */
async function unlessRefused<T>(work: Promise<T>): Promise<T | string> {
  return work.catch((error: unknown) => {
    if (error instanceof TinkerError && error.kind === 'refused') return error.message;
    throw error;
  });
}

async function endOf(
  scratch: Scratch,
  prompts: readonly (readonly number[])[],
  answers: readonly DrawnAnswer[],
  ends: readonly number[],
): Promise<Finding> {
  // The same prompts under the same seeds come to one of these soon.
  const seen = [...new Set(answers.flatMap(({ answer }) => [...answer]))].slice(0, MOST_STOPS);
  const asked = { maxTokens: LENGTH, stop: [...new Set([...ends, ...seen])].sort((x, y) => x - y) };
  const cut = await scratch.draw(
    prompts.map((ids) => ({ ids })),
    { count: ANSWERS, ...asked },
  );
  const [plain, early] = [
    wrongEnds(answers.map(said), { maxTokens: LENGTH, stop: ends }),
    wrongEnds(cut.map(said), asked),
  ];
  if (plain.stopped + early.stopped === 0) return unmeasuredFinding('end', 'no answer came to an end');
  const wrong = [...plain.wrong, ...early.wrong];
  return measuredFinding('end', wrong.length, wrong[0] ?? '');
}

const said = ({ answer, finished }: DrawnAnswer): { ids: number[]; finished: boolean } => ({
  ids: [...answer],
  finished,
});

function lengthsOf(
  answers: readonly DrawnAnswer[],
  trained: readonly Float32Array[] | string,
  base: readonly (Float64Array | null)[] | string,
): Finding {
  const wrong = answers.flatMap(({ answer, logProbs }) =>
    logProbs === null || logProbs.length === answer.length
      ? []
      : [`the sampler gives ${logProbs.length} for an answer of ${answer.length} tokens`],
  );
  if (typeof trained === 'string') wrong.push(trained);
  if (typeof base !== 'string') {
    base.forEach((found, i) => {
      const { length } = whole(answers[i]);
      // The first token has none, which some servers say and others leave out.
      if (found === null || found.length === length || found.length === length - 1) return;
      wrong.push(`the base model gives ${found.length} for a prompt of ${length} tokens`);
    });
  }
  return measuredFinding('lengths', wrong.length, wrong[0] ?? '');
}

function samplerPairs(answers: readonly DrawnAnswer[], trained: readonly Float32Array[]): Pair[] | string {
  if (answers.some(({ logProbs }) => logProbs === null)) {
    return 'the server tells no log-probabilities of what it samples';
  }
  return answers.map(({ prompt, logProbs }, i) => ({ one: trained[i], other: atAnswer(prompt, logProbs ?? []) }));
}

function promptPairs(base: readonly (Float64Array | null)[], trained: readonly Float32Array[]): Pair[] | string {
  if (base.every((one) => one === null || !one.some(Number.isFinite))) return NO_PROMPTS;
  return base.map((found, i) => ({ one: trained[i], other: (found ?? new Float64Array()).slice(-trained[i].length) }));
}

async function ownPairs(
  own: OwnEngine,
  answers: readonly DrawnAnswer[],
  trained: readonly ByPosition[],
): Promise<Pair[] | string> {
  if ('why' in own) return own.why;
  const found = await own.logProbs(answers);
  return answers.map(({ prompt }, i) => ({ one: trained[i], other: atAnswer(prompt, found[i]) }));
}

/** Places an answer's log-probabilities among all positions but the last; NaN at those of the prompt. */
function atAnswer(prompt: readonly number[], logProbs: ByPosition): ByPosition {
  return [...new Array<number>(prompt.length - 1).fill(NaN), ...Array.from(logProbs)];
}

const NO_PROMPTS = 'the server tells no log-probabilities of prompts';

/** Pairs to compare, or why there are none. */
type Told = Readonly<Partial<Record<'sampler' | 'prompts' | 'own_engine', readonly Pair[] | string>>>;

function matches(told: Told, needsPrompts: boolean): { readonly positions: Finding; readonly found: Finding[] } {
  const shifted: string[] = [];
  let furthest = 0;
  const found = (Object.keys(told) as (keyof Told)[]).map((name) => {
    const pairs = told[name] ?? [];
    const result = typeof pairs === 'string' ? null : compareShifted(pairs, KINDS[name].limit);
    if (result === null) {
      const why = typeof pairs === 'string' ? pairs : 'there was nothing to compare';
      return name === 'prompts' && needsPrompts
        ? missingFinding(name, why, 'Set algorithm.kl_coeff to 0.')
        : unmeasuredFinding(name, why);
    }
    if (result.shift !== 0) shifted.push(`${name} by ${result.shift}`);
    furthest = Math.max(furthest, Math.abs(result.shift));
    return measuredFinding(name, result.difference, `${result.count} tokens`);
  });
  return { positions: measuredFinding('positions', furthest, shifted.join(', ')), found };
}

/** What concerns a run that samples while it trains, and one whose policy sees. */
const AHEAD: readonly FindingName[] = ['apart'];
const SEEING: readonly FindingName[] = ['picture_tokens', 'pictures', 'pictures_sampled'];

/** In the order of their names; those that are not there were not measured. */
function certifiedAs(
  found: readonly Finding[],
  why: string,
  { reduction, samplesAhead, sight }: Pick<CertifyOptions, 'reduction' | 'samplesAhead' | 'sight'>,
): CertificateResult {
  const of = (name: FindingName): Finding => found.find((one) => one.name === name) ?? unmeasuredFinding(name, why);
  const left = [...(samplesAhead ? [] : AHEAD), ...(sight === null ? SEEING : [])];
  const names = FINDING_NAMES.filter((name) => !left.includes(name));
  return { findings: names.map(of), reduction };
}
