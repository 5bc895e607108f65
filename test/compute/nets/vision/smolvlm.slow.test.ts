/** SmolVLM against transformers and PEFT (test/fixture_scripts/smolvlm.py): words, one image, and three, with answers of one token. */
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { must } from '../../../../src/core/errors.js';
import { soloPeers } from '../../../../src/core/group/peers.js';
import { readSafetensors } from '../../../../src/core/safetensors.js';
import { adaptFrom, peftNames, withStoredAdapter } from '../../../../src/models/adapters/decoder.js';
import type { PolicyModel } from '../../../../src/models/adapters/policy_model.js';
import { storedNames, openDecoder } from '../../../../src/models/networks/decoder.js';
import { FreeText, type TokenPrompt } from '../../../../src/models/tokenizer/format.js';
import { Reader } from '../../../../src/train/policies/tokens/hidden_states.js';
import { Learner } from '../../../../src/train/policies/tokens/learner.js';
import { bytesOf, everything, type Expected, floatsOf } from './fixture.js';

const fixtures = join(import.meta.dirname, 'fixtures');
const folder = join(fixtures, 'smolvlm');
const readJson = (path: string): unknown => JSON.parse(readFileSync(path, 'utf8'));
const given = readJson(join(folder, 'prompts.json')) as readonly {
  readonly ids: readonly number[];
  readonly pictures: readonly string[];
  readonly answers: readonly (readonly number[])[];
}[];
const expected = readJson(join(folder, 'expected.json')) as Expected;
const adapted = must(expected.adapted, 'the adapted model');
const session = { threads: 1 };
const half = [0.5, 0.5, 0.5] as const;

const root = mkdtempSync(join(tmpdir(), 'editrl-smolvlm-'));
afterAll(() => rmSync(root, { recursive: true }));

const prompts: TokenPrompt[] = given.map(({ ids, pictures }) => ({
  ids,
  images: pictures.map((raw) => ({
    kind: 'image',
    frames: [{ width: 16, height: 16, data: bytesOf(raw) }],
    grid: { steps: 1, rows: 4, columns: 4 },
    secondsPerStep: 0,
    colours: { mean: half, std: half },
  })),
}));

/** The largest difference, relative to the largest value. */
function distance(found: Float32Array, wanted: Float32Array): number {
  expect(found).toHaveLength(wanted.length);
  const largest = wanted.reduce((most, x) => Math.max(most, Math.abs(x)), 0);
  return found.reduce((most, x, i) => Math.max(most, Math.abs(x - wanted[i])), 0) / largest;
}

const { config, weights } = openDecoder(folder, 'words and images');
const model: PolicyModel = {
  config,
  weights,
  format: new FreeText({ size: config.vocab_size, files: {} }, new Set([2])),
  trains: everything,
};

/** Log-probabilities of the fixture's answers, and the gradients of minus their sum. */
async function learned(trained: PolicyModel) {
  const learner = new Learner(trained, {
    temperature: 1,
    separateVocabularies: false,
    microBatch: 4,
    gradientCheckpointing: false,
    session,
    peers: soloPeers,
  });
  const groups = prompts.map((tokens, p) => ({
    prompt: { tokens },
    answers: given[p].answers.map((ids) => ({ ids: Int32Array.from(ids) })),
  }));
  const statistics = await learner.statistics(groups, trained.weights);
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

function logProbDistance(found: readonly number[], logits: Expected['logits']): number {
  const wanted = logits.flatMap((answers, p) =>
    answers.flatMap((rows, a) =>
      rows.map((row, t) => {
        const top = Math.max(...row);
        const total = Math.log(row.reduce((sum, x) => sum + Math.exp(x - top), 0)) + top;
        return row[given[p].answers[a][t]] - total;
      }),
    ),
  );
  return distance(Float32Array.from(found), Float32Array.from(wanted));
}

/** The largest distance of all gradients, from the names of transformers. */
function gradientDistance(
  found: ReadonlyMap<string, Float32Array>,
  wanted: Expected['gradients'],
  names: (name: string) => string,
): number {
  const own = new Map([...found.keys()].map((name) => [names(name), name]));
  const worst = Object.entries(wanted).map(([name, text]) => {
    const here = must(own.get(name), `a parameter here for ${name}`);
    const values = must(found.get(here), here);
    if (!name.endsWith('k_proj.bias')) return distance(values, floatsOf(text));
    // A constant added to all keys changes no softmax: both gradients are 0, apart from rounding.
    for (const one of [values, floatsOf(text)]) expect(Math.max(...one.map(Math.abs))).toBeLessThan(1e-5);
    return 0;
  });
  expect(worst.length).toBeGreaterThan(40);
  return Math.max(...worst);
}

describe('SmolVLM as transformers computes it, to 1e-5 of the largest value', () => {
  it('has its hidden states', async () => {
    const reader = new Reader(model, { session });
    const items = prompts.flatMap((prompt, p) =>
      given[p].answers.map((ids) => ({ prompt, answer: Int32Array.from(ids), from: 0 })),
    );
    const found = await reader.read(items, model.weights);
    await reader.dispose();
    const worst = expected.hidden.map((text, i) => distance(found[i].states, floatsOf(text)));
    expect(Math.max(...worst)).toBeLessThan(1e-5);
  });

  it('has its log-probabilities and its gradients in every part', async () => {
    const { logProbs, gradients } = await learned(model);
    expect(logProbDistance(logProbs, expected.logits)).toBeLessThan(1e-5);
    const stored = storedNames(new Map([['model.text_model.embed_tokens.weight', '']]), folder);
    expect(gradientDistance(gradients, expected.gradients, stored)).toBeLessThan(1e-5);
  });
});

describe("SmolVLM with PEFT's adapter of every linear layer", () => {
  const adapter = join(root, 'adapter');
  cpSync(join(fixtures, 'smolvlm_adapter'), adapter, { recursive: true });
  const path = join(adapter, 'adapter_config.json');
  writeFileSync(path, JSON.stringify({ ...Object(readJson(path)), base_model_name_or_path: folder }));

  it('adapts the same layers under the same names', () => {
    const { adapter: found } = withStoredAdapter(config, adapter);
    const name = peftNames({ config });
    const named = [...found.layers].flatMap((layer) =>
      ['A', 'B'].map((matrix) => `base_model.model.${name(layer)}.lora_${matrix}.weight`),
    );
    expect(named.sort()).toEqual([...readSafetensors(join(adapter, 'adapter_model.safetensors')).keys()].sort());
  });

  it('computes the same, and the same gradients', async () => {
    const { logProbs, gradients } = await learned({ ...model, ...adaptFrom(config, weights, adapter) });
    expect(logProbDistance(logProbs, adapted.logits)).toBeLessThan(1e-5);
    const name = peftNames({ config });
    const stored = (parameter: string): string => {
      const [, layer, matrix] = /^(.*)\.(lora_[AB]\.weight)$/.exec(parameter) ?? [];
      return `${name(layer)}.${matrix}`;
    };
    expect(gradientDistance(gradients, adapted.gradients, stored)).toBeLessThan(1e-5);
  });
});
