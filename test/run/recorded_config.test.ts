import { readFileSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { diffSettings } from '../../src/config/hash.js';
import { validate } from '../../src/config/validate.js';
import { recipes } from '../../src/recipes/settings.js';
import { saveCheckpoint } from '../../src/run/checkpoints.js';
import { claimRun, type RunHandle } from '../../src/run/claim.js';
import { changedFrom, claimRequest } from '../../src/run/claim_request.js';
import { RunPaths } from '../../src/run/paths.js';
import { writeRecord, type PlainObject } from '../../src/run/record.js';
import { recordedConfig, recordedSettings } from '../../src/run/recorded_config.js';
import { result, section } from '../../src/schema/mark.js';
import type { RunSettings } from '../../src/schema/run.js';
import { testFolder } from '../support/folder.js';

/** The settings of a run of `sft_s__rl_s` as its run.json holds them, with the hash that was recorded beside them. */
const recorded = JSON.parse(readFileSync(new URL('fixtures/recorded_run.json', import.meta.url), 'utf8')) as {
  readonly hash: string;
  readonly settings: PlainObject;
};

/** The same as a config of today says it, which names the forms that were the only ones then. */
function saidToday(settings: PlainObject): PlainObject {
  const forms = { image_header: 'forced', end_after_image: false, chat_words: true };
  return { ...settings, policy: { ...(settings['policy'] as object), ...forms } };
}

/** The recorded settings with some fields of their sections changed. */
function recordedWith(changes: Readonly<Record<string, object>>): PlainObject {
  const sections = Object.entries(changes).map(([key, change]) => [
    key,
    { ...(recorded.settings[key] as object), ...change },
  ]);
  return { ...recorded.settings, ...(Object.fromEntries(sections) as object) };
}

describe('a run that kept moving averages before they were evaluated', () => {
  it('goes on with its current weights, and is not what a config of today means', () => {
    const averaging = recordedWith({ optimizer: { ema_decay: 0.9 } });
    expect(recordedSettings(averaging)).toHaveProperty('validation.weights', 'current');
    expect(recordedSettings(recorded.settings)).toHaveProperty('validation.weights', null);
    const today = (weights: string | null): RunSettings => {
      const validated = validate({
        ...saidToday(averaging),
        validation: { ...(averaging['validation'] as object), weights },
      });
      if ('problems' in validated) throw new Error(JSON.stringify(validated.problems));
      return validated.settings;
    };
    const changed = (weights: string | null): string[] =>
      diffSettings(recordedSettings(averaging), today(weights)).map(({ key }) => key);
    expect(changed('current')).toEqual([]);
    expect(changed(null)).toEqual(['validation.weights']);
  });
});

describe('a record of before a field was there', () => {
  const base = testFolder('before');
  const recipe = recipes.image_edit_tokens as { schema: z.ZodObject };
  const known = recipe.schema;
  const later = z.strictObject({
    form: result('Today another form than the one that there was.', z.enum(['today', 'before']).default('today'), {
      absent: 'before',
    }),
    weights: result('Which weights, where there are two sorts.', z.enum(['current', 'average']).default('average'), {
      absent: 'current',
      idle: (settings) => settings('optimizer.ema_decay') === null,
    }),
    steps: result('As many as there were iterations.', z.int().default(1), {
      absent: (record) => record('num_iterations'),
    }),
  });
  beforeAll(() => {
    recipe.schema = known.extend({ later: section('Added since.', later.prefault({})) });
  });
  afterAll(() => {
    recipe.schema = known;
  });

  /** Settings as a config of today gives them. */
  const configured = (settings: PlainObject): RunSettings => {
    const validated = validate(saidToday(settings));
    if ('problems' in validated) throw new Error(JSON.stringify(validated.problems));
    return validated.settings;
  };

  it('is read as what it was, and not by the defaults of today', () => {
    expect(recordedSettings(recorded.settings)).toMatchObject({
      later: { form: 'before', weights: 'current', steps: 80 },
    });
  });

  it('goes on with the form of its sequences, which a config of today may change', () => {
    const before = recordedSettings(recorded.settings);
    expect(before).toHaveProperty('policy.engine.padding', 'computed');
    const today = configured({ ...recorded.settings, later: { form: 'before', weights: 'current', steps: 80 } });
    expect(today).toHaveProperty('policy.engine.padding', 'left_out');
    expect(diffSettings(before, today)).toEqual([]);
  });

  it('equals settings that say the same, and differs from those of today', () => {
    const before = recordedSettings(recorded.settings);
    const keys = (later: PlainObject): string[] =>
      diffSettings(before, configured({ ...recorded.settings, later })).map(({ key }) => key);
    expect(keys({ form: 'before', weights: 'current', steps: 80 })).toEqual([]);
    expect(keys({ steps: 80 })).toEqual(['later.form']);
    expect(keys({ form: 'before' })).toEqual(['later.steps']);
  });

  it('differs in what is idle only where it is not', () => {
    const averaging = { optimizer: { ...(recorded.settings['optimizer'] as object), ema_decay: 0.9 } };
    const diff = (settings: PlainObject, weights: string): unknown =>
      diffSettings(
        recordedSettings(settings),
        configured({ ...settings, later: { form: 'before', weights, steps: 80 } }),
      ).filter(({ key }) => key.startsWith('later.'));
    expect(diff(recorded.settings, 'average')).toEqual([]);
    expect(diff({ ...recorded.settings, ...averaging }, 'average')).toEqual([
      { key: 'later.weights', before: 'current', after: 'average' },
    ]);
    expect(diff({ ...recorded.settings, ...averaging }, 'current')).toEqual([]);
  });

  it('is claimed with equal settings, keeps its hash, and is found unchanged by those that start from it', () => {
    const paths = new RunPaths(base, 'claimed');
    const record = {
      format: 1 as const,
      run_name: 'claimed',
      hash: recorded.hash,
      import_hash: 'imports',
      settings: { ...recorded.settings, run_name: 'claimed', base_exp_dir: base },
      parents: [],
      created_at: '2026-01-01T00:00:00.000Z',
      attempts: [],
    };
    writeRecord(paths, record);
    saveCheckpoint(paths, 1, { 'trainer.json': '1' });
    const config = recordedConfig(paths, record);
    // The field whose meaning a function gives is in every hash: that of the same settings is another one today.
    expect(config.resultHash).not.toBe(recorded.hash);
    expect(changedFrom(record, config)).toEqual([]);
    const claim = (...sets: string[]): RunHandle => {
      const changed = recordedConfig(paths, record, { sets });
      const handle = claimRun(claimRequest(changed, { command: [], versions: {} }));
      handle.release();
      return handle;
    };
    expect(claim()).toMatchObject({ kind: 'resumed', notes: [], record: { hash: recorded.hash } });
    expect(claim()).toMatchObject({ record: { hash: recorded.hash, settings: { later: { form: 'before' } } } });
    expect(() => claim('later.form=today')).toThrow('later.form: "before" -> "today"');
  });
});
