import { describe, expect, it } from 'vitest';
import { EarlyStopping } from '../../src/train/trainer_state.js';

describe('early stopping', () => {
  it('counts validations in a row without an improvement of min_delta', () => {
    const stopping = new EarlyStopping({ patience: 2, min_delta: 0.1 });
    const seen = [1, 0.95, 0.85, 0.8, 0.76].map((loss, i) => {
      stopping.note(i + 1, loss);
      return [stopping.state.flat_validations, stopping.exhausted];
    });
    expect(seen).toEqual([
      [0, null],
      [1, null],
      [0, null],
      [1, null],
      [2, 2],
    ]);
    expect(stopping.state.best_held_out_loss).toBe(0.85);
  });

  it('counts a repeated validation once, and continues from a checkpoint', () => {
    const stopping = new EarlyStopping({ patience: 2, min_delta: 0 });
    stopping.note(25, 1);
    stopping.note(50, 2);
    stopping.note(50, 2);
    expect(stopping.exhausted).toBeNull();
    const resumed = new EarlyStopping({ patience: 2, min_delta: 0 });
    resumed.restore(stopping.state);
    resumed.note(50, 2);
    expect(resumed.state).toEqual(stopping.state);
    resumed.note(75, 1);
    expect(resumed.exhausted).toBe(2);
  });

  it('never ends without patience', () => {
    const stopping = new EarlyStopping({ patience: null, min_delta: 0 });
    for (let i = 1; i < 50; i++) stopping.note(i, 1);
    expect(stopping.exhausted).toBeNull();
  });
});
