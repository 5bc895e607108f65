/** Sampling options of a token policy, from its settings. */
import type { RolloutSettings, ValidationSettings } from '../../schema/training.js';
import type { TokenSampling } from './rollout.js';

/** For training. */
export function samplingOf({ rollout }: { readonly rollout: RolloutSettings }): TokenSampling {
  const { temperature, top_p, top_k, max_response_tokens } = rollout;
  return { temperature, topP: top_p, topK: top_k, maxTokens: max_response_tokens, logProbTemperature: temperature };
}

/** For held-out answers: from the whole distribution, and greedily if requested. */
export function heldOutSampling({
  rollout,
  validation,
}: {
  readonly rollout: RolloutSettings;
  readonly validation: ValidationSettings;
}): Record<string, TokenSampling> {
  const sampled = {
    temperature: validation.temperature,
    topP: 1,
    topK: -1,
    maxTokens: rollout.max_response_tokens,
    logProbTemperature: 1,
  };
  return validation.greedy ? { sampled, greedy: { ...sampled, temperature: 0 } } : { sampled };
}
