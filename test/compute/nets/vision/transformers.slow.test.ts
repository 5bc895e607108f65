import { afterAll, describe, expect, it, vi } from 'vitest';
import { soloPeers } from '../../../../src/core/group/peers.js';
import { RandomStream } from '../../../../src/core/random.js';
import type { TokenGroup } from '../../../../src/train/policies/tokens/batch.js';
import { Session } from '../../../../src/compute/onnx/session.js';
import type { VisionDecoderConfig } from '../../../../src/compute/nets/decoder/config.js';
import { VisionTower } from '../../../../src/train/policies/tokens/vision_tower.js';
import { Learner } from '../../../../src/train/policies/tokens/learner.js';
import type { PolicyModel } from '../../../../src/models/adapters/policy_model.js';
import { Sampler } from '../../../../src/train/policies/tokens/rollout.js';
import type { Quantity } from '../../../../src/launch/agreement.js';
import { distance as relative, linearLayers, recordAgreement } from '../../../support/agreement.js';
import { mergersOf } from '../../../../src/compute/nets/vision/config.js';
import { patchWidth } from '../../../../src/compute/nets/vision/layout.js';
import { tokensOf, writePatches } from '../../../../src/models/images/vision_input.js';
import {
  everything,
  expectedOf,
  families,
  type Family,
  floatsOf,
  given,
  givenOf,
  modelOf,
  inputsOf,
  prompts,
  sizes,
} from './fixture.js';

const session = { threads: 1 };

function learner(model: PolicyModel, gradientCheckpointing = false): Learner {
  return new Learner(model, {
    temperature: 1,
    separateVocabularies: false,
    microBatch: 4,
    gradientCheckpointing,
    session,
    peers: soloPeers,
  });
}

function groups(family: Family): TokenGroup[] {
  return prompts(family).map((tokens, p) => ({
    prompt: { tokens },
    answers: givenOf(family).prompts[p].answers.map((ids) => ({ ids: Int32Array.from(ids) })),
  }));
}

/** Log-probabilities of the fixture's answers, one after another. */
function logProbsOf(family: Family, logits: readonly (readonly (readonly (readonly number[])[])[])[]): number[] {
  const { prompts: all } = givenOf(family);
  return logits.flatMap((answers, p) =>
    answers.flatMap((rows, a) =>
      rows.map((row, t) => {
        const top = Math.max(...row);
        const total = Math.log(row.reduce((sum, x) => sum + Math.exp(x - top), 0)) + top;
        return row[all[p].answers[a][t]] - total;
      }),
    ),
  );
}

async function logProbs(family: Family, model: PolicyModel, checkpointing = false): Promise<number[]> {
  const by = learner(model, checkpointing);
  const statistics = await by.statistics(groups(family), model.weights);
  await by.dispose();
  return statistics.flat().flatMap((one) => [...one.logProbs]);
}

async function gradients(
  family: Family,
  model: PolicyModel,
  checkpointing = false,
): Promise<Map<string, Float32Array>> {
  const by = learner(model, checkpointing);
  const lessons = groups(family).map((group) => ({
    ...group,
    targets: group.answers.map(({ ids }) => ({
      weights: new Float32Array(ids.length).fill(1),
      advantages: 1,
      reference: null,
      old: null,
    })),
  }));
  await by.learn(lessons, { policy: 'likelihood' });
  const found = await by.gradients();
  await by.dispose();
  return new Map([...found].map(([name, data]) => [name, data.slice()]));
}

function distance(a: Float32Array, b: Float32Array): number {
  const scale = Math.max(1e-3, ...b.map(Math.abs));
  return Math.max(...a.map((x, i) => Math.abs(x - b[i]))) / scale;
}

describe('images as the processor of transformers cuts them', () => {
  it.each(given.prompts.flatMap(({ pictures }) => pictures))('$kind $width x $height', async (picture) => {
    const [made] = await inputsOf(picture);
    const { steps, rows, columns } = made.grid;
    expect([steps, rows, columns]).toEqual(picture.grid);
    const patches = new Float32Array(steps * rows * columns * patchWidth(sizes));
    writePatches(made, sizes, patches);
    expect(distance(patches, floatsOf(picture.pixels))).toBeLessThan(1e-6);
  });
});

