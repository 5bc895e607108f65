import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { CheckpointError } from '../../../src/core/errors.js';
import type { FloatTensor } from '../../../src/core/safetensors.js';
import { encodeSafetensors } from '../../../src/core/safetensors.js';
import type { ScheduleOptions } from '../../../src/compute/onnx/optimizer.js';
import { AdamW, clipFactor, gradientNorm, learningRateAt } from '../../../src/compute/onnx/optimizer.js';

interface Stored {
  readonly shape: number[];
  readonly data: number[];
}

interface Trajectory {
  readonly options: { lr: number; betas: [number, number]; eps: number; weight_decay: number };
  readonly max_norm: number | null;
  readonly start: Record<string, Stored>;
  readonly steps: {
    learning_rate: number;
    gradients: Record<string, Stored>;
    norm: number;
    weights: Record<string, Stored>;
  }[];
  readonly state: Record<string, { exp_avg: Stored; exp_avg_sq: Stored }>;
}

const fixture = JSON.parse(readFileSync(new URL('fixtures/adamw.json', import.meta.url), 'utf8')) as Record<
  'defaults' | 'decay',
  Trajectory
>;

function tensors(stored: Record<string, Stored>): Map<string, FloatTensor> {
  return new Map(
    Object.entries(stored).map(([name, { shape, data }]) => [name, { shape, data: Float32Array.from(data) }]),
  );
}

function arrays(stored: Record<string, Stored>): Map<string, Float32Array> {
  return new Map([...tensors(stored)].map(([name, { data }]) => [name, data]));
}

function optimizer({ options, start }: Trajectory, ema_decay: number | null = null): AdamW {
  return new AdamW(tensors(start), {
    betas: options.betas,
    eps: options.eps,
    weight_decay: options.weight_decay,
    ema_decay,
  });
}

function expectNear(actual: ArrayLike<number>, expected: readonly number[], tolerance: number): void {
  expect(actual.length).toBe(expected.length);
  expected.forEach((value, i) =>
    expect(Math.abs(actual[i] - value)).toBeLessThan(tolerance * Math.max(1, Math.abs(value))),
  );
}

function advance(adam: AdamW, trajectory: Trajectory, from: number, to: number): void {
  for (const { learning_rate, gradients } of trajectory.steps.slice(from, to)) {
    const found = arrays(gradients);
    adam.step(found, learning_rate, clipFactor(gradientNorm(found), trajectory.max_norm));
  }
}

describe('AdamW', () => {
  for (const name of ['defaults', 'decay'] as const) {
    it(`follows torch.optim.AdamW and clip_grad_norm_ (${name})`, () => {
      const trajectory = fixture[name];
      const adam = optimizer(trajectory);
      for (const { learning_rate, gradients, norm, weights } of trajectory.steps) {
        const found = arrays(gradients);
        const before = gradientNorm(found);
        expectNear([before], [norm], 1e-6);
        adam.step(found, learning_rate, clipFactor(before, trajectory.max_norm));
        expect(found).toEqual(arrays(gradients));
        for (const [key, { data }] of Object.entries(weights)) expectNear(adam.weights.get(key)!.data, data, 1e-6);
      }
      const state = adam.state();
      for (const [key, { exp_avg, exp_avg_sq }] of Object.entries(trajectory.state)) {
        expectNear(state.get(`exp_avg.${key}`)!.data, exp_avg.data, 1e-6);
        expectNear(state.get(`exp_avg_sq.${key}`)!.data, exp_avg_sq.data, 1e-6);
      }
    });
  }

  it('continues bit for bit from a state that was taken out', () => {
    const trajectory = fixture.decay;
    const whole = optimizer(trajectory, 0.9);
    advance(whole, trajectory, 0, 8);

    const first = optimizer(trajectory, 0.9);
    advance(first, trajectory, 0, 3);
    const state = new Map([...first.state()].map(([name, { shape, data }]) => [name, { shape, data: data.slice() }]));
    const second = optimizer(trajectory, 0.9);
    for (const [name, { data }] of second.weights) data.set(first.weights.get(name)!.data);
    second.restore(state, first.steps);
    expect(second.steps).toBe(3);
    advance(second, trajectory, 3, 8);

    expect(second.weights).toEqual(whole.weights);
    expect(encodeSafetensors(second.state())).toEqual(encodeSafetensors(whole.state()));
  });

  it('leaves weights without a gradient alone', () => {
    const adam = optimizer(fixture.decay);
    const b = adam.weights.get('b')!.data.slice();
    adam.step(new Map([['a', new Float32Array(12).fill(1)]]), 0.1);
    expect(adam.weights.get('b')!.data).toEqual(b);
    expect(adam.weights.get('a')!.data).not.toEqual(tensors(fixture.decay.start).get('a')!.data);
  });

  it('averages the weights: the average starts as a copy and moves by one minus the decay', () => {
    const adam = new AdamW(new Map([['w', { shape: [1], data: Float32Array.of(1) }]]), {
      betas: [0, 0],
      eps: 0,
      weight_decay: 0,
      ema_decay: 0.75,
    });
    // without moments a step is the learning rate times the gradient's sign
    adam.step(new Map([['w', Float32Array.of(5)]]), 0.5);
    adam.step(new Map([['w', Float32Array.of(5)]]), 0.5);
    expect(adam.weights.get('w')!.data[0]).toBe(0);
    expect(adam.averages()!.get('w')!.data[0]).toBe(0.75 * (0.75 * 1 + 0.25 * 0.5));
    expect([...adam.state().keys()]).toEqual(['exp_avg.w', 'exp_avg_sq.w', 'ema.w']);
    expect(optimizer(fixture.defaults).averages()).toBeNull();
  });

  it('rejects a state of another model and keeps its own', () => {
    const adam = optimizer(fixture.defaults);
    advance(adam, fixture.defaults, 0, 1);
    const before = encodeSafetensors(adam.state());
    const state = new Map(
      [...adam.state()].map(([name, { shape, data }]) => [name, { shape, data: data.map(() => 7) }]),
    );
    state.set('exp_avg_sq.b', { shape: [4], data: new Float32Array(4) });
    expect(() => adam.restore(state, 9)).toThrow(CheckpointError);
    expect(() => adam.restore(state, 9)).toThrow(/exp_avg_sq\.b has shape \[4\]/);
    state.delete('exp_avg_sq.b');
    expect(() => adam.restore(state, 9)).toThrow(/exp_avg_sq\.b is missing/);
    expect(encodeSafetensors(adam.state())).toEqual(before);
    expect(adam.steps).toBe(1);
  });

  it('takes gradients of its own parameters alone', () => {
    const adam = optimizer(fixture.defaults);
    expect(() => adam.step(new Map([['z', new Float32Array(1)]]), 1)).toThrow(/1 elements for z/);
    expect(() => adam.step(new Map([['b', new Float32Array(4)]]), 1)).toThrow(/4 elements for b/);
    expect(adam.steps).toBe(0);
  });
});

