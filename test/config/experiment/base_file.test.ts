import { expect, it } from 'vitest';
import { importedBase } from '../../../src/config/experiment/load.js';

it.each([
  ["{ name: 'x', base: import '../configs/a.jsonnet', axes: {} }", '/e/configs/a.jsonnet'],
  [`{ "base": import "a.jsonnet" }`, '/e/experiments/a.jsonnet'],
  [`{\n  'base':\n    (import @'a b.jsonnet') + { seed: 1 },\n}`, '/e/experiments/a b.jsonnet'],
  ["{ // base: import 'old.jsonnet'\n  base: import 'a.jsonnet' }", '/e/experiments/a.jsonnet'],
  ["// base: import 'old.jsonnet'\n{ base: import '/abs/a.jsonnet' }", '/abs/a.jsonnet'],
  ["{ base: 'recipe', axes: { recipe: { a: import 'a.jsonnet' } } }", null],
  ["local a = import 'a.jsonnet'; { base: a }", null],
  ["{ database: import 'a.jsonnet' }", null],
])('%s: %s', (text, path) => {
  expect(importedBase('/e/experiments/x.jsonnet', text)).toBe(path);
});
