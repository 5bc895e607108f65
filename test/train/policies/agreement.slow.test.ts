/**
 * Each family of decoders against transformers and peft, live: test/fixture_scripts/agreement.py makes a small random model and computes
 * with it, and loads the adapter and the merged model that are exported here.
 */
import { spawnSync } from 'node:child_process';
import { mkdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { must } from '../../../src/core/errors.js';
import { RandomStream } from '../../../src/core/random.js';
import { readSafetensors, type FloatTensor } from '../../../src/core/safetensors.js';
import { adaptFrom } from '../../../src/models/adapters/decoder.js';
import { exportAdapter, exportMerged } from '../../../src/models/adapters/export.js';
import { digestOfWeights, readAdapterConfig } from '../../../src/models/adapters/files.js';
import type { PolicyModel } from '../../../src/models/adapters/policy_model.js';
import { openDecoder } from '../../../src/models/networks/decoder.js';
import { type TokenFormat, unrestricted } from '../../../src/models/tokenizer/format.js';
import type { TokenPolicy } from '../../../src/train/policies/tokens/policy.js';
import { distance, linearLayers, recordAgreement } from '../../support/agreement.js';
import { writeCheckpoint } from '../../support/checkpoint.js';
import { testFolders } from '../../support/folder.js';
import { learnerOf, tokenPolicy } from './small_lesson.js';

const names = [
  ...['llama', 'llama3', 'mistral', 'ministral3', 'qwen2', 'qwen2_yarn', 'qwen3', 'gemma3'],
  ...['olmo2', 'olmo3', 'phi3', 'phi4_mini', 'gemma3_whole', 'mistral3'],
];

/** A Python with transformers and peft, where there is one. */
const python = process.env['EDITRL_TEST_PYTHON'] ?? 'python3';
const probe = spawnSync(python, ['-c', 'import peft, torch, transformers'], { encoding: 'utf8' });
const missing = probe.status === 0 ? null : (probe.stderr?.trim().split('\n').at(-1) ?? `there is no ${python}`);
const script = fileURLToPath(new URL('../../fixture_scripts/agreement.py', import.meta.url));
const folders = testFolders('agreement');

function runPython(...args: readonly string[]): void {
  const ran = spawnSync(python, [script, ...args], { encoding: 'utf8', env: { ...process.env, HF_HUB_OFFLINE: '1' } });
  expect(ran.status, ran.stderr).toBe(0);
}

interface Expected {
  readonly versions: { readonly transformers: string; readonly peft: string };
  readonly cases: readonly { readonly prompt: readonly number[]; readonly answers: readonly (readonly number[])[] }[];
  /** Prompts that are continued greedily, and their continuations without and with the adapter. */
  readonly starts: readonly (readonly number[])[];
  readonly continued: readonly (readonly number[])[];
  readonly adapted: readonly (readonly number[])[];
}
type Continued = readonly (readonly number[])[];

const readJson = <T>(path: string): T => JSON.parse(readFileSync(path, 'utf8')) as T;

function format(size: number): TokenFormat {
  return { size, secondPart: null, ends: new Set(), tokenizerFiles: {}, start: () => unrestricted };
}

const groupsOf = ({ cases }: Expected) =>
  cases.map(({ prompt, answers }) => ({
    prompt: { tokens: { ids: prompt } },
    answers: answers.map((ids) => ({ ids: Int32Array.from(ids) })),
  }));

/** Log-probabilities of the answers, and the gradients of minus their sum. Prompts and answers of a micro-batch are padded. */
async function learned(model: PolicyModel, expected: Expected) {
  const learner = learnerOf(model, { microBatch: 4 });
  const groups = groupsOf(expected);
  const statistics = await learner.statistics(groups, model.weights);
  const lessons = groups.map((group) => ({
    ...group,
    targets: group.answers.map(({ ids }) => ({
      weights: new Float32Array(ids.length).fill(1),
      advantages: 0,
      reference: null,
      old: null,
    })),
  }));
  await learner.learn(lessons, { policy: 'likelihood' });
  const gradients = new Map([...(await learner.gradients())].map(([name, data]) => [name, data.slice()]));
  await learner.dispose();
  return { logProbs: statistics.flat().flatMap(({ logProbs }) => [...logProbs]), gradients };
}

/** The largest differences from a file of the Python program. Every gradient there must be here. */
function differences(found: Awaited<ReturnType<typeof learned>>, wanted: ReadonlyMap<string, FloatTensor>) {
  const own = (name: string): string => name.replace(/^gradient:(model\.language_model\.)?/, (_, inner?: string) => (inner ? 'model.' : '')); // prettier-ignore
  const theirs = [...wanted].filter(([name]) => name.startsWith('gradient:'));
  expect(theirs.length).toBeGreaterThan(10);
  const each = theirs.map(([name, { data }]) => distance(must(found.gradients.get(own(name)), name), data));
  return {
    logProbs: distance(found.logProbs, must(wanted.get('log_probs'), 'log_probs').data),
    gradients: Math.max(...each),
  };
}

async function greedy(policy: TokenPolicy, { starts, continued }: Expected): Promise<number[][]> {
  const prompts = starts.map((ids) => ({ tokens: { ids } }));
  const answers = await policy.sample({
    prompts,
    among: prompts,
    answersPerPrompt: 1,
    how: { temperature: 0, topP: 1, topK: -1, maxTokens: continued[0].length, logProbTemperature: 1 },
    weights: 'current',
    random: () => new RandomStream(1),
  });
  return answers.map(([{ ids }]) => [...ids]);
}

const equalOf = (found: Continued, wanted: Continued): number =>
  found.filter((ids, i) => ids.join() === wanted[i].join()).length;

const logProbsOf = ({ shape, data }: FloatTensor, { cases }: Expected): number[] =>
  cases
    .flatMap(({ answers }) => answers.flat())
    .map((id, i) => {
      const row = [...data.slice(i * shape[1], (i + 1) * shape[1])];
      const top = Math.max(...row);
      return row[id] - top - Math.log(row.reduce((sum, x) => sum + Math.exp(x - top), 0));
    });

describe.skipIf(missing !== null)(
  `a decoder in transformers and peft${missing === null ? '' : ` (skipped: ${missing}; EDITRL_TEST_PYTHON names another Python)`}`,
  () => {
    it.each(names)('%s computes the same to 2e-5 of the largest value, and adapters go both ways', async (name) => {
      const folder = folders();
      runPython('make', name, folder);
      const expected = readJson<Expected>(join(folder, 'expected.json'));
      const [base, adapter] = [join(folder, 'model'), join(folder, 'adapter')];
      const opened = openDecoder(base);
      const model: PolicyModel = { ...opened, format: format(opened.config.vocab_size) };
      const whole = differences(await learned(model, expected), readSafetensors(join(folder, 'whole.safetensors')));

      const { config, weights } = adaptFrom(opened.config, opened.weights, adapter);
      const { lora } = readAdapterConfig(adapter);
      const description = readFileSync(join(base, 'config.json'), 'utf8');
      const origin = { lora, base, baseDigest: digestOfWeights(base) };
      const adapted: PolicyModel = { config, weights, format: model.format, description, adapter: origin };
      const read = await learned(adapted, expected);
      const ofAdapter = differences(read, readSafetensors(join(folder, 'adapted.safetensors')));
      expect([...read.gradients.keys()].every((key) => key.includes('.lora_'))).toBe(true);

      const [plain, policy] = [model, adapted].map((one) => tokenPolicy(one, { keepReference: false }));
      const equal =
        equalOf(await greedy(plain, expected), expected.continued) +
        equalOf(await greedy(policy, expected), expected.adapted);
      await plain.dispose();
      const groups = groupsOf(expected);
      const targets = groups[0].answers.map(({ ids }, i) => ({
        weights: new Float32Array(ids.length).fill(1),
        advantages: i === 0 ? 1 : -1,
        reference: null,
        old: null,
      }));
      await policy.learn([{ ...groups[0], targets }], { policy: 'reinforce', kl: null });
      await policy.step(0.05);
      const checkpoint = writeCheckpoint(join(folder, 'checkpoint'), await policy.files());
      const statistics = await policy.statistics(groups, 'current');
      const logProbs = statistics.flat().flatMap((one) => [...one.logProbs]);
      expect(distance(logProbs, read.logProbs), 'the step changes the adapter').toBeGreaterThan(1e-3);
      const answers = await greedy(policy, expected);
      await policy.dispose();
      const [exported, merged] = ['exported', 'merged'].map((kind) => join(folder, kind));
      for (const out of [exported, merged]) mkdirSync(out);
      exportAdapter(checkpoint, exported);
      exportMerged(checkpoint, merged, { dtype: 'float32' });
      runPython('load', folder, exported, merged);
      const logits = readSafetensors(join(folder, 'loaded.safetensors'));
      const theirs = readJson<Record<'adapter' | 'merged', Continued>>(join(folder, 'loaded.json'));
      const apart = (key: 'adapter' | 'merged'): number =>
        distance(logProbs, logProbsOf(must(logits.get(key), key), expected));

      const found = {
        logProbs: whole.logProbs,
        gradients: whole.gradients,
        adapterLogProbs: ofAdapter.logProbs,
        adapterGradients: ofAdapter.gradients,
        exportedAdapter: apart('adapter'),
        merged: apart('merged'),
      };
      const compared = 4 * expected.starts.length;
      const all = equal + equalOf(answers, theirs.adapter) + equalOf(answers, theirs.merged);
      await recordAgreement(name, {
        model_type: (JSON.parse(description) as { readonly model_type: string }).model_type,
        inputs: 'text',
        transformers: expected.versions.transformers,
        peft: expected.versions.peft,
        differences: found,
        answers: { equal: all, compared },
        adapted: linearLayers(config),
      });
      for (const [quantity, difference] of Object.entries(found)) expect(difference, quantity).toBeLessThan(2e-5);
      expect(all).toBe(compared);
    });
  },
);
