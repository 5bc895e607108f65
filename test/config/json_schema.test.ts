import { describe, expect, it } from 'vitest';
import { z } from 'zod';
import { jsonSchema, withShared } from '../../src/config/json_schema.js';
import { recipes } from '../../src/recipes/settings.js';
import { loadEvaluated } from './evaluated.js';

type Json = Readonly<Record<string, unknown>>;

/** A schema with every shared part put back in its place; zod's own definitions are of recursive values and stay. */
function expanded(value: unknown, defs: Json): unknown {
  if (Array.isArray(value)) return value.map((each) => expanded(each, defs));
  if (typeof value !== 'object' || value === null) return value;
  const { $ref, ...rest } = value as { $ref?: string };
  const name = $ref?.replace('#/$defs/', '');
  const own = Object.fromEntries(Object.entries(rest).map(([key, each]) => [key, expanded(each, defs)]));
  if (name === undefined) return own;
  expect(Object.keys(defs)).toContain(name);
  if (name.startsWith('__schema')) return { ...own, $ref };
  return { ...(expanded(defs[name], defs) as Json), ...own };
}

describe('the JSON Schema of all settings', () => {
  const schema = jsonSchema();
  const defs = schema['$defs'] as Json;

  it('says the same as one without shared parts, in less than a third of the bytes', () => {
    const [first, ...rest] = Object.values(recipes).map((recipe) => recipe.schema);
    const whole = z.toJSONSchema(z.discriminatedUnion('task', [first, ...rest]), { io: 'input' });
    const without = (one: object): object => Object.fromEntries(Object.entries(one).filter(([key]) => key !== '$defs'));
    expect(expanded(without(schema), defs)).toEqual(without(whole));
    expect(JSON.stringify(schema).length * 3).toBeLessThan(JSON.stringify(whole).length);
  });

  it('has no part twice that is longer than a line, and none that nothing refers to', () => {
    const text = JSON.stringify(schema);
    for (const name of Object.keys(defs)) {
      expect(text.split(`"#/$defs/${name}"`).length, name).toBeGreaterThan(1);
    }
    expect(Object.keys(defs)).toEqual(
      expect.arrayContaining(['launch', 'track', 'optimizer', 'checkpoint', 'algorithm']),
    );
  });

  it('takes a config, and refuses a misspelt key and a wrong value where they stand', async () => {
    const { settings } = await loadEvaluated({
      file: 'configs/sft_s__rl_s.jsonnet',
      overlays: ['configs/lib/tiny.libsonnet'],
    });
    const check = z.fromJSONSchema(schema);
    expect(check.safeParse(settings).error).toBeUndefined();
    const { optimizer } = settings as unknown as { readonly optimizer: Json };
    for (const wrong of [{ learning_rat: 1 }, { learning_rate: 'fast' }]) {
      expect(check.safeParse({ ...settings, optimizer: { ...optimizer, ...wrong } }).success).toBe(false);
    }
  });
});

describe('shared parts', () => {
  const part = { properties: { a: { type: 'number', description: 'x'.repeat(200) } }, additionalProperties: false };

  it('stand once, named after the first field that has one; what a field says of itself stays with it', () => {
    const schema = {
      properties: {
        one: { type: 'object', description: 'the first', ...part },
        two: { anyOf: [{ type: 'object', ...part }, { type: 'null' }], default: null },
        type: { type: 'string', default: 'a field that is called as a keyword is' },
      },
    };
    expect(withShared(schema)).toEqual({
      properties: {
        one: { type: 'object', description: 'the first', $ref: '#/$defs/one' },
        two: { anyOf: [{ type: 'object', $ref: '#/$defs/one' }, { type: 'null' }], default: null },
        type: schema.properties.type,
      },
      $defs: { one: { type: 'object', ...part } },
    });
  });

  it('get names of their own where two fields are called alike', () => {
    const other = { ...part, required: ['a'] };
    const { $defs } = withShared({
      anyOf: [part, part, other, other].map((it, i) => ({ properties: { it, [`only_${i}`]: { type: 'null' } } })),
    });
    expect($defs).toEqual({ it: part, it_2: other });
  });
});
