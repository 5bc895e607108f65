import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { diffSettings } from '../../src/config/hash.js';
import { jsonSchema } from '../../src/config/json_schema.js';
import { cannotRunYet, dependencies, hubModels } from '../../src/config/models.js';
import { imageEditTokens, type ImageEditSettings } from '../../src/recipes/image_edit_tokens/settings.js';
import { knownPaths, leaves } from '../../src/core/schema/walk.js';
import { validate } from '../../src/config/validate.js';
import { EditrlError } from '../../src/core/errors.js';
import { fieldsWithoutDefault } from '../../src/rewards/score/choice.js';
import { termKinds, termNames } from '../../src/rewards/terms/table.js';
import type { TermKind } from '../../src/rewards/terms/term.js';
import { testFolder } from '../support/folder.js';
import { expectLines, loadEvaluated } from './evaluated.js';
import { editSettings } from './trained.js';

const base = { file: 'configs/sft_s__rl_s.jsonnet', overlays: ['configs/lib/tiny.libsonnet'], env: {} };
const { schema } = imageEditTokens;

async function load(...sets: string[]): Promise<{ settings: ImageEditSettings; resultHash: string }> {
  const { settings, resultHash } = await loadEvaluated({ ...base, sets });
  return { settings: editSettings(settings), resultHash };
}

/** The problems of a config, without its file. */
async function problemsOf(...sets: string[]): Promise<string> {
  try {
    await load(...sets);
  } catch (error) {
    if (!(error instanceof EditrlError) || error.exitCode !== 2) throw error;
    return error.message;
  }
  return 'loads';
}

const two = 'reward.terms=[{"name":"jpeg_size","weight":0.25,"max_kb":9},{"name":"viescore","weight":0.75}]';

it.each<[string, string[], object]>([
  ['a name', ['validation.measure=image_similarity'], { to: 'truth', of: 'all' }],
  ['a list', ['validation.measure=["image_similarity"]'], { to: 'truth', of: 'all' }],
  [
    'fields of its own',
    ['validation.measure=[{"name": "image_similarity", "of": "changed"}]'],
    { to: 'truth', of: 'changed' },
  ],
])('gives a measure by %s the fields of the term of that name', async (_form, sets, fields) => {
  const terms = [
    { name: 'viescore', weight: 0.5 },
    { name: 'image_similarity', to: 'truth', of: 'all', weight: 0.5 },
  ];
  const { settings } = await load(`reward.terms=${JSON.stringify(terms)}`, 'reward.mode=null', ...sets);
  expect(settings).toMatchObject({ validation: { measure: [{ name: 'image_similarity', ...fields }] } });
});

it('leaves what a config is measured by as it is where the tiny overlay comes after', async () => {
  const own = join(testFolder('measured'), 'measured.libsonnet');
  writeFileSync(own, "{ validation+: { measure: ['ground_score'], temperature: 0.5 } }");
  const { settings } = await loadEvaluated({ ...base, overlays: [own, ...base.overlays], sets: [] });
  expect(editSettings(settings).validation).toMatchObject({
    measure: [{ name: 'ground_score' }],
    temperature: 0.5,
    every_n_iterations: 40,
  });
});

describe('reward.mode', () => {
  it.each(['sqrt(viescore_pq*ground_score)', 'sqrt(viescore_pq x ground_score)', 'sqrt( viescore_pq * ground_score )'])(
    'may be written %s, also in a term and in also_compute',
    async (written) => {
      const name = 'sqrt(viescore_pqxground_score)';
      expect((await load(`reward.mode=${written}`)).settings.reward.mode).toBe(name);
      const terms = JSON.stringify([{ name: written, weight: 1 }]);
      const also = JSON.stringify([written]);
      const { reward } = (await load(`reward.terms=${terms}`, `reward.also_compute=${also}`)).settings;
      expect([reward.terms[0].name, reward.also_compute]).toEqual([name, [name]]);
    },
  );

  it('may be any term that needs no fields', async () => {
    const { settings } = await load();
    const found = termNames.map((mode) => {
      const validated = validate({ ...settings, reward: { ...settings.reward, mode } });
      return [mode, 'problems' in validated ? validated.problems.map(({ message }) => message) : []];
    });
    const expected = termNames.map((name) => {
      const fields = fieldsWithoutDefault(name);
      const kind: TermKind = termKinds[name];
      const beyond = expect.stringContaining(
        `found 'embedded', but '${name}' asks in the words of a prompt file`,
      ) as string;
      if (fields.length > 0) {
        const lacking = expect.stringContaining(`which needs ${fields.join(', ')}; write it as`) as string;
        return [name, [lacking, ...(kind.asksModel === true ? [beyond] : [])]];
      }
      if (name === 'prompt_quality') return [name, [expect.stringContaining('only recorded, never learned from')]];
      if (name === 'answer_judge') return [name, [expect.stringContaining("found 'embedded', but 'answer_judge'")]];
      return [
        name,
        ['format_accuracy', 'word_sequence', 'exact_words', 'word_overlap'].includes(name)
          ? [expect.stringContaining('labeled answer in words')]
          : [],
      ];
    });
    expect(found).toEqual(expected);
  });

  it('compares with no words where the data sets hold none', async () => {
    await expectLines(
      problemsOf('reward.mode=format_accuracy'),
      "reward.mode: 'format_accuracy' compares with a labeled",
    );
  });
});

