import { expect, it } from 'vitest';
import { leavesOf } from '../../src/core/schema/walk.js';
import { SettingsTable } from '../../src/web/runs_index.js';

it('lists the leaves of settings by their paths; a list is one', () => {
  expect(leavesOf({ a: { b: 1, c: { d: null } }, e: [{ f: 1 }] })).toEqual([
    ['a.b', 1],
    ['a.c.d', null],
    ['e', [{ f: 1 }]],
  ]);
});

it('gives back what it was given, for rows that were made before a key was known, too', () => {
  const table = new SettingsTable();
  const first = table.row(leavesOf({ a: 1, b: ['x'] }));
  const second = table.row(leavesOf({ a: 2, b: ['x'], c: 'late' }));
  expect([table.valueOf(first, 'a'), table.valueOf(second, 'a')]).toEqual([1, 2]);
  expect(table.valueOf(first, 'b')).toBe(table.valueOf(second, 'b'));
  expect(table.valueOf(first, 'c')).toBeUndefined();
  expect(table.valueOf(second, 'c')).toBe('late');
  expect(table.valueOf(second, 'd')).toBeUndefined();
  expect(table.counts([first, second])).toEqual([
    { key: 'a', values: 2 },
    { key: 'b', values: 1 },
    { key: 'c', values: 2 },
  ]);
});
