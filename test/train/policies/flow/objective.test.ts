/** Losses on the actions of a flow policy, and their gradients by its velocities, against the published formulae in float64. */
import { describe, expect, it } from 'vitest';
import { RandomStream } from '../../../../src/core/random.js';
import { gradients } from '../../../../src/compute/graph/differentiate.js';
import { Graph } from '../../../../src/compute/graph/ir.js';
import { Session } from '../../../../src/compute/onnx/session.js';
import type { LossSpec } from '../../../../src/train/policies/losses/table.js';
import { flowActions, flowObjective } from '../../../../src/train/policies/flow/learner.js';
import { gaussianOf, velocityGaussian, type Gaussian } from '../../../../src/train/policies/flow/steps.js';
import { centralDifferences } from '../../../compute/graph/support.js';

const [BATCH, ROWS, COLUMNS] = [12, 4, 3];
const SIZE = ROWS * COLUMNS;
const random = new RandomStream('flow objective');
const array = (scale = 1): Float32Array => Float32Array.from({ length: BATCH * SIZE }, () => scale * random.normal());
const plus = (a: Float32Array, b: Float32Array): Float32Array => a.map((one, i) => one + b[i]);
const row = (of: ArrayLike<number>, b: number): number[] => Array.from(of).slice(b * SIZE, (b + 1) * SIZE);

const steps: Gaussian[] = Array.from({ length: BATCH }, (_, b) => {
  return gaussianOf({ sigma: 0.5, ofX: 0.97, ofVelocity: -0.1, deviation: 0.2 + 0.02 * b });
});
const x = array();
/** Half of the actions are near the weights that sampled, and half are far from them. */
const v = array();
const near = Float32Array.from({ length: BATCH * SIZE }, (_, i) => (Math.floor(i / SIZE) % 2 === 0 ? 0.05 : 1));
const oldVelocity = plus(
  v,
  near.map((one) => one * random.normal()),
);
const reference = plus(v, array(0.3));
const levels = Float32Array.from({ length: BATCH }, (_, b) => 0.1 + 0.075 * b);
/** Two thirds of the elements are painted, where some are. */
const counted = Float32Array.from({ length: BATCH * SIZE }, (_, i) => (i % SIZE < SIZE / 3 ? 0 : 1.5));
const ofSteps = (key: keyof Gaussian): Float32Array => Float32Array.from(steps, (step) => step[key]);
const meansOf = (velocity: ArrayLike<number>, b: number): number[] =>
  row(velocity, b).map((one, i) => steps[b].ofX * row(x, b)[i] + steps[b].ofVelocity * one);
const allMeans = (velocity: ArrayLike<number>): Float32Array =>
  Float32Array.from(Array.from({ length: BATCH }, (_, b) => meansOf(velocity, b)).flat());
const [means, oldMeans, referenceMeans] = [v, oldVelocity, reference].map(allMeans);
/** What was drawn is nearer to the means of now for some, so that their ratio is above 1. */
const isLikelier = (b: number): boolean => b >= 4 && b < 10;
const drawn = plus(
  Float32Array.from(oldMeans, (old, i) => (isLikelier(Math.floor(i / SIZE)) ? means[i] : old)),
  array(0.1),
);
const weights = Float32Array.from({ length: BATCH }, (_, b) => (b === 3 ? 0 : 0.02 + 0.01 * b));
const advantages = Float32Array.from({ length: BATCH }, (_, b) => (b % 4 < 2 ? 1 : -1) * (0.4 + 0.1 * b));
const mean = (values: readonly number[], b: number, counts: boolean): number =>
  values.reduce((sum, one, i) => sum + (counts ? counted[b * SIZE + i] : 1) * one, 0) / SIZE;

const distance = (a: readonly number[], to: ArrayLike<number>, b: number, counts: boolean): number =>
  mean(
    a.map((one, i) => (one - row(to, b)[i]) ** 2),
    b,
    counts,
  );

