import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { CheckpointError } from '../../../src/core/errors.js';
import { readSafetensors, type FloatTensor } from '../../../src/core/safetensors.js';
import type { OptimizerSettings } from '../../../src/config/settings.js';
import { learningRateAt, type ScheduleOptions } from '../../../src/engines/onnx/optimizer.js';
import type { CheckpointFiles } from '../../../src/run/checkpoints.js';
import { TrainState } from '../../../src/engines/onnx/trained_weights.js';

const settings: OptimizerSettings = {
  learning_rate: 0.1,
  betas: [0.9, 0.999],
  eps: 1e-8,
  weight_decay: 0,
  max_grad_norm: 1,
  per_device_batch_size: 1,
  schedule: 'constant',
  decay_steps: null,
  min_learning_rate_ratio: 0,
  gradient_checkpointing: false,
  ema_decay: null,
};
const made = (
  ema_decay: number | null = null,
  schedule: ScheduleOptions = { schedule: 'constant', learningRate: 0.1, warmupSteps: 4 },
): TrainState<{ config: object; weights: Map<string, FloatTensor> }> =>
  new TrainState(
    { config: { a: 1 }, weights: new Map([['w', { shape: [2], data: Float32Array.of(1, 2) }]]) },
    { ...settings, ema_decay },
    schedule,
    '{}',
  );
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

describe('a policy under training', () => {
  it('clips the norm, warms up, and reports both', () => {
    const state = made();
    expect(state.step(gradient(3, 4))).toMatchObject({ gradNorm: 5, learningRate: 0.025, applied: true });
    // Adam's first step is the learning rate against the sign of the gradient
    expect(state.model.weights.get('w')!.data[0]).toBeCloseTo(0.975, 5);
    expect(state.step(gradient(0.3, 0.4))).toMatchObject({ learningRate: 0.05 });
  });

  it('leaves everything as it is for a gradient that is not finite', () => {
    const state = made();
    const before = bytesOf(state.files(1));
    expect(state.step(gradient(NaN, 1)).applied).toBe(false);
    expect(bytesOf(state.files(1))).toEqual(before);
  });

  it('continues bit for bit from its files', () => {
    const straight = made();
    for (let i = 0; i < 5; i++) straight.step(gradient(i - 2, 1));
    const first = made();
    for (let i = 0; i < 3; i++) first.step(gradient(i - 2, 1));
    first.noteHeldOutLoss(3, 0.5, 0);
    write(first.files(3));
    const second = made();
    second.restore(root);
    for (let i = 3; i < 5; i++) second.step(gradient(i - 2, 1));
    expect(second.model.weights).toEqual(straight.model.weights);
    expect(second.files(5)['optimizer.safetensors']).toEqual(straight.files(5)['optimizer.safetensors']);
  });

  it.each(['linear', 'cosine'] as const)('goes on where it was on a %s fall of its learning rate', (schedule) => {
    const folder = join(root, schedule);
    mkdirSync(folder);
    const falls = { schedule, learningRate: 0.1, warmupSteps: 2, totalSteps: 6, floor: 0.02 };
    const steps = (state: ReturnType<typeof made>, from: number, to: number): number[] =>
      Array.from({ length: to - from }, (_, i) => state.step(gradient(from + i - 2, 1)).learningRate);
    const straight = made(null, falls);
    const rates = steps(straight, 0, 8);
    expect(rates).toEqual(rates.map((_, step) => learningRateAt(step, falls)));
    expect(rates.slice(0, 3)).toEqual([0.05, 0.1, 0.1]);
    expect(rates.slice(5)).toEqual([expect.closeTo(schedule === 'linear' ? 0.04 : 0.0317, 4), 0.02, 0.02]);
    const first = made(null, falls);
    const before = steps(first, 0, 4);
    write(first.files(4), folder);
    const second = made(null, falls);
    second.restore(folder);
    expect([...before, ...steps(second, 4, 8)]).toEqual(rates);
    expect(bytesOf(second.files(8))).toEqual(bytesOf(straight.files(8)));
  });

  it('keeps moving averages in a file of their own, from which they go on bit for bit', () => {
    const folder = join(root, 'averaged');
    mkdirSync(folder);
    const averaged = made(0.9);
    const weight = averaged.model.weights.get('w')!.data;
    const expected = [...weight];
    for (let i = 0; i < 3; i++) {
      averaged.step(gradient(i - 2, 1));
      weight.forEach((w, j) => (expected[j] = Math.fround(0.9 * expected[j] + (1 - 0.9) * w)));
    }
    write(averaged.files(3), folder);
    const kept = readSafetensors(join(folder, 'ema.safetensors'));
    expect([...kept.keys()]).toEqual(['w']);
    expect([...kept.get('w')!.data]).toEqual(expected);
    expect([...kept.get('w')!.data]).not.toEqual([...weight]);
    expect([...readSafetensors(join(folder, 'optimizer.safetensors')).keys()]).toEqual(['exp_avg.w', 'exp_avg_sq.w']);

    const resumed = made(0.9);
    resumed.restore(folder);
    for (const state of [averaged, resumed]) state.step(gradient(1, 1));
    expect(bytesOf(resumed.files(4))).toEqual(bytesOf(averaged.files(4)));
    // The averages change nothing else.
    const plain = made();
    for (let i = 0; i < 3; i++) plain.step(gradient(i - 2, 1));
    expect(plain.files(3)).not.toHaveProperty(['ema.safetensors']);
    plain.step(gradient(1, 1));
    expect(plain.model.weights).toEqual(averaged.model.weights);
  });

  it('does not resume averages from a checkpoint that has none', () => {
    write(made().files(1));
    expect(() => made(0.9).restore(root)).toThrow(/tensor ema\.w is missing/);
  });

  it('counts flat validations, each iteration once, also after it was restored', () => {
    const state = made();
    state.noteHeldOutLoss(1, 1, 0.1);
    state.noteHeldOutLoss(2, 0.95, 0.1);
    expect(state.flatValidations).toBe(1);
    state.noteHeldOutLoss(2, 0.95, 0.1);
    expect(state.flatValidations).toBe(1);
    write(state.files(2));
    const restored = made();
    restored.restore(root);
    restored.noteHeldOutLoss(2, 0.95, 0.1);
    expect(restored.flatValidations).toBe(1);
    restored.noteHeldOutLoss(3, 0.95, 0.1);
    expect(restored.flatValidations).toBe(2);
    restored.noteHeldOutLoss(4, 0.8, 0.1);
    expect(restored.flatValidations).toBe(0);
  });

  it('says which file it cannot read', () => {
    write(made().files(1));
    writeFileSync(join(root, 'trainer.json'), readFileSync(join(root, 'trainer.json'), 'utf8').slice(0, 10));
    expect(() => made().restore(root)).toThrow(CheckpointError);
  });
});
