/** SmolLM2-135M-Instruct, a model that people have, against what transformers computes with it (test/fixture_scripts/smollm2.py). */
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, describe, expect, it } from 'vitest';
import { RandomStream } from '../../src/core/random.js';
import { Session } from '../../src/compute/onnx/session.js';
import { Graph } from '../../src/compute/graph/ir.js';
import type { Message } from '../../src/models/chat/template.js';
import { openTokenizer } from '../../src/models/tokenizer/open.js';
import { openChatTemplate } from '../../src/models/tokenizer/texts.js';
import { sequenceLogits } from '../../src/compute/nets/decoder/decoder.js';
import { sequenceInputs } from '../../src/compute/nets/decoder/inputs.js';
import { openDecoder } from '../../src/models/networks/decoder.js';
import { FreeText } from '../../src/models/tokenizer/format.js';
import { Sampler } from '../../src/train/policies/tokens/rollout.js';

/** As `.ci/run` and a person who follows the README make it. */
const folder = process.env['EDITRL_SMOLLM2'] ?? 'data/smollm2';
const here = existsSync(join(folder, 'config.json'));
const why = `there is no SmolLM2 in ${folder}; scripts/fetch_smollm2 ${folder} makes it (93 MB are fetched), EDITRL_SMOLLM2 names another folder`;
if (!here) console.warn(`the tests with SmolLM2 are skipped: ${why}`);

interface Case {
  readonly messages: readonly Message[];
  readonly text: string;
  readonly ids: readonly number[];
  /** Every strideth one, behind the last id. */
  readonly logits: readonly number[];
  readonly continued: readonly number[];
}
const { stride, cases } = JSON.parse(readFileSync(join(import.meta.dirname, 'fixtures/smollm2.json'), 'utf8')) as {
  readonly stride: number;
  readonly cases: readonly Case[];
};

describe.skipIf(!here)(`SmolLM2${here ? '' : ` (skipped: ${why})`}`, () => {
  let decoder: ReturnType<typeof openDecoder>;
  beforeAll(() => {
    decoder = openDecoder(folder);
  });

  it('reads conversations as Python does', async () => {
    const tokenizer = openTokenizer(folder);
    const template = openChatTemplate(folder, tokenizer);
    for (const { messages, text, ids } of cases) {
      expect(await template?.render(messages, { addGenerationPrompt: true })).toBe(text);
      expect([...(await tokenizer.encode(text, { addSpecial: false }))]).toEqual(ids);
    }
  });

  it('has the logits of transformers to 1e-4 of the largest', async () => {
    const { config, weights } = decoder;
    for (const { ids, logits: wanted } of cases) {
      const shape = { prompts: 1, answersPerPrompt: 1, promptColumns: ids.length - 1, answerColumns: 1 };
      const graph = new Graph('sequence');
      const session = await Session.compile(graph, {
        logits: sequenceLogits(config, shape, sequenceInputs(graph, shape)),
      });
      const feeds = {
        prompt_ids: BigInt64Array.from(ids.slice(0, -1), BigInt),
        prompt_padding: new Float32Array(ids.length - 1),
        answer_ids: BigInt64Array.of(BigInt(ids.at(-1) ?? 0)),
      };
      const found = (await session.run(feeds, weights)).logits as Float32Array;
      await session.dispose();
      const largest = Math.max(...wanted.map(Math.abs));
      expect(Math.max(...wanted.map((x, i) => Math.abs(x - found[i * stride]) / largest))).toBeLessThan(1e-4);
    }
  });

  it.each(['none', 'all'] as const)(
    'goes on greedily with the same tokens, %s of its weights packed',
    async (packed) => {
      const { config, weights } = decoder;
      const prompts = cases.map(({ ids }) => ({ tokens: { ids } }));
      const format = new FreeText(openTokenizer(folder), new Set([2]));
      const sampler = new Sampler(
        { config, weights, format },
        { contextSize: 256, constrained: false, separateVocabularies: false, session: {}, packed },
      );
      const answers = await sampler.sample(
        {
          prompts,
          among: prompts,
          answersPerPrompt: 1,
          how: { temperature: 0, topP: 1, topK: -1, maxTokens: cases[0].continued.length, logProbTemperature: 1 },
          weights: 'current',
          random: () => new RandomStream(1),
        },
        weights,
        'loaded',
      );
      await sampler.dispose();
      expect(answers.map(([{ ids }]) => [...ids])).toEqual(cases.map(({ continued }) => continued));
    },
  );
});
