import { describe, expect, it } from 'vitest';
import { editResponse } from '../../../src/recipes/edit_response/settings.js';
import { problemsOf, smallSettings } from './small.js';

describe('settings of edit_response', () => {
  it.each([
    [{ environment: null }, /^environment: found null with algorithm\.type 'grpo'; allowed: \{type: 'model'/],
    [
      { policy: { trainer: { type: 'tinker', base_model: 'qwen' } } },
      /^policy\.trainer\.type: found 'tinker', whose servers return no hidden states/,
    ],
    [{ environment: { told: 'instruction' } }, /^environment\.told: found 'instruction' with algorithm\.type 'grpo'/],
    [
      {
        environment: {
          ...{ type: 'render_server', base_url: 'http://127.0.0.1:1', served_model: 'an-editor' },
          ...{ model: undefined, num_steps: undefined, told: 'instruction' },
        },
      },
      /^environment\.told: found 'instruction' with algorithm\.type 'grpo'/,
    ],
    [
      {
        environment: {
          ...{ type: 'images_api_text_prompt', base_url: 'http://127.0.0.1:1', served_model: 'an-editor' },
          ...{ model: undefined, num_steps: undefined, extra: { quality: { low: null } } },
        },
      },
      /^environment\.extra: found .*; allowed: form fields without null/,
    ],
    [{ environment: { read_by: 'start' } }, /^environment\.read_by: found 'start' with policy\.model null/],
    [
      { environment: { guidance_scale: 1 } },
      /^environment\.guidance_scale: found 1; allowed: a number above 1, or null/,
    ],
    [{ environment: { model_type: 'other' } }, /^environment\.model_type: found "other"; allowed: tiny, flux or qwen/],
    [{ prompt: { chat: false, system: 'Be brief.' } }, /^prompt\.system: found with prompt\.chat false/],
    [{ data: { tiny: null } }, /^policy\.tokenizer: found null with policy\.init/],
  ])('%j is rejected', (changes, message) => {
    const problems = problemsOf(changes);
    expect(problems).toHaveLength(1);
    expect(problems[0]).toMatch(message);
  });

  it('say which server draws, and count nothing for it', () => {
    const base_url = 'http://127.0.0.1:8091';
    const served = (environment: object) =>
      editResponse.images(smallSettings({ environment: { model: undefined, num_steps: undefined, ...environment } }));
    expect(editResponse.images(smallSettings())).toBeNull();
    expect(served({ type: 'images_api_text_prompt', base_url, served_model: 'an-editor' })).toMatchObject({
      kind: 'images_api',
      settings: { served_model: 'an-editor', size: '1024x1024' },
    });
    const render = { type: 'render_server', base_url, served_model: 'an-editor' };
    expect(served(render)).toMatchObject({ kind: 'render_server', width: 16 });
    const settings = smallSettings({ environment: { model: undefined, num_steps: undefined, ...render } });
    expect(editResponse.imageMemory(settings, () => null)).toBe(0);
  });

  it('count the model that draws', () => {
    const shape = {
      kind: 'flow',
      width: 96,
      heads: 4,
      layers: 2,
      singleLayers: 0,
      textWidth: 16,
      patch: 4,
      imagePrompt: null,
      conditionDropout: null,
    } as const;
    const settings = smallSettings();
    const without = editResponse.memory(settings, () => null)!;
    expect(editResponse.imageMemory(settings, () => shape)).toBeGreaterThan(4 * 2 * 12 * 96 ** 2);
    expect(editResponse.memory(settings, () => shape)! - without).toBe(editResponse.imageMemory(settings, () => shape));
    // The tokens of the edit with the most of them: its own and those of all images before it, each within its limit.
    const rows = [
      [{ width: 64, height: 64 }],
      [
        { width: 32, height: 32 },
        { width: 32, height: 64 },
        { width: 64, height: 128 },
      ],
      [null],
    ];
    const of = (model: object, max_pixels: number | null, lists = rows): number => {
      const { environment, data } = smallSettings();
      const given = { ...settings, data: { ...data, train: [{ path: 'rows.jsonl', media: null, coefficient: null }] } };
      const sizes = {
        largest: () => null,
        shown: ({ path }: { path: string }) => (path === 'rows.jsonl' ? lists : []),
      };
      const limited = { ...environment, type: 'model', max_pixels, pictures_at_once: 3 };
      const drawn = { ...given, environment: limited } as unknown as typeof settings;
      const shapeOf = () => ({ ...shape, ...model });
      const all = editResponse.imageMemory(drawn, shapeOf, sizes) - editResponse.imageMemory(drawn, shapeOf);
      expect(editResponse.memory(drawn, shapeOf, sizes)! - editResponse.memory(drawn, shapeOf)!).toBeCloseTo(all, 3);
      return all;
    };
    const bytes = (tokens: number): number => 4 * 3 * tokens * (32 * 96 + 4 * tokens);
    const [one, two, three] = [32 * 32, 32 * 64, 64 * 128].map((pixels) => pixels / 16);
    expect(of({}, null, [rows[1]])).toBe(bytes(one + one + two + three));
    expect(of({}, 2048, [rows[1]])).toBe(bytes(one + one + 2 * two));
    expect(of({ mediaBeside: true }, null, [rows[0], rows[1]])).toBe(bytes((64 * 64) / 16));
    expect(of({}, null)).toBe(bytes(2 * 1024));
    expect(of({}, null, [])).toBe(0);
  });
});
