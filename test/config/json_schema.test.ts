import { describe, expect, it } from 'vitest';
import { z } from 'zod';
import { jsonSchema } from '../../src/config/json_schema.js';
import { recipes } from '../../src/recipes/settings.js';
import { loadEvaluated } from './evaluated.js';

type Json = Readonly<Record<string, unknown>>;

describe('the JSON Schema of all settings', () => {
  const schema = jsonSchema();

  it('has shared parts once, in less than a third of the bytes of one that repeats them', () => {
    const [first, ...rest] = Object.values(recipes).map((recipe) => recipe.schema);
    const whole = z.toJSONSchema(z.discriminatedUnion('task', [first, ...rest]), { io: 'input' });
    expect(JSON.stringify(schema).length * 3).toBeLessThan(JSON.stringify(whole).length);
  });

  it('takes a config, and rejects a misspelt key and a wrong value where they stand', async () => {
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
