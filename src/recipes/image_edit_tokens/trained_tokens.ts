/** Which tokens of an answer carry the loss: EARL's cycles of text and vision, and tokens that were forced. Pure functions. */
import type { ImageEditSettings } from './settings.js';
import type { TokenAnswer, TokenRequest } from '../../policies/tokens/batch.js';
import type { Emu3Format, Emu3Prompt } from '../../policies/tokens/emu3.js';
import { forcedTokens } from '../../policies/tokens/format.js';
import type { TrainTokens } from '../../schema/algorithm.js';

export interface TrainedTokensSettings {
  readonly algorithm: Pick<Extract<ImageEditSettings['algorithm'], { type: 'grpo' }>, 'train_tokens' | 'forced_tokens'>;
  readonly policy: Pick<ImageEditSettings['policy'], 'emu3_use_logit_processor'>;
}

/** 1 for tokens of an answer that carry the loss in an iteration (counted from 1), else 0. The loss is divided by their number. */
export function trainedTokens(
  iteration: number,
  { tokens }: TokenRequest<Emu3Prompt>,
  { ids }: Pick<TokenAnswer, 'ids'>,
  { algorithm, policy }: TrainedTokensSettings,
  format: Emu3Format,
): Float32Array {
  const trained = trainedPart(iteration, algorithm.train_tokens);
  const forced =
    algorithm.forced_tokens === 'left_out' && policy.emu3_use_logit_processor
      ? forcedTokens(format.start(tokens), ids)
      : new Uint8Array(ids.length);
  return Float32Array.from(ids, (id, t) => {
    const ofPart = trained === 'all' || format.space.isVision(id) === (trained === 'vision');
    return ofPart && forced[t] === 0 ? 1 : 0;
  });
}

function trainedPart(iteration: number, cycle: TrainTokens): 'all' | 'text' | 'vision' {
  if (cycle === 'all') return 'all';
  if ((iteration - 1) % cycle.cycle_steps < cycle.steps) return cycle.tokens;
  return cycle.rest ?? (cycle.tokens === 'text' ? 'vision' : 'all');
}
