import { describe, expect, it } from 'vitest';
import { recipeOf } from '../../../src/recipes/settings.js';
import { problemsOf, smallSettings } from './small.js';

describe('rewritten prompts', () => {
  it('are judged by the picture, by what needs no source and no label', () => {
    expect(problemsOf({ reward: { terms: [{ name: 'viescore', weight: 1 }], endpoint: 'embedded' } })).toEqual([
      expect.stringMatching(
        /^reward\.terms: 'viescore' compares with a source or a labelled picture, and task 'prompt_enhance' has none/,
      ),
    ]);
    for (const name of ['jpeg_size', 'align_quality']) {
      expect(problemsOf({ reward: { terms: [{ name, weight: 1 }], endpoint: 'embedded' } })).toEqual([]);
    }
  });

  it("need the user's own words in the rows, whatever a template reads", () => {
    const settings = smallSettings({ prompt: { template: '{words} is' }, data: { train: [{ path: 'a.jsonl' }] } });
    const rows = recipeOf(settings)
      .needs(settings, () => null)
      .filter(({ kind }) => kind === 'rows');
    expect(rows).toEqual([{ kind: 'rows', path: 'a.jsonl', columns: ['words', 'prompt'] }]);
  });

  it('need the policy, the image model, its parts and CLIP', () => {
    const settings = smallSettings({ environment: { parts: { vae: 'v', text_encoder: 't' } } });
    const recipe = recipeOf(settings);
    expect(recipe.needs(settings, () => null)).toEqual([
      { kind: 'flow_part', part: 'vae', folder: 'v' },
      { kind: 'flow_part', part: 'text_encoder', folder: 't' },
      { kind: 'frozen_flow', folder: 'painter', guidance: null, family: 'tiny' },
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
