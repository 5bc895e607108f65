import { expect, it } from 'vitest';
import { designCells } from '../../../src/config/experiment/design.js';
import { descriptionSchema } from '../../../src/config/experiment/schema.js';

const axes = (...names: readonly string[]) =>
  Object.fromEntries(names.map((name) => [name, { '1': ['seed'], '2': ['seed'] }]));

function cellsOf(fields: Readonly<Record<string, unknown>>): string[] {
  return designCells('e', descriptionSchema().parse({ base: true, ...fields })).map(({ axes: cell }) =>
    Object.values(cell).join(''),
  );
}

it('rejects a baseline that names only some of the axes that are zipped', () => {
  const zipped = { axes: axes('a', 'b', 'c'), zip: [{ a: ['1', '2'], b: ['1', '2'] }], design: 'one_factor' };
  expect(cellsOf({ ...zipped, baseline: { a: '1', b: '1', c: '1' } })).toEqual(['111', '112', '221']);
  expect(() => cellsOf({ ...zipped, baseline: { a: '1', c: '1' } })).toThrow('a and b do not go together in zip');
});
