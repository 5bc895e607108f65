import { readdirSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import type { LoadedConfig } from '../../../src/config/load.js';
import { Preflight } from '../../../src/launch/preflight/preflight.js';
import { RewardTrials, rowsToScore, termsOf, tryTerm } from '../../../src/launch/reward/trial.js';
import { isTrainable } from '../../../src/config/recipes.js';
import { rewardOf } from '../../../src/recipes/settings.js';
import { EndpointError, InternalError, must } from '../../../src/core/errors.js';
import { loadEvaluated } from '../../config/evaluated.js';
import { openAiError, scoresText, startStubJudge, stubModel } from '../../rewards/judge/stub_judge.js';
import { testFolders } from '../../support/folder.js';

const overlays = ['configs/lib/text_tiny.libsonnet'];
const newFolder = testFolders('reward-trial');

const ROWS = [
  { prompt: 'one and one', answer: 'two' },
  { prompt: 'two and two', answer: 'four' },
];

const placedIn = (folder: string): NodeJS.ProcessEnv => ({
  ...process.env,
  APP__BASE_EXP_DIR: join(folder, 'runs'),
  APP__DATA_DIR: join(folder, 'data'),
});

/** A run of words over rows of its own, rewarded by modules with these texts. */
async function runOf(
  texts: readonly string[],
  { rows = ROWS, sets = [] }: { readonly rows?: readonly object[]; readonly sets?: readonly string[] } = {},
): Promise<LoadedConfig> {
  const folder = newFolder();
  writeFileSync(join(folder, 'rows.jsonl'), rows.map((row) => `${JSON.stringify(row)}\n`).join(''));
  const terms = texts.map((text, i) => {
    const module = join(folder, `term_${i}.mjs`);
    writeFileSync(module, text);
    return { name: 'module', weight: 1 / texts.length, module, timeout_s: 20 };
  });
  return loadEvaluated({
    file: 'configs/text_plain.jsonnet',
    overlays,
    sets: [
      'data.tiny=null',
      `data.train=[{"path":"${folder}/rows.jsonl"}]`,
      'data.validation=[]',
      'data.columns.expected=answer',
      'reward.mode=null',
      `reward.terms=${JSON.stringify(terms)}`,
      `base_exp_dir=${folder}/runs`,
      ...sets,
    ],
  });
}

async function found(runs: readonly LoadedConfig[]): Promise<string[]> {
  return (await new RewardTrials().of(runs)).map(({ error }) => error.toText());
}

it('is not tried on a row of several images where who is asked is shown one', async () => {
  const { settings } = await runOf(['export default () => 1;']);
  const reward = { ...must(rewardOf(settings), 'its reward'), mode: 'viescore' as const, terms: [] };
  const image = { width: 1, height: 1, data: Uint8Array.of(1, 2, 3) };
  const item = { instruction: 'x', source: image, truth: null };
  const rows = [
    { place: 'rows.jsonl:1', item, answers: [] },
    { place: 'rows.jsonl:2', item: { ...item, beside: [image] }, answers: [] },
  ];
  if (!isTrainable(settings)) throw new InternalError('a run that trains');
  const [viescore] = termsOf(reward);
  const tried = (of: typeof rows) => tryTerm(viescore, settings, reward, of, async () => null);
  await expect(tried(rows)).rejects.toThrow(
    expect.objectContaining({
      message: "the row has several source images; reward 'viescore' reads one",
      where: 'rows.jsonl:2',
    }),
  );
  expect(await tried(rows.slice(0, 1))).toMatchObject({ untried: 'its judge was not asked' });
});

it('asks a judge first whether it is shown as many images as a row has', async () => {
  const stub = await startStubJudge(({ images }) =>
    images.length > 3 ? openAiError(400, 'At most 3 image(s) may be provided in one prompt.') : scoresText(8, 6),
  );
  try {
    const { settings } = await runOf(['export default () => 1;']);
    const given = must(rewardOf(settings), 'its reward');
    const reward = { ...given, mode: 'align_quality' as const, model: stubModel, terms: [] };
    const image = { width: 32, height: 32, data: new Uint8Array(32 * 32 * 3) };
    const item = { instruction: 'x', source: image, truth: null };
    if (!isTrainable(settings)) throw new InternalError('a run that trains');
    const [term] = termsOf(reward);
    const tried = (further: number) =>
      tryTerm(
        term,
        settings,
        reward,
        [
          { place: 'rows.jsonl:1', item, answers: [] },
          { place: 'rows.jsonl:2', item: { ...item, beside: Array<typeof image>(further).fill(image) }, answers: [] },
        ],
        async () => ({ endpoint: stub.url, token: null }),
      );
    expect(await tried(1)).toMatchObject({ untried: null });
    expect(stub.requests.map(({ images }) => images.length)).toEqual([3]);
    await expect(tried(2)).rejects.toThrow('At most 3 image(s)');
  } finally {
    await stub.close();
  }
});

it('is in the way where its judge answers, but gives no answer a score', async () => {
  const replies = ['hm', '{"score": [7, 8]}'];
  for (const text of replies) {
    const stub = await startStubJudge(() => ({ kind: 'text', text }));
    try {
      const config = await runOf([], {
        sets: [
          'reward.terms=[{"name": "answer_judge", "weight": 1}]',
          `reward.endpoint=${stub.url}`,
          `reward.model=${stubModel}`,
        ],
      });
      const trials = new RewardTrials(async () => ({ endpoint: stub.url, token: null }));
      const [obstacle, ...others] = await trials.of([config]);
      expect(others).toEqual([]);
      expect(obstacle.error).toBeInstanceOf(EndpointError);
      expect(obstacle.error.message).toMatch(/answers tried got no score \(unparsable\)/);
      expect(obstacle.error.where).toBe('reward term answer_judge');
    } finally {
      await stub.close();
    }
  }
});

describe('a reward that is tried before a run', () => {
  it('is in order where every answer gets an outcome, an unscored one by the module itself among them', async () => {
    const fine =
      "export default ({ answer, expected }) => answer === '' ? { kind: 'unscored', reason: 'refused', detail: 'no' } : Number(answer === expected);";
    expect(await found([await runOf([fine])])).toEqual([]);
  });

  it('is rejected for what it returns: one message a term with term, row, what came back and what is allowed', async () => {
    const given = ['6', 'NaN', 'undefined', '{ kind: "best" }', '-0.1', 'Infinity', '() => 1'];
    const texts = [...given.map((value) => `export default () => (${value});`)];
    texts.push('export default () => { throw new TypeError("no such thing"); };');
    const messages = await found([await runOf(texts)]);
    expect(messages).toHaveLength(texts.length);
    const said = ['6', 'NaN', 'undefined', '{"kind":"best"}', '-0.1', 'Infinity'];
    for (const [i, value] of said.entries()) {
      expect(messages[i]).toContain(`reward term term_${i}: `);
      expect(messages[i]).toMatch(/rows\.jsonl:1, the labeled answer: term_\d gave /);
      expect(messages[i]).toContain(`gave ${value}; allowed: a number from 0 to 1, or an outcome`);
      expect(messages[i]).toContain('(the first of 6 of 6 answers tried)');
    }
    expect(messages[6]).toContain('term_6: returned a value that cannot be copied, such as a function');
    expect(messages[7]).toMatch(/term_7: TypeError: no such thing \(.*term_7\.mjs:1\)/);
  });

  it('cannot harm whoever tries it: a loop without an end, a process that is ended', async () => {
    const loop = await runOf(['export default () => { for (;;) {} };']);
    const { reward } = loop.settings as unknown as { reward: { terms: { timeout_s: number }[] } };
    const short = structuredClone({ ...loop, settings: { ...loop.settings, reward } }) as typeof loop;
    Object.assign((short.settings as unknown as typeof loop.settings & { reward: typeof reward }).reward.terms[0], {
      timeout_s: 0.2,
    });
    expect(await found([short])).toEqual([expect.stringContaining('term_0: gave no score within 0.2 s')]);
    const ends = await runOf(['export default () => process.exit(3);']);
    expect(await found([ends])).toEqual([expect.stringContaining('term_0: it ended the process (code 3)')]);
  });

  it('is tried once for runs that share it and their data, and reported for each', async () => {
    const folder = newFolder();
    const log = join(folder, 'log');
    const run = await runOf([
      `import { appendFileSync } from 'node:fs'; appendFileSync('${log}', 'x'); export default () => 6;`,
    ]);
    const other = { ...run, settings: { ...run.settings, run_name: 'other', seed: 9 } };
    expect(await new RewardTrials().of([run, other])).toMatchObject([{ run: run.settings.run_name }, { run: 'other' }]);
    expect(readdirSync(folder)).toEqual(['log']);
    expect((await new Preflight().check([run, other])).obstacles).toHaveLength(1);
  });

  it('is rejected beside other problems, and a broken module is reported once', async () => {
    const run = await runOf(['export default () => 6;', 'export default 5;'], {
      sets: ['policy.model=/nowhere/model', 'policy.init=null'],
    });
    const texts = (await new Preflight().check([run])).obstacles.map(({ error }) => error.toText());
    expect(texts).toEqual([
      expect.stringContaining('/nowhere/model: there is no such model folder'),
      expect.stringContaining('term_0 gave 6'),
      expect.stringMatching(/term_1\.mjs: the reward module cannot be used: its default export is number/),
    ]);
  });

  it('is rejected for a label that a term of this program needs', async () => {
    const terms = 'reward.terms=[{"name":"word_overlap","weight":1}]';
    const rows = [...ROWS, { prompt: 'three', answer: null }];
    expect(await found([await runOf([], { rows, sets: [terms] })])).toEqual([
      expect.stringMatching(/rows\.jsonl:3: reward 'word_overlap' compares with a labeled answer in words/),
    ]);
  });

  it('is tried on drawn rows of the tiny world, of which nothing stays', async () => {
    const before = readdirSync(tmpdir()).filter((name) => name.startsWith('editrl-rows-'));
    const folder = newFolder();
    writeFileSync(
      join(folder, 'own.mjs'),
      "export default ({ answer, expected }) => { if (answer === expected) throw new Error('seen'); return 0; };",
    );
    const run = await loadEvaluated({
      file: 'configs/text_plain.jsonnet',
      overlays,
      sets: ['reward.mode=null', `reward.terms=[{"name":"module","weight":1,"module":"${folder}/own.mjs"}]`],
      env: placedIn(folder),
    });
    const [message] = await found([run]);
    expect(message).toMatch(/words\/train\.jsonl:1, the labeled answer: own: Error: seen/);
    expect(message).not.toContain('editrl-rows-');
    expect(readdirSync(folder)).toEqual(['own.mjs']);
    expect(readdirSync(tmpdir()).filter((name) => name.startsWith('editrl-rows-'))).toEqual(before);
  });
});

describe('rows to score', () => {
  it.each([
    [
      'sft_s__rl_s',
      ['configs/lib/tiny.libsonnet'],
      ['the labeled image', 'the source, unchanged', 'an answer without an image'],
    ],
    ['ip_adapter', ['configs/lib/ip_adapter_tiny.libsonnet'], ['the wanted image', 'the context, unchanged']],
  ])('of %s are drawn where its data is not made, with images', async (name, overlays, answers) => {
    const { settings } = await loadEvaluated({ file: `configs/${name}.jsonnet`, overlays, env: placedIn(newFolder()) });
    if (!isTrainable(settings)) throw new InternalError('a run that trains nothing');
    const all = await rowsToScore(settings, 2);
    expect(all.length).toBeGreaterThan(1);
    const seen = new Set(all.flatMap(({ rows }) => rows.flatMap((row) => row.answers.map(({ what }) => what))));
    expect([...seen].sort()).toEqual([...answers].sort());
    for (const { item } of all.flatMap(({ rows }) => rows)) expect(item.source?.data.length).toBeGreaterThan(0);
  });
});
