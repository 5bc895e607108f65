/** Qwen3-VL against transformers and PEFT (test/fixture_scripts/vision.py): what the other families do not have. */
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { must } from '../../../../src/core/errors.js';
import { soloPeers } from '../../../../src/core/group/peers.js';
import { readSafetensors } from '../../../../src/core/safetensors.js';
import { Graph } from '../../../../src/compute/graph/ir.js';
import { layerStates } from '../../../../src/compute/nets/decoder/decoder.js';
import { hasVision } from '../../../../src/compute/nets/decoder/config.js';
import { Session } from '../../../../src/compute/onnx/session.js';
import { adaptFrom, peftNames, withStoredAdapter } from '../../../../src/models/adapters/decoder.js';
import { PEFT_VERSION } from '../../../../src/models/adapters/peft_defaults.js';
import type { Quantity } from '../../../../src/launch/agreement.js';
import { distance, linearLayers, recordAgreement } from '../../../support/agreement.js';
import { openDecoder } from '../../../../src/models/networks/decoder.js';
import type { PolicyModel } from '../../../../src/models/adapters/policy_model.js';
import { Reader } from '../../../../src/train/policies/tokens/hidden_states.js';
import { Learner } from '../../../../src/train/policies/tokens/learner.js';
import { VisionTower } from '../../../../src/train/policies/tokens/vision_tower.js';
import { everything, expectedOf, floatsOf, folderOf, givenOf, modelOf, prompts } from './fixture.js';

const family = 'qwen3_vl';
const session = { threads: 1 };
const expected = expectedOf(family);
const { prompts: given } = givenOf(family);
const adapted = must(expected.adapted, 'the adapted model');

const root = mkdtempSync(join(tmpdir(), 'editrl-qwen3-vl-'));
afterAll(() => rmSync(root, { recursive: true }));

const measured: Partial<Record<Quantity, number>> = {};
afterAll(() =>
  recordAgreement(family, {
    model_type: family,
    inputs: 'text, images, clips',
    transformers: expected.transformers,
    peft: PEFT_VERSION,
    differences: measured,
    answers: null,
    adapted: linearLayers(modelOf(family).config),
  }),
);

/** Expects a difference of at most 1e-5 of the largest value, and keeps it for the page. */
function expectClose(quantity: Quantity, differences: readonly number[]): void {
  const largest = Math.max(...differences);
  measured[quantity] = Math.max(largest, measured[quantity] ?? 0);
  expect(largest, quantity).toBeLessThan(1e-5);
}

const own = (name: string): string =>
  name.replace(/^model\.visual\./, 'visual.').replace(/^model\.language_model\./, 'model.');

/** Log-probabilities of the fixture's answers, and the gradients of minus their sum. */
async function learned(
  model: PolicyModel,
): Promise<{ logProbs: number[]; gradients: ReadonlyMap<string, Float32Array> }> {
  const learner = new Learner(model, {
    temperature: 1,
    separateVocabularies: false,
    microBatch: 4,
    gradientCheckpointing: false,
    session,
    peers: soloPeers,
  });
  const groups = prompts(family).map((tokens, p) => ({
    prompt: { tokens },
    answers: given[p].answers.map((ids) => ({ ids: Int32Array.from(ids) })),
  }));
  const statistics = await learner.statistics(groups, model.weights);
  const lessons = groups.map((group) => ({
    ...group,
    targets: group.answers.map(({ ids }) => ({
      weights: new Float32Array(ids.length).fill(1),
      advantages: 1,
      reference: null,
      old: null,
    })),
  }));
  await learner.learn(lessons, { policy: 'likelihood' });
  const gradients = new Map([...(await learner.gradients())].map(([name, data]) => [name, data.slice()]));
  await learner.dispose();
  return { logProbs: statistics.flat().flatMap(({ logProbs }) => [...logProbs]), gradients };
}

function expectLogProbs(quantity: Quantity, found: readonly number[], logits: typeof expected.logits): void {
  const wanted = logits.flatMap((answers, p) =>
    answers.flatMap((rows, a) =>
      rows.map((row, t) => {
        const top = Math.max(...row);
        const total = Math.log(row.reduce((sum, x) => sum + Math.exp(x - top), 0)) + top;
        return row[given[p].answers[a][t]] - total;
      }),
    ),
  );
  expectClose(quantity, [distance(found, wanted)]);
}

