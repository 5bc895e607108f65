/** A model of text and image tokens with random weights, and a sampler of its answers at a vLLM. */
import { systemClock } from '../../../../src/core/clock.js';
import { RandomStream } from '../../../../src/core/random.js';
import { VllmClient } from '../../../../src/train/policies/vllm/client.js';
import { soloGroup } from '../../../../src/core/group/process_group.js';
import type { DecoderConfig } from '../../../../src/compute/nets/decoder/config.js';
import type { TokenAnswer } from '../../../../src/train/policies/tokens/batch.js';
import { Emu3Format, type Emu3Prompt, type ParsedAnswer } from '../../../../src/train/policies/tokens/emu3.js';
import { VllmSampler } from '../../../../src/train/policies/vllm/sampler.js';
import { writeLlama } from './small_base.js';
import { FORCED, openPrompt, SAMPLED, smallSpace, textPrompt } from '../small_policy.js';
import { MemoryAnswers } from './sampled_policy.js';

/** A Llama with heads of a size that vLLM's kernels have. */
export function writeBlocksBase(folder: string): string {
  const sizes: DecoderConfig = {
    ...{ vocab_size: smallSpace().size, hidden_size: 64, intermediate_size: 32, num_hidden_layers: 1 },
    ...{ num_attention_heads: 2, num_key_value_heads: 2, head_dim: 32, rope_theta: 10_000, rms_norm_eps: 1e-6 },
    ...{ attention_bias: false, tie_word_embeddings: false },
  };
  return writeLlama(folder, sizes, { embedding_std: 0.5, initializer_range: 0.05 });
}

export function openBlocks(
  { url, base, constrained = true }: { readonly url: string; readonly base: string; readonly constrained?: boolean },
  header: 'forced' | 'sampled',
) {
  const space = smallSpace({ forced: FORCED, sampled: SAMPLED }[header]);
  const prompts = [openPrompt(space), textPrompt(space)];
  const format = new Emu3Format(space);
  const store = new MemoryAnswers();
  const client = new VllmClient({ url, concurrency: 8, timeoutMs: 60_000 });
  const loader = {
    ...{ clear: async () => undefined, nameOf: () => base, add: async () => undefined },
    ...{ load: async () => undefined, remove: async () => undefined },
    servedAs: () => ({ model: base, version: null }),
  };
  const sampler = new VllmSampler<Emu3Prompt>({
    ...{ client, loader, format, vocabulary: space.size, contextSize: 60, separateVocabularies: true, constrained },
    ...{ mode: 'processed', vision: null, store, keep: async () => undefined, group: soloGroup(), concurrency: 8 },
    ...{ maxWaitMs: 60_000, stop: new AbortController().signal, close: () => client.close(), clock: systemClock },
  });
  const sample = async (answersPerPrompt: number): Promise<TokenAnswer[][]> => {
    await sampler.publish({ steps: 0, of: 'current', files: () => ({}) });
    return sampler.sample({
      prompts: prompts.map((tokens) => ({ tokens })),
      among: [],
      answersPerPrompt,
      how: { temperature: 1, topP: 1, topK: -1, maxTokens: 40, logProbTemperature: 1 },
      weights: 'current',
      random: (p, g) => new RandomStream('blocks', p, g),
      key: (p, g) => `1/${p}/${g}`,
    });
  };
  const parsed = (answers: readonly TokenAnswer[][]): ParsedAnswer[] =>
    answers.flatMap((group, p) => group.map(({ ids }) => space.parse(ids, prompts[p].imageOpen)));
  return { sampler, sample, parsed, store, format, prompts };
}
