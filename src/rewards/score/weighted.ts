/** One outcome from the outcomes of several terms. Pure functions. */
import { must } from '../../core/errors.js';
import type { Outcome, ScoreParts, TermScore } from './types.js';

export interface TermOutcome {
  readonly name: string;
  /** Positive. The weights of a sum add up to 1. */
  readonly weight: number;
  readonly outcome: Outcome;
}

/**
 * The weighted sum of the terms' normalized values, itself in [0, 1]. One unscored term makes the sum unscored, with its reason. A term
 * that is zero by rule contributes 0, and if all are, so is the sum. The parts are those of all terms, and `<term>/normalised` of each that
 * has a number.
 */
export function weightedSum(terms: readonly TermOutcome[]): Outcome {
  const parts = Object.assign({}, ...terms.map(partsOf)) as ScoreParts;
  const scores: TermScore[] = [];
  for (const { name, weight, outcome } of terms) {
    if (outcome.kind === 'unscored') {
      return { kind: 'unscored', reason: outcome.reason, detail: `${name}: ${outcome.detail}`, parts };
    }
    scores.push({ name, weight, normalised: normalizedOf(outcome) });
  }
  const zeros = terms.flatMap(({ outcome }) => (outcome.kind === 'zero_by_rule' ? [outcome] : []));
  if (zeros.length === terms.length) {
    return { kind: 'zero_by_rule', reason: must(zeros.at(0), 'a reward without terms').reason, parts };
  }
  // The weights are written by hand, so their sum may be off in its last digits. Dividing by it keeps the value in [0, 1].
  const whole = sum(scores.map(({ weight }) => weight));
  const value = sum(scores.map(({ weight, normalised }) => weight * normalised)) / whole;
  return { kind: 'scored', value, normalised: value, parts, terms: scores };
}

function partsOf({ name, outcome }: TermOutcome): ScoreParts {
  if (outcome.kind === 'unscored') return outcome.parts;
  return { ...outcome.parts, [`${name}/normalised`]: normalizedOf(outcome) };
}

function normalizedOf(outcome: Exclude<Outcome, { kind: 'unscored' }>): number {
  return outcome.kind === 'scored' ? outcome.normalised : 0;
}

function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0);
}

/** `0.25 × word_sequence + 0.75 × exact_words`. A single term has no weight. */
export function weightedNames(terms: readonly { readonly name: string; readonly weight: number }[]): string {
  return terms.length === 1 ? terms[0].name : terms.map(({ name, weight }) => `${weight} × ${name}`).join(' + ');
}
