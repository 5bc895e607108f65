/** A loss and its derivatives by log-probabilities, against the graph that the onnx engine runs and its automatic gradient. */
import { describe, expect, it } from 'vitest';
import { RandomStream } from '../../../../src/core/random.js';
import { Graph, type Value } from '../../../../src/compute/graph/ir.js';
import { gradients } from '../../../../src/compute/graph/differentiate.js';
import { klTerm, weightedLoss, type KlTerm } from '../../../../src/compute/nets/losses.js';
import { linearLoss } from '../../../../src/train/policies/losses/linear.js';
import { ruleOf, type LossSpec } from '../../../../src/train/policies/losses/table.js';
import type { Target } from '../../../../src/train/policies/policy.js';
import { runOnnx, tensorData } from '../../../compute/graph/support.js';

const COUNT = 48;
const random = new RandomStream('linear loss', 1);
const draw = (of: () => number): Float32Array => Float32Array.from({ length: COUNT }, of);
const logProbs = draw(() => -2 + random.normal());
const inputs = {
  weights: draw(() => (random.uniform() < 0.25 ? 0 : random.uniform() / COUNT)),
  advantages: draw(() => random.normal()),
  old: logProbs.map((one) => one + 0.4 * random.normal()),
  reference: logProbs.map((one, t) => (t === 5 ? 24 : one + random.normal())),
};
inputs.weights[5] = 0.01;
const target: Target = {
  weights: inputs.weights,
  advantages: inputs.advantages,
  old: { logProbs: inputs.old },
  reference: { logProbs: inputs.reference },
};

async function byGraph(loss: LossSpec): Promise<{ readonly loss: number; readonly push: Float32Array }> {
  const graph = new Graph('loss');
  const values = new Map<Value, Float32Array>();
  const input = (name: string, data: Float32Array): Value => {
    const value = graph.input(name, [COUNT], 'float32');
    values.set(value, data);
    return value;
  };
  const now = input('log_probs', logProbs);
  const gain = ruleOf(loss).gain(loss, now, (name) => input(name, inputs[name]));
  const { kl = null } = loss;
  const cost = kl === null ? null : klTerm(now, input('reference', inputs.reference), kl);
  const scalar = weightedLoss(input('weights', inputs.weights), gain, cost);
  const feeds = new Map([...values].map(([value, data]) => [value, tensorData('float32', [...data])]));
  const [[sum], slopes] = await runOnnx(graph, [scalar, ...gradients(scalar, [now])], feeds);
  return { loss: sum, push: Float32Array.from(slopes, (one) => -one) };
}

const kl: KlTerm = { coefficient: 0.3 };

describe('a loss given by its derivatives', () => {
  it.each<LossSpec>([
    { policy: 'likelihood' },
    { policy: 'reinforce', kl: null },
    { policy: 'reinforce', kl },
    { policy: 'ratio', clip: null, kl: null },
    { policy: 'ratio', clip: 0.2, kl: null },
    { policy: 'ratio', clip: 0.2, kl },
    { policy: 'ratio', clip: 0.1, clipHigh: 0.3, kl: null },
    { policy: 'cispo', most: 1.15, kl: null },
    { policy: 'cispo', most: 1.15, kl },
  ])('%j equals the graph', async (loss) => {
    const expected = await byGraph(loss);
    const found = linearLoss(loss, logProbs, target);
    expect(found.loss / expected.loss).toBeCloseTo(1, 4);
    found.push.forEach((one, t) => expect(Math.abs(one - expected.push[t])).toBeLessThan(2e-6 + 1e-5 * Math.abs(one)));
    expect(found.push.some((one) => one !== 0)).toBe(true);
    expect(found.klClamped).toBe(loss.kl ? 1 : 0);
  });

  /** The losses as their papers write them, in float64, with the log-probabilities that carry a gradient apart from those that carry none. */
  const published: readonly (readonly [LossSpec, (r: number, fixed: number, logProb: number, a: number) => number])[] =
    [
      [
        { policy: 'ratio', clip: 0.1, clipHigh: 0.3, kl: null },
        (r, _fixed, _logProb, a) => Math.min(r * a, Math.max(0.9, Math.min(1.3, r)) * a),
      ],
      [{ policy: 'cispo', most: 1.15, kl: null }, (_r, fixed, logProb, a) => Math.min(fixed, 1.15) * a * logProb],
    ];
  it.each(published)('%j has the gradient of its published form', (loss, gain) => {
    const { push } = linearLoss(loss, logProbs, target);
    push.forEach((one, t) => {
      const { weights, advantages, old } = inputs;
      const at = (shift: number): number => {
        const logProb = logProbs[t] + shift;
        return gain(Math.exp(logProb - old[t]), Math.exp(logProbs[t] - old[t]), logProb, advantages[t]);
      };
      const slope = (at(1e-6) - at(-1e-6)) / 2e-6;
      expect(Math.abs(one - weights[t] * slope)).toBeLessThan(1e-7 + 1e-5 * Math.abs(one));
    });
    const ratios = logProbs.map((one, t) => Math.exp(one - inputs.old[t]));
    expect(ratios.some((one) => one > 1.3) && ratios.some((one) => one < 0.9)).toBe(true);
  });

  it('reads one advantage for all actions', () => {
    const loss: LossSpec = { policy: 'ratio', clip: 0.2, kl: null };
    const alike = { ...target, advantages: new Float32Array(COUNT).fill(0.5) };
    expect(linearLoss(loss, logProbs, { ...target, advantages: 0.5 })).toEqual(linearLoss(loss, logProbs, alike));
  });

  it('rejects a target that lacks what the loss reads', () => {
    expect(() => linearLoss({ policy: 'ratio', clip: null, kl: null }, logProbs, { ...target, old: null })).toThrow(
      /old/,
    );
    expect(() => linearLoss({ policy: 'reinforce', kl }, logProbs, { ...target, reference: null })).toThrow(
      /reference/,
    );
  });
});
