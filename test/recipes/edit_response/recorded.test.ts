/** Runs that were recorded before edits were guided: they stay unguided, at the steps that they say, under the hash that they have. */
import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { resultHash } from '../../../src/config/hash.js';
import { renderHash } from '../../../src/environments/render_server/client.js';
import type { PlainObject } from '../../../src/run/record.js';
import { recordedSettings } from '../../../src/run/recorded_config.js';
import type { EditResponseSettings } from '../../../src/recipes/edit_response/settings.js';

/** Settings of a run.json, with the hash beside them. */
const recorded = JSON.parse(readFileSync(new URL('fixtures/recorded.json', import.meta.url), 'utf8')) as Readonly<
  Record<'model' | 'render_server', { readonly hash: string; readonly settings: PlainObject }>
>;
const settingsOf = (settings: PlainObject): EditResponseSettings =>
  recordedSettings(settings) as unknown as EditResponseSettings;

describe('a recorded run of edit_response', () => {
  it.each(['model', 'render_server'] as const)('whose environment is a %s stays what it was', (type) => {
    const { hash, settings } = recorded[type];
    expect(settings['environment']).not.toHaveProperty('guidance_scale');
    const read = settingsOf(settings);
    expect(read.environment).toMatchObject({
      ...(type === 'model' ? { num_steps: 20 } : { num_inference_steps: 20 }),
      guidance_scale: null,
      picture_names: false,
    });
    expect(read.prompt.system).toBe((settings['prompt'] as { readonly system: string }).system);
    expect(resultHash(read)).toBe(hash);
    // Even one that did not say its steps.
    const unsaid = {
      ...(settings['environment'] as PlainObject),
      num_steps: undefined,
      num_inference_steps: undefined,
    };
    const rest = JSON.parse(JSON.stringify(unsaid)) as PlainObject;
    expect(settingsOf({ ...settings, environment: rest }).environment).toEqual(read.environment);
  });

  it('finds the pictures of its render server under the names that they were stored by', () => {
    const { environment } = settingsOf(recorded.render_server.settings);
    if (environment?.type !== 'render_server') throw new Error('another environment');
    const wanted = { statesDigest: 'a', source: new Uint8Array([1]), size: { width: 16, height: 32 }, seed: 3 };
    expect(renderHash(environment, wanted)).toBe('b007cb6c97092f23ddfc0d27253f29aec52aacfe7c90cba1a324b3be6b1a3675');
  });
});