describe('reward.terms', () => {
  it('are defaulted, and stand instead of a mode', async () => {
    expect((await load(two)).settings.reward).toMatchObject({
      mode: null,
      terms: [
        { name: 'jpeg_size', weight: 0.25, max_kb: 9, quality: 95 },
        { name: 'viescore', weight: 0.75 },
      ],
    });
  });

  it('decide the result, field by field', async () => {
    const before = await load(two);
    const after = await load(two.replace('9', '10'));
    expect(after.resultHash).not.toBe(before.resultHash);
    expect(diffSettings(before.settings, after.settings)).toEqual([
      { key: 'reward.terms.0.max_kb', before: 9, after: 10 },
    ]);
    expect((await load(two.replace('"max_kb":9', '"quality":95,"max_kb":9'))).resultHash).toBe(before.resultHash);
    expect((await load('reward.terms=[]', 'reward.mode=viescore')).resultHash).toBe((await load()).resultHash);
  });

  it('may be added to what scores a supervised run, and taken away', async () => {
    const scored = async (terms: string) =>
      (await loadEvaluated({ ...base, file: 'configs/sft_s.jsonnet', sets: [terms] })).settings;
    const [one, more] = [await scored('reward.terms=[{"name":"jpeg_size","weight":1}]'), await scored(two)];
    expect(diffSettings(one, more)).toEqual([]);
    expect(diffSettings(more, one)).toEqual([]);
  });

  it('are known to the schema, with their marks', async () => {
    const { settings } = await load(two);
    const found = leaves(schema, settings).filter(({ path }) => path.startsWith('reward.terms'));
    expect(found.map(({ path, value, effect }) => [path, value, effect])).toEqual([
      ['reward.terms.0.name', 'jpeg_size', 'result'],
      ['reward.terms.0.weight', 0.25, 'result'],
      ['reward.terms.0.quality', 95, 'result'],
      ['reward.terms.0.max_kb', 9, 'result'],
      ['reward.terms.1.name', 'viescore', 'result'],
      ['reward.terms.1.weight', 0.75, 'result'],
    ]);
    expect([...knownPaths(schema)]).toEqual(expect.arrayContaining(['reward.terms[].weight', 'reward.terms[].max_kb']));
    const variants = JSON.stringify(jsonSchema());
    for (const name of termNames) expect(variants).toContain(`"const":${JSON.stringify(name)}`);
  });

  it('need a judge only where one of them asks it', async () => {
    const none = 'reward.endpoint=';
    expect(await problemsOf(none, 'reward.mode=jpeg_size')).toBe('loads');
    expect(await problemsOf(none, 'reward.terms=[{"name":"jpeg_size","weight":1}]')).toBe('loads');
    await expectLines(
      problemsOf(none, 'reward.mode=jpeg_size', 'reward.also_compute=["viescore"]'),
      "reward.endpoint: empty, but reward 'viescore' needs a",
    );
    await expectLines(problemsOf(none, two), "reward.endpoint: empty, but reward 'viescore' needs a");
  });
});

describe('the judge\u2019s address', () => {
  it('may be a list of equal judges', async () => {
    const { reward } = (await load('reward.endpoint=["http://a:1","http://b:2/v1/"]')).settings;
    expect(reward.endpoint).toEqual(['http://a:1/v1', 'http://b:2/v1']);
    await expectLines(
      problemsOf('reward.endpoint=["http://a:1","embedded","b:2"]'),
      "reward.endpoint: found 'embedded', 'b:2'; allowed: an",
    );
  });
});

