/**
 * REINFORCE with an advantage for each cell of a picture: with the log-probability of an action a mean over its elements, log p = mean_e log p_e, the
 * gain is mean_e A_e log p_e. Where all cells have one advantage this is `reinforce`, whose gradient is that of the ratio loss at the first step.
 */
import { must } from '../../core/errors.js';
import type { LossRule, WithKl } from './loss.js';

export interface CellsLoss extends WithKl {
  readonly policy: 'cells';
}

export const cells: LossRule<CellsLoss> = {
  reads: [],
  ofCells: true,
  gain: (_spec, _logProbs, _input, _gaussians, paid) => must(paid, 'what the cells of the actions are paid'),
};
