/** The reward that a config describes: one term on its native scale, or a weighted sum of terms. */
import { ConfigError, DataError, must } from '../../core/errors.js';
import { chosenTerms, comparesAnswers, decidingTerms, measuredTerms, rewardName, type ChosenTerm } from './choice.js';
import type { CanaryResult } from '../judge/client.js';
import type { WaitOptions } from '../judge/readiness.js';
import type { RewardChoice } from './settings.js';
import { missingInput, type Term, type TermKind, type TermServices } from '../terms/term.js';
import { allOrAbort } from '../../core/clock.js';
import {
  isHeldOut,
  type AnswerGroup,
  type JudgeItem,
  type Outcome,
  type ScoreOptions,
  type ScoreParts,
} from './types.js';
import { weightedSum, type TermOutcome } from './weighted.js';

/** An outcome with the outcomes of its terms. */
export interface CombinedOutcome {
  readonly outcome: Outcome;
  /** Outcomes of the deciding terms, in order. */
  readonly terms: readonly TermOutcome[];
}

export interface CombinedReward extends Term {
  /** Waits for the servers of all terms that have their own, including recorded terms. */
  readonly untilReady: (options: WaitOptions) => Promise<void>;
  /** Whether the deciding terms' own servers answer. The first server that does not gives the reason. */
  readonly canary: (signal?: AbortSignal) => Promise<CanaryResult>;
  /** The terms that decide. The weight of a mode's term is 1. */
  readonly terms: readonly { readonly name: string; readonly weight: number }[];
  /** Like `score`, with the outcome of each term. */
  scoreTerms(item: JudgeItem, signal?: AbortSignal, options?: ScoreOptions): Promise<CombinedOutcome>;
}

interface Requested extends ChosenTerm {
  readonly term: Term;
}

/**
 * Creates the terms that the settings choose. The outcome of `mode` is that of its term, and the outcome of `terms` is their weighted sum.
 * The terms of `also_compute` are only recorded, and leave out items without the reference that they compare with. The terms of `measure` score
 * held-out items in addition, each on its native scale, under the same exception. `native`: whether the outcome is that of one term, on its
 * own scale. Raises ConfigError for settings that cannot work on this machine. Its `score` raises DataError for an item without the source,
 * labeled image or labeled words that a deciding term needs.
 */
