/** Sampling and learning of a flow policy against plain loops in float64, finite differences, and themselves in other parts. */
import { describe, expect, it } from 'vitest';
import { RandomStream } from '../../../../src/core/random.js';
import type { FlowAnswer } from '../../../../src/train/policies/flow/batch.js';
import type { FlowTrainGroup } from '../../../../src/train/policies/flow/learner.js';
import { FlowPolicy } from '../../../../src/train/policies/flow/policy.js';
import type { LossSpec } from '../../../../src/train/policies/losses/table.js';
import type { Statistics } from '../../../../src/train/policies/policy.js';
import { optimizer as optimizerSchema } from '../../../../src/config/schema/training.js';
import { soloGroup, type ProcessGroup } from '../../../../src/core/group/process_group.js';
import { onRanks } from '../../groups.js';
import {
  asked,
  config,
  gradientError,
  how,
  ofQwen,
  openedParts,
  sampled,
  smallFlow,
  type Parts,
} from './small_flow.js';

const { open, opened } = openedParts();

const model = smallFlow();

/** Lessons on answers, with a reference that differs from the model and old values beside its own. */
async function trainGroupsOf(answers: readonly (readonly FlowAnswer[])[], made: Parts): Promise<FlowTrainGroup[]> {
  const groups = answers.map((group, p) => ({ prompt: asked(p), answers: group }));
  const reference = await made.learner.statistics(groups, smallFlow('all', 2, made.learner.model.config).weights, true);
  const stream = new RandomStream('lessons');
  return groups.map((group, i) => ({
    ...group,
    targets: group.answers.map(({ logProbs }, g) => ({
      weights: logProbs.map((_, t) => (t === 1 ? 0 : 0.05)),
      advantages: g === 1 ? logProbs.map(() => stream.normal()) : stream.normal(),
      reference: reference[i][g],
      old: { logProbs: logProbs.map((one) => one + 0.3 * stream.normal()), means: reference[i][g].means! },
    })),
  }));
}

const LOSSES: Readonly<Record<string, LossSpec>> = {
  likelihood: { policy: 'likelihood' },
  reinforce: { policy: 'reinforce', kl: { coefficient: 0.3 } },
  ratio: { policy: 'ratio', clip: null, kl: { coefficient: 0.3 } },
  clipped: { policy: 'ratio', clip: 0.1, kl: null },
};

describe('a flow policy that samples', () => {
  it.each([
    ['guided', config, 2],
    ['guided, of Qwen-Image', ofQwen, 2],
  ] as const)('tells the log-probabilities that the training graph finds: %s', async (_name, of, guidance) => {
    const own = smallFlow('all', 1, of);
    const made = open(own, { guidance });
    const answers = await sampled(made, own, { prompts: 2, answers: 3, how: { ...how, guidance } });
    const found = await made.learner.statistics(
      answers.map((group, p) => ({ prompt: asked(p), answers: group })),
      own.weights,
      false,
    );
    expect(answers[0][0].logProbs).toHaveLength(3);
    answers.forEach((group, p) =>
      group.forEach(({ logProbs }, g) =>
        logProbs.forEach((one, t) => expect(Math.abs(found[p][g].logProbs[t] - one)).toBeLessThan(2e-6)),
      ),
    );
  });

  it('gives the same images whatever they are sampled together with', async () => {
    const whole = await sampled(open(model), model, { prompts: 3, answers: 2 });
    const alone = await sampled(open(model), model, { prompts: 1, answers: 2, first: 2 });
    expect(alone[0].map(({ latents }) => latents)).toEqual(whole[2].map(({ latents }) => latents));
    expect(alone[0].map(({ logProbs }) => logProbs)).toEqual(whole[2].map(({ logProbs }) => logProbs));
  });

  it('reports that an image is none where its numbers are not finite', async () => {
    const broken = smallFlow();
    broken.weights.get('proj_out.bias')!.data[0] = NaN;
    await expect(sampled(open(broken), broken, { prompts: 1, answers: 1 })).rejects.toThrow(
      'the model diverged: its images have values that are not finite',
    );
  });

  it('is not guided where a model like Qwen-Image, whose tokens stay as long as they were, says nothing', async () => {
    const row = { condition: asked(0).flow, sigma: 0.5, x: new Float32Array(18).fill(0.3) };
    const silent = smallFlow('all', 1, ofQwen);
    for (const name of ['proj_out.weight', 'proj_out.bias']) silent.weights.get(name)!.data.fill(0);
    const [nothing] = await open(silent).sampler.velocities([row], 3, silent.weights);
    expect(nothing.every((one) => one === 0)).toBe(true);
  });
});

