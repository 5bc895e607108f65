/** The losses against plain loops over float64, from logits: their values, and their gradients with respect to every logit. */
import { describe, expect, it } from 'vitest';
import { RandomStream } from '../../../src/core/random.js';
import { Session } from '../../../src/compute/onnx/session.js';
import { gradients } from '../../../src/compute/graph/differentiate.js';
import { sumAll } from '../../../src/compute/graph/build.js';
import { Graph } from '../../../src/compute/graph/ir.js';
import { wholeDistribution } from '../../../src/compute/nets/token_distribution.js';
import { klTerm, meanSquaredError, weightedLoss, type KlTerm } from '../../../src/compute/nets/losses.js';
import { ruleOf, type LossSpec } from '../../../src/train/policies/losses/table.js';

const [rows, vocabulary] = [12, 7];
const temperature = 0.7;
/** The last three tokens are vision. */
const modality = BigInt64Array.of(0n, 0n, 0n, 0n, 1n, 1n, 1n);
const stream = new RandomStream(3, 'losses');
const draw = (count: number, scale: number): Float32Array =>
  Float32Array.from({ length: count }, () => scale * stream.normal());
const logits = draw(rows * vocabulary, 1.5);
const targets = BigInt64Array.from({ length: rows }, (_, n) => BigInt(n % vocabulary));
// every fourth token carries no weight, as padding and untrained tokens do
const weights = Float32Array.from({ length: rows }, (_, n) => (n % 4 === 3 ? 0 : 0.1 + 0.01 * n));
const advantages = draw(rows, 1);
const oldShift = draw(rows, 0.4);
const referenceShift = draw(rows, 0.5);

interface Case {
  readonly separate: boolean;
  readonly kl: KlTerm | null;
  readonly ratio: boolean;
  readonly clip: number | null;
  readonly sft?: boolean;
}

/** p and log p of each row over the tokens that its target is compared with. */
function distribution(row: number, separate: boolean): { p: number[]; logProb: number } {
  const target = Number(targets[row]);
  const x = Array.from({ length: vocabulary }, (_, v) =>
    separate && modality[v] !== modality[target] ? -Infinity : logits[row * vocabulary + v] / temperature,
  );
  const top = Math.max(...x);
  const total = x.reduce((sum, value) => sum + Math.exp(value - top), 0);
  return { p: x.map((value) => Math.exp(value - top) / total), logProb: x[target] - top - Math.log(total) };
}

const shifted = (shift: Float32Array, separate: boolean): Float32Array =>
  shift.map((s, n) => distribution(n, separate).logProb + s);

function plain({ separate, kl, ratio, clip, sft }: Case): { loss: number; gradient: number[] } {
  const old = shifted(oldShift, separate);
  const reference = shifted(referenceShift, separate);
  let loss = 0;
  const gradient: number[] = [];
  for (let n = 0; n < rows; n++) {
    const { p, logProb } = distribution(n, separate);
    const a = advantages[n];
    let [value, slope] = [-logProb, -1];
    if (sft !== true) {
      [value, slope] = [-a * logProb, -a];
      if (ratio) {
        const r = Math.exp(logProb - old[n]);
        const bounded = clip === null ? r : Math.min(1 + clip, Math.max(1 - clip, r));
        const isClipped = bounded * a < r * a;
        [value, slope] = isClipped ? [-bounded * a, 0] : [-r * a, -r * a];
      }
      if (kl !== null) {
        const d = reference[n] - logProb;
        value += kl.coefficient * (Math.exp(d) - d - 1);
        slope -= kl.coefficient * (Math.exp(d) - 1);
      }
    }
    loss += weights[n] * value;
    p.forEach((q, v) => gradient.push((weights[n] * slope * ((v === Number(targets[n]) ? 1 : 0) - q)) / temperature));
  }
  return { loss, gradient };
}

async function compiled({ separate, kl, ratio, clip, sft }: Case): Promise<{ loss: number; gradient: Float32Array }> {
  const graph = new Graph('loss');
  const x = graph.parameter('logits', [rows, vocabulary]);
  const { logProbs } = wholeDistribution(
    x,
    graph.constant(targets, [rows]),
    temperature,
    separate ? graph.constant(modality, [vocabulary]) : null,
  );
  const constant = (data: Float32Array) => graph.constant(data, [rows]);
  const read: string[] = [];
  const input = (name: 'advantages' | 'old') => {
    read.push(name);
    return constant(name === 'old' ? shifted(oldShift, separate) : advantages);
  };
  const spec: LossSpec =
    sft === true ? { policy: 'likelihood' } : ratio ? { policy: 'ratio', clip, kl } : { policy: 'reinforce', kl };
  // A loss crosses to another process as text.
  const sent = JSON.parse(JSON.stringify(spec)) as LossSpec;
  const rule = ruleOf(sent);
  const gain = rule.gain(sent, logProbs, input);
  expect(read).toEqual(rule.reads);
  const cost = kl === null ? null : klTerm(logProbs, constant(shifted(referenceShift, separate)), kl);
  const loss = weightedLoss(constant(weights), gain, cost);
  const session = await Session.compile(graph, { loss, d: gradients(loss, [x])[0] }, { threads: 1 });
  const out = await session.run({}, new Map([['logits', { data: logits }]]));
  await session.dispose();
  return { loss: (out.loss as Float32Array)[0], gradient: out.d as Float32Array };
}