export async function createReward(
  settings: RewardChoice,
  services: TermServices,
  native = settings.terms.length === 0,
): Promise<CombinedReward> {
  const deciding = decidingTerms(settings);
  const chosen = chosenTerms(settings);
  const created: Requested[] = [];
  const close = async (): Promise<void> => {
    await Promise.all(created.map(({ term }) => term.close()));
  };
  try {
    for (const one of chosen) {
      refuseConflict(one);
      created.push({ ...one, term: await one.kind.create(one.fields, services) });
    }
  } catch (error) {
    await close();
    throw error;
  }
  const decides = created.slice(0, deciding.length);
  const measures = created.slice(chosen.length - measuredTerms(settings).length);
  const recorded = created.slice(deciding.length, chosen.length - measures.length);

  /** By whole group, so that all its answers get the same object. */
  const lookedAt = new WeakMap<AnswerGroup, AnswerGroup>();
  const isRuledOut = ({ finished }: JudgeItem): boolean => settings.zero_if_unfinished && !finished;
  function within(options: ScoreOptions | undefined): ScoreOptions | undefined {
    if (options?.group === undefined) return options;
    const { answers, ruledOut } = options.group;
    const group = lookedAt.get(options.group) ?? {
      answers: answers.filter((answer) => !isRuledOut(answer) && answer.unavailable === undefined),
      ruledOut: ruledOut + answers.filter(isRuledOut).length,
    };
    lookedAt.set(options.group, group);
    return { ...options, group };
  }

  async function scoreTerms(item: JudgeItem, signal?: AbortSignal, options?: ScoreOptions): Promise<CombinedOutcome> {
    for (const { kind } of decides) requireInputs(kind, item);
    const named = (outcome: (index: number) => Outcome): TermOutcome[] =>
      decides.map(({ name, weight }, index) => ({ name, weight, outcome: outcome(index) }));
    if (isRuledOut(item)) {
      const outcome: Outcome = { kind: 'zero_by_rule', reason: 'unfinished', parts: {} };
      return { outcome, terms: named(() => outcome) };
    }
    if (item.unavailable !== undefined) {
      const { reason, detail } = item.unavailable;
      const outcome: Outcome = { kind: 'unscored', reason, detail: `${item.key}: ${detail}`, parts: {} };
      return { outcome, terms: named(() => outcome) };
    }
    const besides = recorded.filter(({ kind }) => missingInput(kind.needs, item) === null);
    const among = within(options);
    const starts = (some: readonly Requested[]): ((stop: AbortSignal) => Promise<Outcome>)[] =>
      some.map(
        ({ term }) =>
          (stop) =>
            term.score(item, stop, among),
      );
    const outcomes = await allOrAbort([...starts(decides), ...starts(besides).map(nullIfLacking)], signal);
    const terms = named((index) => must(outcomes[index], 'the outcome of a term that decides'));
    const outcome = native ? terms[0].outcome : weightedSum(terms);
    const more = outcomes.slice(decides.length).map((found, i) => found && recordedParts(besides[i].kind.name, found));
    return { outcome: { ...outcome, parts: Object.assign({}, ...more, outcome.parts) as ScoreParts }, terms };
  }

  /** Only the reward depends on whether an answer ended by itself. */
  async function measure(
    { kind, term }: Requested,
    item: JudgeItem,
    stop: AbortSignal,
    options?: ScoreOptions,
  ): Promise<Outcome | null> {
    if (missingInput(kind.needs, item) !== null) return null;
    if (item.unavailable !== undefined) return { kind: 'unscored', ...item.unavailable, parts: {} };
    return nullIfLacking((signal) => term.score(item, signal, options))(stop);
  }

  async function score(item: JudgeItem, signal?: AbortSignal, options?: ScoreOptions): Promise<Outcome> {
    const reward = async (stop?: AbortSignal): Promise<Outcome> => (await scoreTerms(item, stop, options)).outcome;
    if (measures.length === 0 || !isHeldOut(item)) return reward(signal);
    const [outcome, ...found] = await allOrAbort<Outcome | null>(
      [reward, ...measures.map((one) => (stop: AbortSignal) => measure(one, item, stop, options))],
      signal,
    );
    const named = measures.flatMap(({ name }, i) => (found[i] === null ? [] : [[name, found[i]] as const]));
    return { ...must(outcome, 'the outcome of the reward'), measures: Object.fromEntries(named) };
  }

  return {
    name: rewardName(settings),
    compares: [...decides, ...recorded].some(({ kind }) => comparesAnswers(kind)),
    terms: decides.map(({ name, weight }) => ({ name, weight })),
    scoreTerms,
    untilReady: async (options) => {
      for (const { term } of created) await term.untilReady?.(options);
    },
    canary: async (signal) => {
      const looks = decides.flatMap(({ term }) => (term.canary === undefined ? [] : [term.canary(signal)]));
      return (await Promise.all(looks)).find(({ ok }) => !ok) ?? { ok: true };
    },
    score,
    close,
  };
}

/** The recorded numbers of a term that does not decide: its parts, or its value if it has none. */
function recordedParts(name: string, { parts, ...outcome }: Outcome): ScoreParts {
  if (outcome.kind !== 'scored' || Object.keys(parts).length > 0) return parts;
  return { [`${name}/value`]: outcome.value };
}

/** Null if the term cannot score the item because of the dataset: the instruction quotes no text, or the label names nothing. */
function nullIfLacking(score: (stop: AbortSignal) => Promise<Outcome>): (stop: AbortSignal) => Promise<Outcome | null> {
  return async (stop) => {
    try {
      return await score(stop);
    } catch (error) {
      if (error instanceof DataError) return null;
      throw error;
    }
  };
}

/** The config has checked this already, but settings may come from elsewhere. */
function refuseConflict({ kind, fields }: ChosenTerm): void {
  const conflict = kind.conflict?.(fields) ?? null;
  if (conflict === null) return;
  throw new ConfigError(conflict.message, { where: `reward.terms, ${kind.name}.${conflict.field}` });
}

function requireInputs(kind: TermKind, item: JudgeItem): void {
  const missing = missingInput(kind.needs, item);
  if (missing === null) return;
  throw new DataError(`reward '${kind.name}' compares with ${missing}, but this prompt has none`, {
    where: item.key,
    next: 'Train on data that has it, or choose a reward that does not need it: editrl config schema lists the needs of each term.',
  });
}
