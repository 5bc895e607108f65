/** Runs that were recorded before a reward's rule changed keep the rule, and the hash, that they were recorded with. */
import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { diffSettings, resultHash } from '../../src/config/hash.js';
import { validate } from '../../src/config/validate.js';
import { createReward } from '../../src/rewards/score/combined.js';
import { decidingTerms } from '../../src/rewards/score/choice.js';
import type { RewardSettings } from '../../src/rewards/schema/reward.js';
import { recipeNamed, rewardOf } from '../../src/recipes/settings.js';
import type { PlainObject } from '../../src/run/record.js';
import { recordedSettings } from '../../src/run/recorded_config.js';
import type { RunSettings } from '../../src/schema/run.js';
import { must } from '../../src/core/errors.js';
import { wholeItem } from '../rewards/terms/term_contract.js';
import { testServices } from '../rewards/terms/term_services.js';

/** Settings as a run.json of version 0.1.0 holds them, with the hashes that stood beside them. */
const recorded = JSON.parse(
  readFileSync(new URL('fixtures/recorded_rewards.json', import.meta.url), 'utf8'),
) as Readonly<Record<string, { readonly hash: string; readonly settings: PlainObject }>>;

const names = Object.keys(recorded);

function rewardThen(name: string): RewardSettings {
  return must(rewardOf(recordedSettings(recorded[name].settings)), 'a reward');
}

/** The same file loaded today. */
function today(name: string): RunSettings {
  const validated = validate(recorded[name].settings);
  if ('problems' in validated) throw new Error(JSON.stringify(validated.problems));
  expect(recipeNamed(validated.settings.task)).toBeDefined();
  return validated.settings;
}

const fieldsOf = (reward: RewardSettings): unknown => decidingTerms(reward)[0].fields;

describe('a run that was recorded before its reward had another rule', () => {
  it.each(names)('keeps its hash: %s', (name) => {
    expect(resultHash(recordedSettings(recorded[name].settings))).toBe(recorded[name].hash);
    expect(resultHash(today(name))).not.toBe(recorded[name].hash);
  });

  it.each([
    ['words_mode', ['reward.defaults']],
    ['words_terms', ['reward.terms.0.answer', 'reward.terms.0.actions']],
    ['clip_terms', ['reward.terms.0.scale']],
    ['similar_terms', ['reward.terms.0.of']],
  ])('differs from what its config says today in the rule alone: %s', (name, keys) => {
    const changes = diffSettings(recordedSettings(recorded[name].settings), today(name));
    expect(changes.map(({ key }) => key)).toEqual(keys);
  });

  it.each(['words_mode', 'words_terms'])('reads the items of the last answer: %s', async (name) => {
    expect(fieldsOf(rewardThen(name))).toMatchObject({ answer: 'last', actions: 'items' });
    expect(fieldsOf(must(rewardOf(today(name)), 'a reward'))).toMatchObject({ answer: 'first', actions: 'numbers' });
    const scores = async (reward: RewardSettings, answer: string): Promise<unknown> => {
      const made = await createReward(reward, testServices());
      return made.score(wholeItem({ answer, expected: '(1) a (3) b', source: null, edited: null, truth: null }));
    };
    const said = '<think>a</think> <answer>(1) tighten, (3)</answer>';
    // As that version gave it: 0.3 + 0.7 / 2.
    expect(await scores(rewardThen(name), said)).toMatchObject({ kind: 'scored', value: 0.3 + 0.7 * 0.5 });
    expect(await scores(must(rewardOf(today(name)), 'a reward'), said)).toMatchObject({ kind: 'scored', value: 1 });
    const twice = '<think>a</think> <answer>(2)</answer> no <answer>(1) a (3) b</answer>';
    expect(await scores(rewardThen(name), twice)).toMatchObject({ kind: 'scored', value: 1 });
    expect(await scores(must(rewardOf(today(name)), 'a reward'), twice)).toMatchObject({ kind: 'scored', value: 0.3 });
  });
});

describe('a run that was recorded before CLIP had scales', () => {
  it('keeps CLIPScore', async () => {
    const { clipScales } = await import('../../src/rewards/terms/clip.js');
    const { scale } = fieldsOf(rewardThen('clip_terms')) as { readonly scale: keyof typeof clipScales };
    expect(scale).toBe('clipscore');
    // As that version gave them: max(cosine, 0), and min(1, 2.5 max(cosine, 0)).
    for (const cosine of [-0.2, 0, 0.123456789, 0.4, 0.45]) {
      expect(clipScales[scale](cosine)).toMatchObject({
        value: Math.max(cosine, 0),
        normalised: Math.min(1, 2.5 * Math.max(cosine, 0)),
      });
    }
    expect(fieldsOf(must(rewardOf(today('clip_terms')), 'a reward'))).toMatchObject({ scale: 'half' });
  });
});

describe('a run that was recorded before image_similarity told changed pixels apart', () => {
  it('compares all pixels, also by name', () => {
    for (const name of ['similar_mode', 'similar_terms']) {
      expect(fieldsOf(rewardThen(name))).toEqual({ to: 'source', of: 'all' });
      expect(fieldsOf(must(rewardOf(today(name)), 'a reward'))).toEqual({ to: 'source', of: null });
    }
  });
});

describe('a recorded run whose rewards have one rule', () => {
  it('is what its config says today, whichever defaults are named', () => {
    const settings = {
      ...recorded.similar_mode.settings,
      reward: { ...(recorded.similar_mode.settings['reward'] as object), mode: 'viescore' },
    };
    const validated = validate(settings);
    if ('problems' in validated) throw new Error(JSON.stringify(validated.problems));
    expect(diffSettings(recordedSettings(settings), validated.settings)).toEqual([]);
  });
});