describe('the model of a term', () => {
  const withModel = (model: object) =>
    load(`reward.terms=${JSON.stringify([{ name: 'clip', weight: 1, model }])}`).then(({ settings }) => settings);

  it('may be a run, which is then made first', async () => {
    const own = dependencies((await load()).settings);
    const clip = { run: 'tiny_clip', config: 'tiny_clip.jsonnet' };
    expect(dependencies(await withModel(clip))).toEqual([...own, clip]);
  });

  it('may be on the Hub, from where it is fetched like any other', async () => {
    const found = await withModel({ hub: 'some/clip', revision: 'v2' });
    expect(cannotRunYet(found)).toEqual([]);
    const reference = { hub: 'some/clip', revision: 'v2' };
    expect(hubModels(found)).toEqual([{ key: 'reward.terms, clip', reference, tokenizerOnly: false }]);
    const usual = { hub: 'openai/clip-vit-base-patch32', revision: 'main' };
    const { settings } = await load('reward.mode=clip');
    expect(hubModels(settings)).toEqual([{ key: 'reward.mode, clip', reference: usual, tokenizerOnly: false }]);
  });
});

describe('a reward that cannot be', () => {
  it('is a mode and terms at once, or neither', async () => {
    await expectLines(
      problemsOf('reward.mode=viescore', two),
      "reward.terms: found together with reward.mode 'viescore';",
    );
    await expectLines(problemsOf('reward.mode=null'), 'reward.mode: found null without reward.terms; allowed: a');
    expect(await problemsOf('reward.mode=null', 'reward.terms=[]')).toContain('reward.mode: found null');
    expect(await problemsOf('reward.terms=[]')).toBe('loads');
  });

  it('has weights that do not sum to 1', async () => {
    const weighted = (a: number, b: number): Promise<string> =>
      problemsOf(`reward.terms=[{"name":"jpeg_size","weight":${a}},{"name":"viescore","weight":${b}}]`);
    await expectLines(weighted(0.3, 0.6), 'reward.terms: the weights sum to 0.9 (0.3 + 0.6)');
    expect(await weighted(0.1 + 0.2, 0.7)).toBe('loads');
    await expectLines(weighted(0, 1), 'reward.terms.0.weight: found 0; allowed: a number > 0');
    await expectLines(
      problemsOf('reward.terms=[{"name":"viescore","weight":0.5}]'),
      'reward.terms: the weights sum to 0.5; allowed: a sum of 1',
    );
    await expectLines(
      problemsOf('reward.terms=[{"name":"viescore"}]'),
      'reward.terms.0.weight: missing; allowed: a number',
    );
  });

  it('has a term twice', async () => {
    const terms = '[{"name":"viescore","weight":0.5},{"name":"viescore","weight":0.5}]';
    await expectLines(
      problemsOf(`reward.terms=${terms}`),
      "reward.terms.1.name: found 'viescore' again, after reward.terms.0",
    );
  });

  it('has an unknown term, or an unknown field', async () => {
    const found = await problemsOf('reward.terms=[{"name":"jpeg_sise","weight":1}]');
    expect(found).toContain('(--set) reward.terms.0.name: found "jpeg_sise"; allowed: viescore, ground_score');
    expect(found).toContain("did you mean 'jpeg_size'?");
    await expectLines(
      problemsOf('reward.terms=[{"name":"jpeg_size","weight":1,"max_kbs":3}]'),
      'reward.terms.0.max_kbs: unknown key; did you mean',
    );
    await expectLines(
      problemsOf('reward.terms=[{"name":"viescore","weight":1,"max_kb":3}]'),
      'reward.terms.0.max_kb: a key of reward.terms.0.name',
    );
    await expectLines(problemsOf('reward.max_kb=3'), 'reward.max_kb: unknown key here; did you mean');
    await expectLines(
      problemsOf('reward.terms={"name":"viescore","weight":1}'),
      'reward.terms: found {"name":"viescore","weight":1};',
    );
  });

  it('has fields of a term that contradict each other', async () => {
    const term = '{"name":"format_accuracy","weight":1,"format_weight":0.5}';
    await expectLines(
      problemsOf(`reward.terms=[${term}]`),
      'reward.terms.0.format_weight: found 0.5 + 0.7 = 1.2 with',
      "reward.terms: 'format_accuracy' compares with a labeled",
    );
  });
});