describe('a flow policy that learns on the forward process', () => {
  const quiet = { ...how, noiseLevel: 0 };

  it('samples as the ODE does, and puts noise on the images at the levels that the steps begin at', async () => {
    const made = open(model);
    const noised = { ...quiet, noised: { levels: null } };
    const [plain, own] = [
      await sampled(made, model, { prompts: 2, answers: 2, how: quiet }),
      await sampled(made, model, { prompts: 2, answers: 2, how: noised }),
    ];
    const noises = own.flatMap((group, p) =>
      group.flatMap(({ actions, latents, logProbs }, g) => {
        expect(latents).toEqual(plain[p][g].latents);
        expect(logProbs.every(Number.isNaN)).toBe(true);
        expect(actions.map(({ sigma }) => sigma)).toEqual([1, 0.75, 0.5]);
        return actions.map(({ sigma, x, drawn }) => {
          const noise = drawn.map((velocity, i) => velocity + latents[i]);
          x.forEach((one, i) => expect(one).toBeCloseTo((1 - sigma) * latents[i] + sigma * noise[i], 5));
          return noise;
        });
      }),
    );
    expect(new Set(noises.map(([first]) => first.toFixed(4))).size).toBe(noises.length);
    const all = noises.flatMap((noise) => [...noise]);
    expect(all.reduce((sum, one) => sum + one * one, 0) / all.length).toBeCloseTo(1, 0);
    const alone = await sampled(made, model, { prompts: 1, answers: 2, first: 1, how: noised });
    expect(alone[0].map(({ actions }) => actions)).toEqual(own[1].map(({ actions }) => actions));
  });

  it('draws the requested number of levels of an image, none of them twice', async () => {
    const few = { ...quiet, noised: { levels: 2 } };
    const answers = (await sampled(open(model), model, { prompts: 4, answers: 4, how: few })).flat();
    const levels = answers.map(({ actions }) => actions.map(({ sigma }) => sigma));
    for (const [first, second] of levels) expect(first).not.toBe(second);
    expect([...new Set(levels.flat())].sort()).toEqual([0.5, 0.75, 1]);
  });
});

