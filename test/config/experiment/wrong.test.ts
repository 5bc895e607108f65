import { existsSync, readFileSync } from 'node:fs';
import { dirname, resolve } from 'node:path';
import { describe, expect, it } from 'vitest';
import { descriptionSchema, experimentSchema } from '../../../src/config/experiment/schema.js';
import { ConfigError } from '../../../src/core/errors.js';
import { experimentLoader } from './loader.js';

const load = experimentLoader();
const ab = `axes: { a: { x: {}, y: { parameters+: { a: 1 } } }, b: { '1': {}, '2': { seed: 2 } } }`;

/** What a person reads of an experiment that cannot be: without the last line, which says where all keys are listed. */
async function messageOf(text: string): Promise<string> {
  const error = await load(text).catch((thrown: unknown) => thrown);
  if (!(error instanceof ConfigError)) throw error instanceof Error ? error : new Error('it loads');
  return error
    .toText()
    .replace(/^.*exp\.jsonnet: /, '')
    .replace(/\n {2}editrl config schema --experiment .*$/, '');
}

describe('an experiment of a wrong form', () => {
  const lists = `allowed: a list of two or more axes, as in zip: [['a', 'b']], or { a: ['1', '2'], b: ['x', 'y'] }`;
  const bases = `allowed: a config (base: import 'CONFIG.jsonnet'), or the name of the axis whose values are configs`;
  it.each([
    ['zip of names', `base: base, ${ab}, zip: ['a', 'b']`, `zip.0: found "a"; ${lists}\n  zip.1: found "b"; ${lists}`],
    [
      'zip of a name',
      `base: base, ${ab}, zip: 'a'`,
      `zip: found "a"; allowed: a list of groups of axes, as in zip: [['a', 'b']]`,
    ],
    ['no base', ab, `base: missing; ${bases}`],
    [
      'a base that is a file name',
      `base: 'my.jsonnet', ${ab}`,
      `base: found 'my.jsonnet', which is not an axis; allowed: a config, or the name of the axis whose values are configs (axes: a, b)\n  Did you mean base: import 'my.jsonnet'?`,
    ],
    [
      'a base that is nearly an axis',
      `base: 'recpe', axes: { recipe: { x: base } }`,
      `base: found 'recpe', which is not an axis; allowed: a config, or the name of the axis whose values are configs (axes: recipe)\n  Did you mean base: 'recipe'?`,
    ],
    [
      'overrides of an object',
      `base: base, ${ab}, overrides: { cell: {}, set: {} }`,
      `overrides: found {"cell":{},"set":{}}; allowed: a list, such as [{ cell: { axis: 'value' }, set: { … } }]`,
    ],
    [
      'an axis that is a list',
      `base: base, axes: { a: [{}] }`,
      'axes.a: found "a list"; allowed: an object with a mixin for each value',
    ],
    [
      'axes in a list',
      `base: base, axes: ['a']`,
      'axes: found ["a"]; allowed: an object of axes, each with a mixin for each value: { axis: { value: { … }, other: { … } } }',
    ],
  ])('%s', async (_, keys, message) => {
    expect(await messageOf(`{ ${keys} }`)).toBe(message);
  });

  it('is not an object', async () => {
    expect(await messageOf('[1]')).toBe('found "a list"; allowed: an object');
  });

  it.each(['__proto__', 'constructor', 'toString'])('has an axis or a value %s', async (name) => {
    expect(await messageOf(`{ base: base, axes: { ['${name}']: { x: {} } } }`)).toContain(`axis '${name}' cannot be`);
    expect(await messageOf(`{ base: base, axes: { a: { ['${name}']: {} } } }`)).toContain(`value '${name}' cannot be`);
  });
});