const base: Case = { separate: false, kl: null, ratio: false, clip: null };
const kl = { coefficient: 0.3 };
const cases: [string, Case][] = [
  ['SFT', { ...base, sft: true }],
  ['SFT over separate vocabularies', { ...base, sft: true, separate: true }],
  ['the policy term alone', base],
  ['KL', { ...base, kl }],
  ['KL over separate vocabularies', { ...base, kl, separate: true }],
  ['a ratio without a clip', { ...base, kl, ratio: true }],
  ['a clipped ratio', { ...base, ratio: true, clip: 0.2 }],
  ['a clipped ratio, KL, separate vocabularies', { separate: true, kl, ratio: true, clip: 0.2 }],
];

describe('losses from logits', () => {
  it.each(cases)('%s: value and gradient equal a plain computation', async (_name, which) => {
    const expected = plain(which);
    const found = await compiled(which);
    expect(Math.abs(found.loss - expected.loss)).toBeLessThan(1e-6);
    expected.gradient.forEach((g, i) => expect(Math.abs(found.gradient[i] - g), `logit ${i}`).toBeLessThan(1e-6));
  });

  it('clips some ratios on either side and leaves others', () => {
    const ratios = [...oldShift].map((s, n) => ({ r: Math.exp(-s), a: advantages[n] }));
    expect(ratios.some(({ r, a }) => r > 1.2 && a > 0)).toBe(true);
    expect(ratios.some(({ r, a }) => r < 0.8 && a < 0)).toBe(true);
    expect(ratios.some(({ r, a }) => r > 1.2 && a < 0)).toBe(true);
    expect(ratios.some(({ r }) => r > 0.8 && r < 1.2)).toBe(true);
  });
});

it('clamps the exponent of k3, in its value and in its gradient', async () => {
  const graph = new Graph('clamp');
  const logProbs = graph.input('log_probs', [3]);
  const loss = sumAll(klTerm(logProbs, graph.input('reference', [3]), { coefficient: 1 }));
  const [gradient] = gradients(loss, [logProbs]);
  const session = await Session.compile(graph, { loss, gradient }, { threads: 1 });
  // d is 200, 21 and 1.
  const out = await session.run(
    { log_probs: Float32Array.of(-201, -22, -2), reference: new Float32Array(3).fill(-1) },
    new Map(),
  );
  await session.dispose();
  const limit = Math.exp(20);
  const values = [limit - 201, limit - 22, Math.exp(1) - 2];
  expect((out['loss'] as Float32Array)[0]).toBeCloseTo(
    values.reduce((a, b) => a + b),
    -3,
  );
  // For clamped values only the linear term is left, which still has a gradient.
  expect([...(out['gradient'] as Float32Array)]).toEqual([1, 1, expect.closeTo(1 - Math.exp(1), 5)]);
});

it('the mean squared error is that over all elements, of the first with respect to the second', async () => {
  const graph = new Graph('squares');
  const [a, b] = [graph.input('a', [2, 3]), graph.input('b', [2, 3])];
  const loss = meanSquaredError(a, b);
  const [da, db] = gradients(loss, [a, b]);
  const session = await Session.compile(graph, { loss, da, db }, { threads: 1 });
  const out = await session.run(
    { a: Float32Array.of(1, 2, 3, 4, 5, 6), b: Float32Array.of(1, 0, 6, 4, 4, 8) },
    new Map(),
  );
  await session.dispose();
  const differences = [0, 2, -3, 0, 1, -2];
  expect((out['loss'] as Float32Array)[0]).toBeCloseTo((4 + 9 + 1 + 4) / 6, 6);
  // d/da = 2 (a - b) / n, and the opposite for b; 0 and -0 are the same here.
  const close = (sign: number) => differences.map((d) => expect.closeTo((sign * 2 * d) / 6, 6) as number);
  expect([...(out['da'] as Float32Array)]).toEqual(close(1));
  expect([...(out['db'] as Float32Array)]).toEqual(close(-1));
});
