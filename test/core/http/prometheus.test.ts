import { expect, it } from 'vitest';
import { family } from '../../../src/core/http/prometheus.js';

it('escapes backslashes, quotes and line breaks in the values of labels', () => {
  const samples = [{ labels: { path: 'C:\\new', said: 'a "b"\nc' }, value: 1 }];
  // As the text format has it: \\ for a backslash, \" for a quote, \n for a line feed.
  expect(family('m', 'gauge', 'help', samples).at(-1)).toBe(String.raw`m{path="C:\\new",said="a \"b\"\nc"} 1`);
});
