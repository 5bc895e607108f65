import { describe, expect, it } from 'vitest';
import { SYSTEM_PROMPT } from '../../../src/recipes/prompt_enhance/settings.js';
import { recipeOf } from '../../../src/recipes/settings.js';
import { problemsOf, smallSettings } from './small.js';

describe('rewritten prompts', () => {
  it('have at most 100 tokens, sampled at 0.7, asked for by a system message, where nothing else is said', () => {
    const settings = smallSettings({ prompt: { chat: true, system: undefined }, policy: { init: null, model: 'm' } });
    expect(settings.rollout).toMatchObject({ max_response_tokens: 100, temperature: 0.7, same_latent: true });
    expect(settings.validation.temperature).toBe(0.7);
    expect(settings.prompt.system).toBe(SYSTEM_PROMPT);
  });

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

  it('are never rewarded for their form', () => {
    const terms = [
      { name: 'clip', weight: 0.5, model: 'clip' },
      { name: 'prompt_quality', weight: 0.5 },
    ];
    const message =
      "found 'prompt_quality', which is recorded and never learnt from; allowed: in reward.also_compute and validation.measure";
    expect(problemsOf({ reward: { terms } })).toEqual([`reward.terms: ${message}`]);
    expect(problemsOf({ reward: { terms: [], mode: 'prompt_quality' } })).toEqual([`reward.mode: ${message}`]);
    expect(problemsOf({ reward: { also_compute: ['prompt_quality'] } })).toEqual([]);
  });

  it("need the user's own words in the rows, whatever a template reads", () => {
    const settings = smallSettings({ prompt: { template: '{words} is' }, data: { train: [{ path: 'a.jsonl' }] } });
    const rows = recipeOf(settings)
      .needs(settings, () => null)
      .filter(({ kind }) => kind === 'rows');
    expect(rows).toEqual([{ kind: 'rows', path: 'a.jsonl', columns: ['words', 'prompt'] }]);
  });

  it('are made pictures by a kind of image model that there is', () => {
    expect(problemsOf({ environment: { type: 'camera' } })).toEqual([expect.stringMatching(/^environment\.type: /)]);
  });

  it('are asked of a server with no other prompt, seed, number, size or model than the run says', () => {
    const server = { type: 'images_api', base_url: 'http://127.0.0.1:9', served_model: 'm' };
    const problems = (extra: object): string[] =>
      problemsOf({ environment: { ...server, extra } }).filter((one) => one.startsWith('environment.extra'));
    expect(problems({ quality: 'low' })).toEqual([]);
    for (const name of ['prompt', 'seed', 'n', 'size', 'model']) {
      expect(problems({ [name]: 1 })).toEqual([
        expect.stringMatching(/^environment\.extra: .*fields that a request does not hold by itself/),
      ]);
    }
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
