/** The part of every policy's loss that follows from how it is to learn. */
import type { Value } from '../graph/ir.js';
import { ratioTerm, reinforceTerm } from '../nets/losses.js';
import type { LossSpec } from './policy.js';

/** What a loss raises, a number for each of N actions; `input` declares what else it reads of them. */
export function gainOf(loss: LossSpec, logProbs: Value, input: (name: 'advantages' | 'old') => Value): Value {
  switch (loss.policy) {
    case 'likelihood':
      return logProbs;
    case 'reinforce':
      return reinforceTerm(logProbs, input('advantages'));
    case 'ratio':
      return ratioTerm(logProbs, input('old'), input('advantages'), loss.clip);
  }
}
