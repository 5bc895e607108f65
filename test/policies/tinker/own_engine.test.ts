/** What this program computes of a base model whose folder it can read, and why it does not where it cannot. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { ownEngine } from '../../../src/policies/tokens/tinker/certificate/own_engine.js';
import { smallConfig, writeSmallBase } from '../../engines/vllm/small_base.js';
import { testFolders } from '../../support/folder.js';
import { format, policyOn } from '../vllm/sampled_policy.js';

const folders = testFolders('own');
const session = { threads: 1 };
afterEach(() => vi.restoreAllMocks());

describe('the own engine', () => {
  it('gives the log-probabilities of the model in the folder', async () => {
    const folder = writeSmallBase(folders());
    const own = ownEngine(folder, format, session);
    if (!('logProbs' in own)) throw new Error(own.why);
    const sequences = [
      { prompt: [1, 3], answer: Int32Array.of(4, 5, 6) },
      { prompt: [7], answer: Int32Array.of(8) },
    ];
    // An adapter that was never trained changes nothing.
    const policy = policyOn(folder);
    const groups = sequences.map(({ prompt, answer }) => ({
      prompt: { tokens: { ids: prompt } },
      answers: [{ ids: answer, logProbs: new Float32Array(answer.length), finished: true }],
    }));
    const expected = await policy.statistics(groups, 'current');
    const found = await own.logProbs(sequences);
    found.forEach((one, i) => {
      expect(one.length).toBe(sequences[i].answer.length);
      one.forEach((logProb, t) => expect(logProb).toBeCloseTo(expected[i][0].logProbs[t], 5));
    });
    await policy.dispose();
  });

  it('says why it does not', () => {
    const why = (baseModel: string): string => {
      const own = ownEngine(baseModel, format, session);
      return 'why' in own ? own.why : 'it does';
    };
    expect(why('Qwen/Qwen3-8B')).toContain('no folder on this machine');
    expect(why(folders())).toContain('no folder on this machine');
    const other = folders();
    writeFileSync(join(other, 'config.json'), JSON.stringify({ ...smallConfig, model_type: 'unheard_of' }));
    expect(why(other)).toContain('this program does not compute its model');
    vi.spyOn(process, 'availableMemory').mockReturnValue(1000);
    expect(why(writeSmallBase(folders()))).toMatch(/needs 0\.0 GB of memory on this machine/);
  });
});
