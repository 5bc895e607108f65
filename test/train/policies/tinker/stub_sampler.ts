/** Sampling by a stand-in of a training server. */
import { RandomStream } from '../../../../src/core/random.js';
import type { Bigrams } from './bigrams.js';
import type { StubSample } from './stub_messages.js';
import { chunksFromJson, positionsOf, type StubEyes } from './stub_pictures.js';

/** What a stand-in samples for a request. `goesOn`: after a token that ends an answer. */
export function sampled(
  model: Bigrams,
  fields: Readonly<Record<string, unknown>>,
  { goesOn, eyes }: { readonly goesOn: boolean; readonly eyes: StubEyes },
): StubSample {
  const { tokens: prompt, rows, isPicture, rowOf } = positionsOf(chunksFromJson(fields['prompt']), eyes);
  const { max_tokens, temperature, seed, stop } = fields['sampling_params'] as {
    max_tokens: number;
    temperature: number;
    seed: number;
    stop: number[];
  };
  const sequences = Array.from({ length: Number(fields['num_samples']) }, (_, i) => {
    const random = new RandomStream('stub', seed + i);
    const [tokens, logprobs]: [number[], number[]] = [[], []];
    let before = rows[rows.length - 1];
    while (tokens.length < max_tokens) {
      const plain = model.after(before);
      const chosen =
        temperature === 0 ? plain.indexOf(Math.max(...plain)) : draw(model.after(before, temperature), random);
      tokens.push(chosen);
      logprobs.push(plain[chosen]);
      if (stop.includes(chosen) && !goesOn) return { tokens, logprobs, stop_reason: 'stop' as const };
      before = rowOf(chosen);
    }
    return { tokens, logprobs, stop_reason: 'length' as const };
  });
  const told = prompt.slice(1).map((token, t) => (isPicture[t + 1] ? null : model.after(rows[t])[token]));
  return { sequences, prompt_logprobs: fields['prompt_logprobs'] === true ? [null, ...told] : null };
}

function draw(logProbs: readonly number[], random: RandomStream): number {
  let left = random.uniform();
  for (const [i, logProb] of logProbs.entries()) {
    left -= Math.exp(logProb);
    if (left < 0) return i;
  }
  return logProbs.length - 1;
}