describe.each(families)('a model that sees, as transformers computes it: %s', (family) => {
  const model = modelOf(family);
  const expected = expectedOf(family);
  const measured: Partial<Record<Quantity, number>> = {};
  const note = (quantity: Quantity, difference: number): void => {
    measured[quantity] = Math.max(difference, measured[quantity] ?? 0);
  };
  // The file of Qwen3-VL records its own, with an adapter.
  afterAll(async () => {
    if (family === 'qwen3_vl') return;
    await recordAgreement(family, {
      model_type: family,
      inputs: 'text, images, clips',
      transformers: expected.transformers,
      peft: null,
      differences: measured,
      answers: null,
      adapted: linearLayers(model.config),
    });
  });

  it('gives the same log-probabilities, wherever its graphs begin', async () => {
    const right = logProbsOf(family, expected.logits);
    for (const trains of [
      everything,
      { mm_vision: false, mm_mlp: true, mm_llm: true },
      { mm_vision: false, mm_mlp: false, mm_llm: true },
    ]) {
      const found = await logProbs(family, { ...model, trains });
      note('logProbs', relative(found, right));
      right.forEach((x, i) => expect(Math.abs(found[i] - x)).toBeLessThan(1e-4));
    }
  });

  it('gives the same gradients, with and without gradient checkpointing', async () => {
    for (const checkpointing of [false, true]) {
      const found = await gradients(family, model, checkpointing);
      for (const [name, text] of Object.entries(expected.gradients)) {
        const own = name.replace(/^model\.visual\./, 'visual.').replace(/^model\.language_model\./, 'model.');
        const gradient = found.get(own);
        expect(gradient, own).toBeDefined();
        note('gradients', relative(gradient!, floatsOf(text)));
        expect(distance(gradient!, floatsOf(text)), own).toBeLessThan(1e-4);
      }
    }
  });

  it('gives the same gradients to what trains where other parts are frozen, and none to those', async () => {
    const whole = await gradients(family, model);
    const parts = await gradients(family, { ...model, trains: { mm_vision: false, mm_mlp: true, mm_llm: false } });
    expect([...parts.keys()].sort()).toEqual([...whole.keys()].filter((name) => name.includes('merger')).sort());
    for (const [name, gradient] of parts) expect(distance(gradient, whole.get(name)!)).toBeLessThan(1e-5);
  });

  it('samples answers whose log-probabilities its other graphs find', async () => {
    const trains = { mm_vision: false, mm_mlp: true, mm_llm: true };
    const seen = { ...model, trains };
    const sampler = new Sampler(seen, { contextSize: 100, constrained: false, separateVocabularies: false, session });
    const asked = prompts(family).map((tokens) => ({ tokens }));
    const answers = await sampler.sample(
      {
        prompts: asked,
        among: asked,
        answersPerPrompt: 3,
        how: { maxTokens: 6, temperature: 1, topP: 1, topK: -1, logProbTemperature: 1 },
        weights: 'current',
        random: (p, g) => new RandomStream(3, 'answers', p, g),
      },
      model.weights,
      'loaded',
    );
    await sampler.dispose();
    const by = learner(seen);
    const statistics = await by.statistics(
      asked.map((prompt, p) => ({ prompt, answers: answers[p] })),
      model.weights,
    );
    await by.dispose();
    const found = statistics.flat().flatMap(({ logProbs: of }) => [...of]);
    const sampled = answers.flat().flatMap(({ logProbs: of }) => [...of]);
    expect(sampled.length).toBeGreaterThan(20);
    sampled.forEach((x, i) => expect(Math.abs(x - found[i])).toBeLessThan(1e-4));
  });

  // Prompts of its own have several lengths.
  it.skipIf(givenOf(family) !== given)('decodes answers to other images in the same graph', async () => {
    const sampler = new Sampler(model, { contextSize: 100, constrained: false, separateVocabularies: false, session });
    const compile = vi.spyOn(Session, 'compile');
    for (const tokens of prompts(family)) {
      await sampler.sample(
        {
          prompts: [{ tokens }],
          among: [{ tokens }],
          answersPerPrompt: 2,
          how: { maxTokens: 2, temperature: 1, topP: 1, topK: -1, logProbTemperature: 1 },
          weights: 'current',
          random: (p, g) => new RandomStream(3, 'answers', p, g),
        },
        model.weights,
        'loaded',
      );
    }
    const names = compile.mock.calls.map(([{ name }]) => name.split(' ')[0]);
    compile.mockRestore();
    await sampler.dispose();
    expect(names.sort()).toEqual(['decode', 'prefill', 'prefill']);
  });

  it('keeps what frozen parts make of images up to a bound, of those asked for last', async () => {
    const trains = { mm_vision: false, mm_mlp: true, mm_llm: true };
    const shown = prompts()
      .flatMap(({ images = [] }) => images)
      .slice(0, 2);
    const ids = (tokens: number, kind: string): number[] => [
      1,
      ...Array<number>(tokens).fill(kind === 'image' ? 56 : 57),
      2,
    ];
    const alone = shown.map((picture) => ({
      ids: ids(tokensOf(picture.grid, sizes), picture.kind),
      images: [picture],
    }));
    const most = Math.max(...shown.map(({ grid }) => tokensOf(grid, sizes)));
    const bytes = most * 4 * 16 * 4 * mergersOf(model.config.vision!).length;
    const run = vi.spyOn(Session.prototype, 'run');
    const computed: number[] = [];
    for (const kept of [bytes, 10 * bytes]) {
      const of = { ...model, trains };
      const visionTower = new VisionTower(of, of.config as VisionDecoderConfig, session, kept);
      run.mockClear();
      for (const prompt of [alone[0], alone[0], alone[1], alone[0]]) {
        await visionTower.feeds([prompt], { prompts: 1, promptColumns: 64, images: visionTower.shape([prompt]) });
      }
      computed.push(run.mock.calls.length);
      await visionTower.dispose();
    }
    run.mockRestore();
    expect(computed).toEqual([3, 2]);
  });
});
