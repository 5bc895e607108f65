/** Which tokens of an answer carry the loss (EARL's text-only and vision-only cycles). */
import type { TrainTokens } from '../../schema/algorithm.js';
import type { TokenAnswer } from '../../policies/tokens/batch.js';
import type { TokenSpace } from '../../policies/tokens/emu3/space.js';

/** 1 on tokens that carry the loss in this iteration, else 0. */
export function trainedTokens(
  space: TokenSpace,
  cycle: TrainTokens,
  iteration: number,
  { ids }: Pick<TokenAnswer, 'ids'>,
): Float32Array {
  const restricted = cycle !== 'all' && (iteration - 1) % cycle.cycle_steps < cycle.steps;
  return Float32Array.from(ids, (id) => {
    if (!restricted) return 1;
    return space.isVision(id) === (cycle.tokens === 'vision') ? 1 : 0;
  });
}