describe('Qwen3-VL as transformers computes it, to 1e-5 of the largest value', () => {
  const model = modelOf(family);

  it('has its hidden states, for words, one image, three, and a clip', async () => {
    const reader = new Reader(model, { session });
    const items = prompts(family).flatMap((prompt, p) =>
      given[p].answers.map((ids) => ({ prompt, answer: Int32Array.from(ids), from: 0 })),
    );
    const found = await reader.read(items, model.weights);
    await reader.dispose();
    const worst = expected.hidden.map((text, i) => distance(found[i].states, floatsOf(text)));
    expectClose('states', worst);
  });

  it('has its rows after each block, to which later blocks add images', async () => {
    const { config } = model;
    if (!hasVision(config)) throw new Error('it sees');
    const states = must(expected.states, 'states');
    const tower = new VisionTower(model, config, session);
    for (const [p, prompt] of prompts(family).entries()) {
      // A prompt's last token belongs to the answers, so one more is given.
      const seen = { ...prompt, ids: [...prompt.ids, 3] };
      const shape = { prompts: 1, promptColumns: prompt.ids.length, images: tower.shape([seen]) };
      const graph = new Graph('states');
      const promptIds = graph.input('prompt_ids', [1, shape.promptColumns], 'int64');
      const promptPadding = graph.input('prompt_padding', [1, shape.promptColumns]);
      const numbers = states[p].map((_, i) => i + 1);
      const all = layerStates(config, shape, { promptIds, promptPadding }, numbers);
      const compiled = await Session.compile(graph, { all });
      const feeds = {
        prompt_ids: BigInt64Array.from(prompt.ids, BigInt),
        prompt_padding: new Float32Array(shape.promptColumns),
        ...(await tower.feeds([seen], shape)),
      };
      const found = (await compiled.run(feeds, model.weights))['all'] as Float32Array;
      const width = config.hidden_size;
      const joined = numbers.length * width;
      states[p].forEach((text, i) => {
        const rows = Float32Array.from(
          { length: prompt.ids.length * width },
          (_, at) => found[Math.floor(at / width) * joined + i * width + (at % width)],
        );
        expect(distance(rows, floatsOf(text).slice(0, rows.length))).toBeLessThan(1e-5);
      });
    }
    await tower.dispose();
  });

  it('has its log-probabilities and its gradients in every part', async () => {
    const { logProbs, gradients } = await learned(model);
    expectLogProbs('logProbs', logProbs, expected.logits);
    const worst = Object.entries(expected.gradients).map(([name, text]) =>
      distance(must(gradients.get(own(name)), name), floatsOf(text)),
    );
    expectClose('gradients', worst);
    expect([...gradients.keys()].filter((name) => name.startsWith('visual.'))).toHaveLength(
      Object.keys(expected.gradients).filter((name) => name.startsWith('model.visual.')).length,
    );
  });
});

describe("Qwen3-VL with PEFT's adapter of every linear layer", () => {
  const folder = join(root, 'adapter');
  cpSync(join(folderOf(family), '..', `${family}_adapter`), folder, { recursive: true });
  const path = join(folder, 'adapter_config.json');
  const json = JSON.parse(readFileSync(path, 'utf8')) as object;
  writeFileSync(path, JSON.stringify({ ...json, base_model_name_or_path: folderOf(family) }));
  const base = openDecoder(folderOf(family), 'words and images');

  it('adapts the same layers under the same names', () => {
    const { adapter } = withStoredAdapter(base.config, folder);
    const name = peftNames({ config: base.config });
    const stored = [...readSafetensors(join(folder, 'adapter_model.safetensors')).keys()];
    const named = [...adapter.layers].flatMap((layer) =>
      ['A', 'B'].map((matrix) => `base_model.model.${name(layer)}.lora_${matrix}.weight`),
    );
    expect(named.sort()).toEqual(stored.sort());
  });

  it('computes the same, and the same gradients', async () => {
    const { config, weights } = adaptFrom(base.config, base.weights, folder);
    const { format } = modelOf(family);
    const { logProbs, gradients } = await learned({
      config,
      weights,
      format,
      trains: everything,
    });
    expectLogProbs('adapterLogProbs', logProbs, adapted.logits);
    const worst = Object.entries(adapted.gradients).map(([name, text]) =>
      distance(must(gradients.get(own(name)), name), floatsOf(text)),
    );
    expect(worst.length).toBeGreaterThan(40);
    expectClose('adapterGradients', worst);
  });
});