describe('a flow policy that learns', () => {
  for (const [name, loss] of Object.entries(LOSSES)) {
    const cases = [
      [null, config],
      ...(name === 'ratio'
        ? ([
            [2, config],
            [2, ofQwen],
          ] as const)
        : []),
    ] as const;
    for (const [guidance, of] of cases) {
      const under = guidance === null ? '' : ` under guidance of ${of.architecture}`;
      it(`has the gradient of its ${name} loss${under}`, async () => {
        const own = smallFlow('all', 1, of);
        const made = open(own, { guidance });
        const answers = await sampled(made, own, { prompts: 2, answers: 3, how: { ...how, guidance } });
        const lessons = await trainGroupsOf(answers, made);
        const report = await made.learner.learn(lessons, loss);
        await made.learner.gradients();
        expect(report.loss).toBeCloseTo(plainLoss(lessons, report.statistics, loss), 4);

        // What guidance is measured from carries no gradient, and is kept where it was.
        const unguided = made.sampler.unguided.bind(made.sampler);
        const frozen = new Map([...own.weights].map(([key, one]) => [key, { ...one, data: one.data.slice() }]));
        made.sampler.unguided = (rows) => unguided(rows, frozen);
        expect(await gradientError(made, own.weights, lessons, loss)).toBeLessThan(1e-2);
      });
    }
  }

  it('measures KL between the Gaussians of the weights and of their reference', async () => {
    const made = open(model);
    const answers = await sampled(made, model, { prompts: 2, answers: 2 });
    const lessons = (await trainGroupsOf(answers, made)).map((lesson) => ({
      ...lesson,
      targets: lesson.targets.map((target) => ({ ...target, weights: target.weights.map(() => 0.05) })),
    }));
    const now = await made.learner.statistics(lessons, model.weights, true);
    const { statistics } = await made.learner.learn(lessons, LOSSES['reinforce']);
    await made.learner.gradients();
    lessons.forEach(({ targets, answers: group }, i) =>
      targets.forEach(({ reference }, g) =>
        group[g].actions.forEach(({ gaussian }, t) => {
          // The divergence of two Gaussians of deviation s is (m - m_ref)^2 / (2 s^2); s follows from the offset, -log s - log(2 pi) / 2.
          const deviation = Math.exp(-gaussian.offset) / Math.sqrt(2 * Math.PI);
          const [own, other] = [now[i][g].means![t], reference!.means![t]];
          const squares = own.reduce((sum, m, at) => sum + (m - other[at]) ** 2, 0) / own.length;
          expect(statistics[i][g].divergence![t]).toBeCloseTo(squares / (2 * deviation ** 2), 4);
          expect(squares).toBeGreaterThan(1e-4);
        }),
      ),
    );
  });

  it('computes no action of weight 0, and reports its old values', async () => {
    const answers = await sampled(open(model), model, { prompts: 2, answers: 3 });
    const whole = await trainGroupsOf(answers, open(model));
    const lessons = whole.map((lesson, i) => ({
      ...lesson,
      targets: lesson.targets.map((target) => ({ ...target, weights: target.weights.map((w) => (i === 0 ? 0 : w)) })),
    }));
    const learnt = async (of: readonly FlowTrainGroup[]) => {
      const made = open(smallFlow());
      const report = await made.learner.learn(of, LOSSES['ratio']);
      return { report, gradient: await made.learner.gradients() };
    };
    const both = await learnt(lessons);
    const alone = await learnt(lessons.slice(1));
    expect(both.report.loss).toBe(alone.report.loss);
    expect(both.report.statistics[1]).toEqual(alone.report.statistics[0]);
    expect([...both.gradient.values()]).toEqual([...alone.gradient.values()]);
    both.report.statistics[0].forEach(({ logProbs, divergence }, g) => {
      expect([...logProbs]).toEqual([...lessons[0].targets[g].old!.logProbs]);
      expect([...divergence!]).toEqual([0, 0, 0]);
    });
  });

  it('finds the same bits on two ranks that hold a part of the images each', async () => {
    const answers = await sampled(open(model), model, { prompts: 3, answers: 4 });
    const lessons = await trainGroupsOf(answers, open(model));
    /** The last prompt's answers go through the other rank's micro-batches. */
    const home = (p: number): number => (p === 1 ? 1 : 0);
    const learnt = async (own: readonly FlowTrainGroup[], peers: ProcessGroup) => {
      const { learner } = open(smallFlow(), { peers });
      // Half of them, so that they are dealt otherwise than what the reference was asked of.
      const { loss, statistics } = await learner.learn(own.slice(1), LOSSES['ratio']);
      return { loss, statistics, gradient: [...(await learner.gradients())].map(([key, one]) => [key, one.slice()]) };
    };
    const whole = await onRanks(2, (group) => learnt(lessons, group));
    const travelled: number[] = [];
    const parted = await onRanks(2, async (group) => {
      const peers: ProcessGroup = {
        ...soloGroup(),
        rank: group.rank,
        size: group.size,
        allGather: (value) => group.allGather(value),
        allToAll: (toEach) => {
          travelled.push(...(toEach as readonly unknown[] as readonly unknown[][]).map(({ length }) => length));
          return group.allToAll(toEach);
        },
        sum: (arrays) => group.sum(arrays),
      };
      const policy = new FlowPolicy({
        model: smallFlow(),
        optimizer: optimizerSchema.parse({ learning_rate: 1e-2, per_device_batch_size: 4 }),
        guidance: null,
        session: { threads: 1 },
        peers,
        keepReference: false,
      });
      const made = open(smallFlow(), { peers });
      opened.push(policy);
      const groups = answers.map((group, p) => ({
        prompt: asked(p),
        answers: group.map((answer) => {
          const at = { ...answer, home: home(p) };
          return home(p) === peers.rank ? at : policy.outline(at);
        }),
      }));
      const reference = await made.learner.statistics(groups, smallFlow('all', 2).weights, true);
      reference.forEach((group, p) =>
        group.forEach(({ means }, g) => {
          const expected = lessons[p].targets[g].reference!.means!;
          expect(means).toEqual(home(p) === peers.rank ? expected : expected.map(() => new Float32Array(0)));
        }),
      );
      const own = lessons.map((lesson, p) => ({
        ...lesson,
        answers: groups[p].answers,
        targets: lesson.targets.map((target, g) => ({
          ...target,
          reference: reference[p][g],
          old: { ...target.old!, means: reference[p][g].means! },
        })),
      }));
      return learnt(own, peers);
    });
    expect(parted).toEqual(whole);
    const steps = answers.flat().reduce((sum, { actions }) => sum + actions.length, 0);
    expect(travelled.some((count) => count > 0)).toBe(true);
    // Each way, of what the reference is asked of, and of what is learnt from.
    expect(travelled.reduce((sum, count) => sum + count, 0)).toBeLessThan(1.5 * steps);
  });
});

/** sum w (-gain + beta KL) in float64, from what the graph says of log-probabilities and divergences. */
function plainLoss(
  lessons: readonly FlowTrainGroup[],
  statistics: readonly (readonly Statistics[])[],
  loss: LossSpec,
): number {
  let sum = 0;
  lessons.forEach(({ targets }, i) =>
    targets.forEach(({ weights, advantages, old }, g) => {
      const { logProbs, divergence } = statistics[i][g];
      weights.forEach((w, t) => {
        const ratio = Math.exp(logProbs[t] - (old?.logProbs[t] ?? 0));
        const advantage = typeof advantages === 'number' ? advantages : advantages[t];
        const gains = {
          likelihood: logProbs[t],
          reinforce: advantage * logProbs[t],
          ratio:
            loss.policy === 'ratio' && loss.clip !== null
              ? Math.min(ratio * advantage, Math.max(1 - loss.clip, Math.min(1 + loss.clip, ratio)) * advantage)
              : ratio * advantage,
          cispo:
            loss.policy === 'cispo'
              ? advantage * (Math.min(ratio, loss.most) + loss.most * Math.max(0, Math.log(ratio / loss.most)))
              : NaN,
          // See the tests of the objective: log-probabilities alone do not tell it.
          nft: NaN,
        };
        const kl = loss.policy === 'likelihood' ? null : loss.kl;
        sum += w * (-gains[loss.policy] + (kl === null ? 0 : kl.coefficient * divergence![t]));
      });
    }),
  );
  return sum;
}
