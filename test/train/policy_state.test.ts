import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { CheckpointError } from '../../src/core/errors.js';
import type { FloatTensor } from '../../src/core/safetensors.js';
import type { OptimizerSettings } from '../../src/config/settings.js';
import { TrainState } from '../../src/train/policy_state.js';

const settings: OptimizerSettings = {
  learning_rate: 0.1,
  betas: [0.9, 0.999],
  eps: 1e-8,
  weight_decay: 0,
  max_grad_norm: 1,
  per_device_batch_size: 1,
  schedule: 'constant',
  gradient_checkpointing: false,
  ema_decay: null,
};
const made = (): TrainState<{ config: object; weights: Map<string, FloatTensor> }> =>
  new TrainState(
    { config: { a: 1 }, weights: new Map([['w', { shape: [2], data: Float32Array.of(1, 2) }]]) },
    settings,
    4,
    '{}',
  );
const gradient = (...values: number[]): Map<string, Float32Array> => new Map([['w', Float32Array.from(values)]]);
const root = mkdtempSync(join(tmpdir(), 'state-'));
afterAll(() => rmSync(root, { recursive: true }));

function write(files: Record<string, Uint8Array | string>): void {
  for (const [name, content] of Object.entries(files)) writeFileSync(join(root, name), content);
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
    const before = state.files(1);
    expect(state.step(gradient(NaN, 1)).applied).toBe(false);
    expect(state.files(1)).toEqual(before);
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
