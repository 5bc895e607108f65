/** Image blocks that vLLM samples: it is told the rules, keeps to them if it has our logits processor, and is found out if it has not. */
import { afterEach, describe, expect, it } from 'vitest';
import { EndpointError } from '../../../../src/core/errors.js';
import { RandomStream } from '../../../../src/core/random.js';
import { allowedBy } from './stub_rules.js';
import { StubVllm } from './stub_vllm.js';
import { testFolder } from '../../../support/folder.js';
import { openBlocks, writeBlocksBase } from './blocks_base.js';

const base = writeBlocksBase(testFolder('vllm-blocks'));
const closers: (() => Promise<void>)[] = [];
afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close();
});

async function started(header: 'forced' | 'sampled', { rules = true, constrained = true } = {}) {
  const stub = await StubVllm.start({ base, logprobsMode: 'processed_logprobs', rules });
  const made = openBlocks({ url: stub.url, base, constrained }, header);
  closers.push(async () => {
    await made.sampler.dispose();
    await stub.close();
  });
  return { stub, ...made };
}

describe.each(['forced', 'sampled'] as const)('an image block whose header is %s', (header) => {
  it('is what the format allows, and its log-probabilities are left to the trainer', async () => {
    const { sample, parsed, store } = await started(header);
    const answers = await sample(4);
    // A header that is sampled may take up all the room.
    if (header === 'forced') {
      expect(
        parsed(answers)
          .slice(0, 4)
          .every(({ grid }) => grid !== null),
      ).toBe(true);
    }
    expect([...store.all.values()].every(({ logProbs }) => logProbs === null)).toBe(true);
    expect(answers.flat().every(({ logProbs }) => logProbs.every(Number.isNaN))).toBe(true);
  });

  it('has rules that allow at every place what the format allows', async () => {
    const { format, prompts } = await started(header);
    for (const [p, prompt] of prompts.entries()) {
      const rules = format.rules(prompt);
      for (let walk = 0; walk < 6; walk++) {
        const random = new RandomStream('walk', header, p, walk);
        const state = format.start(prompt);
        const written: number[] = [];
        for (let step = 0; step < 40; step++) {
          const allowed = state.next();
          const all = Array.from({ length: format.size }, (_, id) => id);
          const own = 'forced' in allowed ? [allowed.forced] : all.filter((id) => allowed.mask?.[id] !== 0);
          expect([...allowedBy(rules, written, format.size)].sort((a, b) => a - b)).toEqual(own);
          // Half of the walks open the block as soon as they may.
          const opens = walk % 2 === 0 && rules.opening !== null && own.includes(rules.opening) && step > walk;
          const id = opens ? Number(rules.opening) : own[random.uint32() % own.length];
          state.accept(id);
          written.push(id);
        }
      }
    }
  });
});

describe('a server', () => {
  it('without the rules is rejected with advice, and none of its answers is used', async () => {
    const { sample, store } = await started('forced', { rules: false });
    const error: unknown = await sample(4).catch((found: unknown) => found);
    expect(error).toBeInstanceOf(EndpointError);
    const said = (error as EndpointError).toText();
    expect(said).toMatch(
      /vLLM sampled token \d+ at position \d+ of an answer.*does not apply the rules of image blocks/,
    );
    expect(said).toContain('--logits-processors editrl_rules:Rules');
    expect(said).toContain('policy.emu3_use_logit_processor to false');
    expect(store.all.size).toBeLessThan(8);
  });
});