describe('the norm of a gradient', () => {
  it('is joint, and summed in float64 over every element', () => {
    expect(
      gradientNorm(
        new Map([
          ['a', Float32Array.of(3)],
          ['b', Float32Array.of(0, 4)],
        ]),
      ),
    ).toBe(5);
    const many = new Float32Array(100_003).fill(0.1);
    const squares = Array.from(many).reduce((sum, x) => sum + x * x, 0);
    expect(gradientNorm(new Map([['a', many]]))).toBeCloseTo(Math.sqrt(squares), 9);
    for (const bad of [NaN, Infinity]) {
      expect(Number.isFinite(gradientNorm(new Map([['a', Float32Array.of(3, bad)]])))).toBe(false);
    }
  });

  it('scales as torch does it, with a millionth added to the norm, and never up', () => {
    expect(clipFactor(0.5, 1)).toBe(1);
    expect(clipFactor(5e-6, 3e-6)).toBe(3e-6 / 6e-6);
    expect(clipFactor(5, null)).toBe(1);
  });

  it('scales gradients before the step', () => {
    const stepped = (gradient: number[], clip?: number): Float32Array => {
      const adam = optimizer(fixture.decay);
      adam.step(new Map([['b', Float32Array.from(gradient)]]), 0.1, clip);
      return adam.state().get('exp_avg_sq.b')!.data;
    };
    expect(stepped([1, 2, 3, 4, 5], 0.5)).toEqual(stepped([0.5, 1, 1.5, 2, 2.5]));
  });
});

describe('the learning rate', () => {
  const rates = (options: ScheduleOptions, steps: number[]): number[] =>
    steps.map((step) => Number(learningRateAt(step, options).toFixed(6)));

  it('stays', () => {
    expect(rates({ schedule: 'constant', learningRate: 2, warmupSteps: 0 }, [0, 1, 1000])).toEqual([2, 2, 2]);
  });

  it('warms up to the peak', () => {
    expect(rates({ schedule: 'constant', learningRate: 2, warmupSteps: 4 }, [0, 1, 3, 4, 5])).toEqual([
      0.5, 1, 2, 2, 2,
    ]);
  });

  it('falls linearly', () => {
    const options = { schedule: 'linear', learningRate: 2, warmupSteps: 2, totalSteps: 6 } as const;
    expect(rates(options, [0, 1, 2, 3, 5, 6, 99])).toEqual([1, 2, 2, 1.5, 0.5, 0, 0]);
  });

  it('falls as half a cosine, to a floor', () => {
    const options = { schedule: 'cosine', learningRate: 3, warmupSteps: 0, totalSteps: 4, floor: 1 } as const;
    expect(rates(options, [0, 1, 2, 3, 4])).toEqual([3, 2.707107, 2, 1.292893, 1]);
  });

  it('is a number behind a warm-up that lasts for all steps', () => {
    const options = { schedule: 'cosine', learningRate: 3, warmupSteps: 4, totalSteps: 4, floor: 1 } as const;
    expect(rates(options, [3, 4, 5])).toEqual([3, 3, 1]);
  });
});