/** `given` are fed in place of what is fed otherwise. */
async function byGraph(
  loss: LossSpec,
  counts: boolean,
  old: Float32Array,
  given: Readonly<Record<string, Float32Array>> = {},
) {
  const graph = new Graph('objective');
  const shape = [BATCH, ROWS, COLUMNS];
  const velocity = graph.input('v', shape);
  const { scalar, reportedValues: told } = flowObjective(
    flowActions(graph.input('x', shape), velocity, counts),
    loss,
    graph.input('sigma', [BATCH]),
  );
  const session = await Session.compile(
    graph,
    { loss: scalar, slope: gradients(scalar, [velocity])[0], ...told },
    { threads: 1 },
  );
  const all: Readonly<Record<string, Float32Array>> = {
    x,
    v,
    drawn,
    counted,
    old,
    advantages,
    weights,
    old_means: oldMeans,
    reference: referenceMeans,
    of_x: ofSteps('ofX'),
    of_velocity: ofSteps('ofVelocity'),
    precision: ofSteps('precision'),
    offset: ofSteps('offset'),
    sigma: levels,
    ...given,
  };
  const names = new Set(graph.inputs.map(({ name }) => name));
  try {
    return await session.run(Object.fromEntries(Object.entries(all).filter(([name]) => names.has(name))), new Map());
  } finally {
    await session.dispose();
  }
}

describe('the loss on the forward process', () => {
  const velocities = Object.fromEntries(
    (['ofX', 'ofVelocity', 'precision', 'offset'] as const).map((key) => {
      const name = { ofX: 'of_x', ofVelocity: 'of_velocity', precision: 'precision', offset: 'offset' }[key];
      return [name, new Float32Array(BATCH).fill(velocityGaussian[key])];
    }),
  );
  /** Pictures and their noise; one velocity leads exactly from the one to the other. */
  const [images, noises] = [array(), array()];
  const wanted = noises.map((eps, i) => (Math.floor(i / SIZE) === 7 ? v[i] : eps - images[i]));
  const given = { ...velocities, drawn: wanted, old_means: oldVelocity, reference };

  it.each([
    ['', 1, false, null],
    [', of velocities half as far', 0.5, false, null],
    [', with a penalty', 1, false, { coefficient: 0.3 }],
    [', of the painted elements alone', 0.7, true, null],
  ] as const)('has the value and the gradient of its formula%s', async (_name, beta, counts, kl) => {
    const limit = 0.8;
    const found = await byGraph({ policy: 'nft', beta, limit, kl }, counts, new Float32Array(BATCH), given);
    const fixed = Float64Array.from(v);
    /** x0(u) - x0 of the mixture of both velocities, from an image that leads to what is wanted. */
    const off = (velocity: ArrayLike<number>, b: number, ofNew: number): number[] =>
      row(velocity, b).map((one, i) => {
        const at = b * SIZE + i;
        const x0 = images[at];
        const noised = (1 - levels[b]) * x0 + levels[b] * (wanted[at] + x0);
        return noised - levels[b] * (ofNew * one + (1 - ofNew) * oldVelocity[at]) - x0;
      });
    const weight = (b: number, ofNew: number): number =>
      Math.max(mean(off(fixed, b, ofNew).map(Math.abs), b, counts), 1e-5);
    const kept = Array.from({ length: BATCH }, (_, b) => [weight(b, beta), weight(b, -beta)]);
    const at = (velocity: Float64Array): number =>
      kept.reduce((sum, [toPlus, toMinus], b) => {
        const squared = (ofNew: number): number =>
          mean(
            off(velocity, b, ofNew).map((one) => one * one),
            b,
            counts,
          );
        const r = 0.5 + Math.max(-1, Math.min(1, advantages[b] / limit)) / 2;
        const own = (r / beta) * (squared(beta) / toPlus) + ((1 - r) / beta) * (squared(-beta) / toMinus);
        const away = kl === null ? 0 : kl.coefficient * distance(row(velocity, b), reference, b, counts);
        return sum + weights[b] * (limit * own + away);
      }, 0);
    expect(Math.abs((found['loss'] as Float32Array)[0] / at(fixed) - 1)).toBeLessThan(1e-5);
    // The loss is quadratic where its weights are fixed, so that differences are exact.
    const slopes = centralDifferences(fixed, () => at(fixed), 1e-3);
    const largest = Math.max(...slopes.map(Math.abs));
    (found['slope'] as Float32Array).forEach((one, i) =>
      expect(Math.abs(one - slopes[i]) / largest).toBeLessThan(1e-5),
    );
    expect(advantages.some((one) => Math.abs(one) > limit) && advantages.some((one) => Math.abs(one) < limit)).toBe(
      true,
    );
    (found['moved'] as Float32Array).forEach((one, b) =>
      expect(Math.abs(one / distance(row(v, b), oldVelocity, b, counts) - 1)).toBeLessThan(1e-5),
    );
  });
});