describe('a cell', () => {
  const named = 'sets run_name, but a cell is named after its axes';
  it('is not named by an axis or an override', async () => {
    const axis = await messageOf(`{ base: base, axes: { a: { x: {}, y: { run_name:: 'mine' } } } }`);
    expect(axis).toContain(`axis 'a': value 'y' ${named}`);
    const override = await messageOf(`{ base: base, ${ab}, overrides: [{ cell: {}, set: { run_name: 'mine' } }] }`);
    expect(override).toContain(`overrides.0 ${named}`);
    expect((await load(`{ base: 'r', axes: { r: { x: base } } }`)).cells).toHaveLength(1);
  });

  it('that others are compared with is there', async () => {
    const left = "baseline: no cell has a 'x', the values to compare with: exclude or zip leaves it out";
    const text = (more: string): string => `{ base: base, ${ab}, baseline: { a: 'x' }, ${more} }`;
    expect(await messageOf(text(`exclude: [{ a: 'x' }]`))).toContain(left);
    expect((await load(text(`exclude: [{ a: 'x', b: '1' }]`))).cells).toHaveLength(3);
    expect((await load(text(`exclude: [{ a: 'x' }], include: [{ a: 'x', b: '1' }]`))).cells).toHaveLength(3);
  });

  it('that only repeats others is reported', async () => {
    const axes = `axes: { a: { x: {}, y: {}, z: { launch+: { devices: [] } } }, b: { '1': {}, '2': { seed: 2 } } }`;
    expect((await load(`{ base: base + { parameters: {} }, ${axes} }`)).warnings).toEqual([
      [
        '4 of 6 cells repeat others; these have the same result-affecting settings:',
        '  exp__a-x__b-1, exp__a-y__b-1, exp__a-z__b-1',
        '  exp__a-x__b-2, exp__a-y__b-2, exp__a-z__b-2',
      ].join('\n'),
    ]);
    const apart = `axes: { a: { x: {}, y: { launch+: { env+: { RATE: '2' } } } } }`;
    expect((await load(`{ base: base, ${apart} }`)).warnings).toEqual([]);
    const many = Array.from({ length: 5 }, (_, i) => `'${i}': {}`).join(', ');
    const seeds = Array.from({ length: 5 }, (_, i) => `'${i}': { seed: ${i} }`).join(', ');
    const [warning] = (await load(`{ base: base + { parameters: {} }, axes: { a: { ${many} }, s: { ${seeds} } } }`))
      .warnings;
    expect(warning.split('\n')).toHaveLength(5);
    expect(warning).toContain('exp__a-0__s-0, exp__a-1__s-0, exp__a-2__s-0, and 2 more\n');
    expect(warning).toContain('\n  and 2 more groups');
    expect((await load(`{ base: base, ${ab} }`)).warnings).toEqual([]);
  });
});

describe('docs/guide/experiments-and-results.md', () => {
  const page = readFileSync('docs/guide/experiments-and-results.md', 'utf8');

  it('names every key, as the schema does', () => {
    const schema = experimentSchema() as { properties: Record<string, { description: string }> };
    expect(Object.keys(schema.properties)).toEqual(Object.keys(descriptionSchema().shape));
    for (const [key, { description: words }] of Object.entries(schema.properties)) {
      expect(words, key).toMatch(/\.$/);
      expect(page).toContain(`\`${key}\``);
    }
    expect(schema.properties).toMatchObject({
      axes: { type: 'object', additionalProperties: { additionalProperties: { type: 'object' } } },
      base: { anyOf: [{ type: 'object' }, { type: 'string' }] },
      overrides: { items: { properties: { set: { type: 'object' } }, required: ['cell', 'set'] } },
    });
    expect(JSON.stringify(schema)).not.toMatch(/"const":true/);
  });

  const examples = [...page.matchAll(/```jsonnet\n(.*?)```/gs)].map(([, text]) => text);
  it.each(examples.map((text) => [/name: '(\w+)'/.exec(text)?.[1] ?? text, text]))(
    'shows what loads: %s',
    async (_, text) => {
      const { cells } = await load(
        text.replace(/'\.\.\/(configs\/[^']+)'/g, (_match, path: string) => `'${resolve(path)}'`),
      );
      const told = /\/\/ (\d+) cells/.exec(text)?.[1];
      expect(cells).toHaveLength(Number(told));
    },
  );

  it('has examples, and links to files that exist', () => {
    expect(examples.length).toBeGreaterThan(3);
    const links = [...page.matchAll(/\]\(([^)#]+)\)/g)].map(([, target]) =>
      resolve(dirname('docs/guide/experiments-and-results.md'), target),
    );
    expect(links.filter((target) => !existsSync(target))).toEqual([]);
  });
});
