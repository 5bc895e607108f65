import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { resultHash } from '../../src/config/hash.js';
import { recordedSettings } from '../../src/run/recorded_config.js';
import type { PlainObject } from '../../src/run/record.js';

/** The settings of a run of `sft_s__rl_s` as its run.json holds them, with the hash that was recorded beside them. */
const recorded = JSON.parse(readFileSync(new URL('fixtures/recorded_run.json', import.meta.url), 'utf8')) as {
  readonly hash: string;
  readonly settings: PlainObject;
};

describe('a recorded run', () => {
  // A field that is added to the schema must be left out of the hash at its default (`unhashed`): otherwise no recorded run is
  // found again as the parent of another, or as a finished cell of a sweep.
  it('has the hash that it was recorded with, whatever the schema has learned since', () => {
    expect(recorded.settings['optimizer']).not.toHaveProperty('decay_steps');
    const settings = recordedSettings(recorded.settings);
    expect(settings).toHaveProperty('optimizer.decay_steps');
    expect(resultHash(settings)).toBe(recorded.hash);
  });
});
