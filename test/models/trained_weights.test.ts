import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { encodeSafetensors, readSafetensors } from '../../src/core/safetensors.js';
import type { OptimizerSettings } from '../../src/config/schema/training.js';
import { learningRateAt } from '../../src/compute/onnx/optimizer.js';
import type { CheckpointFiles } from '../../src/models/files.js';
import { TrainedWeights } from '../../src/models/trained_weights.js';

const settings: OptimizerSettings = {
  learning_rate: 0.1,
  betas: [0.9, 0.999],
  eps: 1e-8,
  weight_decay: 0,
  max_grad_norm: 1,
  per_device_batch_size: 1,
  schedule: 'constant',
  min_learning_rate_ratio: 0,
  gradient_checkpointing: false,
  ema_decay: null,
};
const made = (ema_decay: number | null = null): TrainedWeights =>
  new TrainedWeights(new Map([['w', { shape: [2], data: Float32Array.of(1, 2) }]]), { ...settings, ema_decay });
const RATE = 0.1;
const gradient = (...values: number[]): Map<string, Float32Array> => new Map([['w', Float32Array.from(values)]]);
const root = mkdtempSync(join(tmpdir(), 'state-'));
afterAll(() => rmSync(root, { recursive: true }));

/** The files' bytes as they are at that moment. */
function bytesOf(files: CheckpointFiles): Record<string, Buffer> {
  const whole = Object.entries(files).map(([name, content]): [string, Buffer] => {
    if (typeof content === 'string') return [name, Buffer.from(content)];
    return [name, Buffer.concat(content instanceof Uint8Array ? [content] : content)];
  });
  return Object.fromEntries(whole);
}

function write(files: CheckpointFiles, folder = root): void {
  for (const [name, content] of Object.entries(bytesOf(files))) writeFileSync(join(folder, name), content);
}

describe('weights under training', () => {
  it('clips the norm, and reports it', () => {
    const state = made();
    expect(state.step(gradient(3, 4), 0.025)).toEqual({ gradNorm: 5, applied: true });
    // Adam's first step is the learning rate against the sign of the gradient
    expect(state.weights.get('w')!.data[0]).toBeCloseTo(0.975, 5);
    expect(state.steps).toBe(1);
    // The moment is a tenth of the gradient, which is a fifth of what it was.
    write(state.files());
    const [first, second] = readSafetensors(join(root, 'optimizer.safetensors')).get('exp_avg.w')!.data;
    expect([first, second]).toEqual([expect.closeTo(0.06, 6), expect.closeTo(0.08, 6)]);
  });

  it('leaves everything as it is for a gradient that is not finite', () => {
    const state = made();
    const before = bytesOf(state.files());
    expect(state.step(gradient(NaN, 1), RATE).applied).toBe(false);
    expect(bytesOf(state.files())).toEqual(before);
  });

  it('continues bit for bit from its files', () => {
    const straight = made();
    for (let i = 0; i < 5; i++) straight.step(gradient(i - 2, 1), RATE);
    const first = made();
    for (let i = 0; i < 3; i++) first.step(gradient(i - 2, 1), RATE);
    write(first.files());
    const second = made();
    second.restore(root, 3);
    for (let i = 3; i < 5; i++) second.step(gradient(i - 2, 1), RATE);
    expect(second.weights).toEqual(straight.weights);
    expect(second.files()['optimizer.safetensors']).toEqual(straight.files()['optimizer.safetensors']);
  });

  it.each(['linear', 'cosine'] as const)('goes on where it was on a %s fall of its learning rate', (schedule) => {
    const folder = join(root, schedule);
    mkdirSync(folder);
    const falls = { schedule, learningRate: 0.1, warmupSteps: 2, totalSteps: 6, floor: 0.02 };
    const take = (state: TrainedWeights, from: number, to: number): number[] =>
      Array.from({ length: to - from }, (_, i) => {
        const rate = learningRateAt(state.steps, falls);
        state.step(gradient(from + i - 2, 1), rate);
        return rate;
      });
    const straight = made();
    const rates = take(straight, 0, 8);
    expect(rates.slice(0, 3)).toEqual([0.05, 0.1, 0.1]);
    expect(rates.slice(5)).toEqual([expect.closeTo(schedule === 'linear' ? 0.04 : 0.0317, 4), 0.02, 0.02]);
    const first = made();
    const before = take(first, 0, 4);
    write(first.files(), folder);
    const second = made();
    second.restore(folder, 4);
    expect([...before, ...take(second, 4, 8)]).toEqual(rates);
    expect(bytesOf(second.files())).toEqual(bytesOf(straight.files()));
  });

  it('keeps moving averages in a file of their own, from which they continue bit for bit', () => {
    const folder = join(root, 'averaged');
    mkdirSync(folder);
    const averaged = made(0.9);
    const weight = averaged.weights.get('w')!.data;
    const expected = [...weight];
    for (let i = 0; i < 3; i++) {
      averaged.step(gradient(i - 2, 1), RATE);
      weight.forEach((w, j) => (expected[j] = Math.fround(0.9 * expected[j] + (1 - 0.9) * w)));
    }
    write(averaged.files(), folder);
    const kept = readSafetensors(join(folder, 'ema.safetensors'));
    expect([...kept.keys()]).toEqual(['w']);
    expect([...kept.get('w')!.data]).toEqual(expected);
    expect([...kept.get('w')!.data]).not.toEqual([...weight]);
    expect([...readSafetensors(join(folder, 'optimizer.safetensors')).keys()]).toEqual(['exp_avg.w', 'exp_avg_sq.w']);

    const resumed = made(0.9);
    resumed.restore(folder, 3);
    for (const state of [averaged, resumed]) state.step(gradient(1, 1), RATE);
    expect(bytesOf(resumed.files())).toEqual(bytesOf(averaged.files()));
    // The averages change nothing else.
    const plain = made();
    for (let i = 0; i < 3; i++) plain.step(gradient(i - 2, 1), RATE);
    expect(plain.files()).not.toHaveProperty(['ema.safetensors']);
    plain.step(gradient(1, 1), RATE);
    expect(plain.weights).toEqual(averaged.weights);
  });

  it('are not written where they are not finite', () => {
    const state = made();
    state.weights.get('w')!.data[1] = Infinity;
    expect(() => state.files()).toThrow('tensor w contains a number that is not finite (Infinity, number 2 of 2)');
  });

  it.each([
    ['policy.safetensors', 'w', /tensor w contains a number that is not finite \(NaN, number 1 of 2\)/],
    ['optimizer.safetensors', 'exp_avg_sq.w', /tensor exp_avg_sq\.w contains a number that is not finite/],
    ['ema.safetensors', 'w', /tensor ema\.w contains a number that is not finite/],
  ])('are rejected where %s is not finite', (file, name, message) => {
    const folder = join(root, `wrong-${file}`);
    mkdirSync(folder);
    write(made(0.9).files(), folder);
    const tensors = readSafetensors(join(folder, file));
    tensors.get(name)!.data[0] = NaN;
    writeFileSync(join(folder, file), encodeSafetensors(tensors));
    expect(() => made(0.9).restore(folder, 1)).toThrow(message);
  });

  it('does not resume averages from a checkpoint that has none', () => {
    write(made().files());
    expect(() => made(0.9).restore(root, 1)).toThrow(/tensor ema\.w is missing/);
  });
});
