import { describe, expect, it, vi } from 'vitest';
import { evaluations } from './evaluations.js';
import { isWhatItsCellsAre, largeMatrices } from './large.js';
import { experimentLoader } from './loader.js';

vi.mock('../../../src/config/jsonnet.js', async (original) => (await import('./evaluations.js')).counted(original));

const load = experimentLoader();

describe('a matrix', () => {
  it('binds names and settings late, in two evaluations', async () => {
    evaluations.count = 0;
    const { cells } = await load(`{ base: base, axes: { lr: { '5': { lr: 5 } } } }`);
    expect(evaluations.count).toBe(2);
    expect(cells[0].config.settings).toMatchObject({
      run_name: 'exp__lr-5',
      parameters: { rate: 5, named: 'x__exp__lr-5' },
    });
    expect(Object.isFrozen(cells[0].config.settings)).toBe(true);
  });

  it('that takes too long is not evaluated again', async () => {
    evaluations.count = 0;
    const values = `{ [std.toString(i)]: { seed: f(i) } for i in std.range(1, 100) }`;
    const text = `local f(n) = f(n + 1) tailstrict; { base: base, axes: { seed: ${values} } }`;
    await expect(load(text, {}, { EDITRL_JSONNET_SECONDS: '1' })).rejects.toThrow(
      'the evaluation exceeds the limit of 1 s',
    );
    expect(evaluations.count).toBe(2);
  });

  it('of reading by turns, when it is large, is what its cells are', async () => {
    await isWhatItsCellsAre(load, largeMatrices['reading by turns']);
  });
});
