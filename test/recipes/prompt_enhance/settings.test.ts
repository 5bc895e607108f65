import { describe, expect, it } from 'vitest';
import { openRecipeOf } from '../../../src/recipes/open.js';
import { recipeOf } from '../../../src/recipes/settings.js';
import { problemsOf, smallSettings } from './small.js';

describe('rewritten prompts', () => {
  it('are judged by the image, by what needs no source and no label', () => {
    expect(problemsOf({ reward: { terms: [{ name: 'viescore', weight: 1 }], endpoint: 'embedded' } })).toEqual([
      expect.stringMatching(
        /^reward\.terms: 'viescore' compares with a source or a labeled image, and task 'prompt_enhance' has neither/,
      ),
    ]);
    for (const name of ['jpeg_size', 'align_quality']) {
      expect(problemsOf({ reward: { terms: [{ name, weight: 1 }], endpoint: 'embedded' } })).toEqual([]);
    }
  });

  it("need the user's own words in the rows, whatever a template reads", () => {
    const settings = smallSettings({ prompt: { template: '{words} is' }, data: { train: [{ path: 'a.jsonl' }] } });
    const names = openRecipeOf(settings)
      .checks(settings, () => null)
      .map(({ name }) => name);
    expect(names).toContain('rows ["a.jsonl",["words","prompt"]]');
  });

  it('need the policy, the image model, its parts and CLIP', () => {
    const settings = smallSettings({ environment: { parts: { vae: 'v', text_encoder: 't' } } });
    const recipe = recipeOf(settings);
    const checks = openRecipeOf(settings).checks(settings, () => null);
    expect(checks.map(({ name }) => name)).toEqual([
      'flow part ["vae","v"]',
      'flow part ["text_encoder","t"]',
      'frozen flow ["painter",null,"tiny"]',
    ]);
    const flow = {
      kind: 'flow',
      width: 96,
      heads: 4,
      layers: 3,
      singleLayers: 0,
      textWidth: 40,
      patch: 4,
      imagePrompt: null,
      conditionDropout: null,
    } as const;
    const without = recipe.memory(settings, () => null)!;
    expect(recipe.memory(settings, () => flow)! - without).toBeGreaterThan(4 * 96 ** 2 * 3);
  });
});
