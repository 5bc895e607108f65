/** A model that is shown what stays of an image as further tokens: what stays is put back, and what it decides is learnt from alone. */
import { describe, expect, it } from 'vitest';
import type { FlowTrainGroup } from '../../../../src/train/policies/flow/learner.js';
import { askedBeside, blending, gradientError, openedParts, sampled, smallFlow } from './small_flow.js';

const { open } = openedParts();

const small = (seed = 1) => smallFlow('all', seed, blending);
const request = { prompts: 2, answers: 2, asked: askedBeside };

describe('what stays of an image', () => {
  it('is put back after each step at its noise, and is there in the end', async () => {
    const model = small();
    const answers = await sampled(open(model), model, request);
    answers.forEach((group, p) => {
      const { shown, painted } = askedBeside(p).flow.kept!;
      for (const { latents, actions } of group) {
        const stays = [...painted.keys()].filter((at) => painted[at] === 0);
        expect(stays.map((at) => latents[at])).toEqual(stays.map((at) => shown[at]));
        expect(latents.some((one, at) => painted[at] === 1 && Math.abs(one - shown[at]) > 0.1)).toBe(true);
        // The first action starts from noise alone, the others from what stays with as much of the same noise.
        const noise = actions[0].x;
        for (const { sigma, x } of actions.slice(1)) {
          for (const at of stays) expect(x[at]).toBeCloseTo((1 - sigma) * shown[at] + sigma * noise[at], 5);
        }
      }
    });
  });

  it('enters no log-probability: those of rollout and training agree, whatever was drawn there', async () => {
    const model = small();
    const made = open(model);
    const answers = await sampled(made, model, request);
    const changed = answers.map((group, p) =>
      group.map((answer) => ({
        ...answer,
        actions: answer.actions.map((action) => {
          const { painted } = askedBeside(p).flow.kept!;
          return { ...action, drawn: action.drawn.map((one, at) => (painted[at] === 1 ? one : one + 7)) };
        }),
      })),
    );
    for (const given of [answers, changed]) {
      const groups = given.map((group, p) => ({ prompt: askedBeside(p), answers: group }));
      const found = await made.learner.statistics(groups, model.weights, false);
      answers.forEach((group, p) =>
        group.forEach(({ logProbs }, g) =>
          logProbs.forEach((one, t) => expect(Math.abs(found[p][g].logProbs[t] - one)).toBeLessThan(2e-6)),
        ),
      );
    }
  });

  it('enters no divergence, and the gradient of the loss is that of the rest', async () => {
    const own = small();
    const made = open(own);
    const answers = await sampled(made, own, request);
    const groups = answers.map((group, p) => ({ prompt: askedBeside(p), answers: group }));
    const reference = await made.learner.statistics(groups, small(2).weights, true);
    const lessons = groups.map((group, i): FlowTrainGroup => ({
      ...group,
      targets: group.answers.map(({ logProbs }, g) => ({
        weights: logProbs.map(() => 0.05),
        advantages: g === 0 ? 1 : -0.5,
        reference: reference[i][g],
        old: null,
      })),
    }));
    const loss = { policy: 'reinforce', kl: { coefficient: 0.3 } } as const;
    const now = await made.learner.statistics(groups, own.weights, true);
    const { statistics } = await made.learner.learn(lessons, loss);
    await made.learner.gradients();
    groups.forEach(({ prompt, answers: group }, i) => {
      const { painted } = prompt.flow.kept!;
      group[0].actions.forEach(({ gaussian }, t) => {
        const [m, r] = [now[i][0].means![t], reference[i][0].means![t]];
        const squares = [...painted.keys()].filter((at) => painted[at] === 1).map((at) => (m[at] - r[at]) ** 2);
        const mean = squares.reduce((a, b) => a + b) / squares.length;
        expect(statistics[i][0].divergence![t]).toBeCloseTo(gaussian.precision * mean, 3);
      });
    });
    expect(await gradientError(made, own.weights, lessons, loss)).toBeLessThan(1e-2);
  });
});
