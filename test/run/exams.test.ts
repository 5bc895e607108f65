import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeEach, describe, expect, it } from 'vitest';
import { loadConfig, type LoadedConfig } from '../../src/config/load.js';
import { must } from '../../src/core/errors.js';
import { examWarnings, selfJudgedWarnings } from '../../src/launch/preflight/preflight.js';
import { rewardOf } from '../../src/recipes/settings.js';
import type { RewardSettings } from '../../src/rewards/schema/reward.js';
import { answeringModel, EXAM_FILE, examDigest, examFolder, examsOf, readExam } from '../../src/run/exams.js';
import { RunPaths } from '../../src/run/paths.js';
import { examLines, examOf } from '../../src/run/report/exam.js';
import { testFolders } from '../support/folder.js';

const newFolder = testFolders('exams');
let runs = '';
beforeEach(() => {
  runs = newFolder();
});

async function config(...sets: readonly string[]): Promise<LoadedConfig> {
  return loadConfig({
    file: 'configs/sft_s__rl_s.jsonnet',
    overlays: ['configs/lib/tiny.libsonnet'],
    sets: [`base_exp_dir=${JSON.stringify(runs)}`, ...sets],
  });
}

const rewardIn = ({ settings }: LoadedConfig): RewardSettings => must(rewardOf(settings), 'a reward');

interface Told {
  readonly made_at?: string;
  readonly teaches?: string;
  readonly accused?: boolean;
  readonly costs?: unknown;
  /** The model that answered; default: the one that the reward asks. */
  readonly model?: string;
}

/** Writes an exam of a reward; its name is another one than the program would choose. */
function writeExam(reward: RewardSettings, name: string, told: Told = {}): string {
  const { made_at = '2026-01-01T00:00:00.000Z', teaches = 'yes', accused = false, model } = told;
  const folder = join(runs, 'exams', name);
  mkdirSync(folder, { recursive: true });
  const record = {
    format: 1,
    made_at,
    set: 'tiny',
    reward: { digest: examDigest(reward), asked: answeringModel(reward), model: model ?? answeringModel(reward) },
    marks: { cases: 49, signal: { mean: 0.5, stderr: 0.01, n: 49 }, findings: [{ name: 'copies', accused }] },
    verdict: { teaches, sentences: ['What it says.'] },
    costs: told.costs ?? { tokens: null, seconds: null },
    cases: [],
  };
  writeFileSync(join(folder, EXAM_FILE), JSON.stringify(record));
  return folder;
}

describe('exams beside runs', () => {
  it('belong to the reward that asks the same: the latest one counts', async () => {
    const reward = rewardIn(await config());
    const later = writeExam(reward, 'a', { made_at: '2026-02-01T00:00:00.000Z' });
    const earlier = writeExam(reward, 'b');
    expect(examsOf(runs, reward).map(({ folder }) => folder)).toEqual([earlier, later]);
    const other = rewardIn(await config('reward.max_reply_tokens.viescore=77'));
    expect(examsOf(runs, other)).toEqual([]);
    expect(examFolder(runs, reward, 'tiny')).toBe(
      join(runs, 'exams', `editrl_rule_judge-${examDigest(reward).slice(0, 8)}-tiny`),
    );
  });

  it('belong to the model that answered, by any name that a run allows it', async () => {
    const at = 'reward.endpoint=http://127.0.0.1:1/v1';
    const reward = rewardIn(await config('reward.model=proxied', 'reward.model_alias=true', at));
    writeExam(reward, 'a', { model: 'Qwen/Qwen2.5-VL-7B' });
    const found = async (...sets: readonly string[]): Promise<number> =>
      examsOf(runs, rewardIn(await config(at, ...sets))).length;
    expect(await found('reward.model=Qwen/Qwen2.5-VL-7B')).toBe(1);
    expect(await found('reward.model=x', 'reward.model_alias=["qwen2.5-vl-7b"]')).toBe(1);
    expect(await found('reward.model=proxied', 'reward.model_alias=true')).toBe(1);
    expect(await found('reward.model=proxied')).toBe(0);
    expect(await found('reward.model=Qwen/Qwen2.5-VL-72B')).toBe(0);
  });

  it('of a term alone with weight 1 are those of the mode of its name', async () => {
    const mode = rewardIn(await config('reward.mode=viescore', 'reward.terms=[]'));
    const terms = rewardIn(await config('reward.mode=null', 'reward.terms=[{"name": "viescore", "weight": 1}]'));
    const folder = writeExam(terms, 'a', { teaches: 'no', accused: true });
    expect(examsOf(runs, mode).map((found) => found.folder)).toEqual([folder]);
    const recorded = rewardIn(await config('reward.also_compute=["jpeg_size"]', 'reward.zero_if_unfinished=false'));
    expect(examsOf(runs, recorded)).toHaveLength(1);
    const sum = 'reward.terms=[{"name": "viescore", "weight": 0.9}, {"name": "image_similarity", "weight": 0.1}]';
    expect(examsOf(runs, rewardIn(await config('reward.mode=null', sum)))).toEqual([]);
  });

  it('pass over what is no exam, which by itself is rejected by name', async () => {
    const reward = rewardIn(await config());
    const folder = writeExam(reward, 'a');
    mkdirSync(join(runs, 'exams', 'empty'));
    mkdirSync(join(runs, 'exams', 'broken'));
    writeFileSync(join(runs, 'exams', 'broken', EXAM_FILE), '{"format": 1}');
    expect(examsOf(runs, reward).map((found) => found.folder)).toEqual([folder]);
    expect(() => readExam(join(runs, 'exams', 'broken'))).toThrow('not a judge exam');
    expect(() => readExam(join(runs, 'exams', 'empty'))).toThrow('cannot read the exam');
  });

  it('are shown in the report of a run that is scored so, with what a question takes', async () => {
    const { settings } = await config();
    const paths = new RunPaths(runs, 'any');
    const reward = rewardIn({ settings } as LoadedConfig);
    const costs = {
      tokens: { prompt: 812.4, completion: 39.6, questions: 40 },
      seconds: { median: 0.3, p95: 1.25 },
    };
    expect(examOf(paths, settings as never)).toBeNull();
    const folder = writeExam(reward, 'a', { accused: true, costs });
    const found = must(examOf(paths, settings as never), 'the exam');
    expect(found).toMatchObject({ folder, faults: ['copies'], teaches: 'yes', cases: 49, costs });
    expect(examLines(found, 300)[0]).toBe(
      'exam of the judge: signal 0.500 ± 0.010 in 49 cases, on 2026-01-01. What it says. Each question takes 812 + 40 tokens and 0.300 s (95% within 1.25 s).',
    );
    const unknown = { tokens: null, seconds: { median: 0.3, p95: 1.25 } };
    writeExam(reward, 'a', { costs: unknown });
    expect(examLines(must(examOf(paths, settings as never), 'the exam'), 300)[0]).toMatch(
      /What it says\. Each question takes 0\.300 s \(95% within 1\.25 s\); the server does not report tokens\.$/,
    );
    writeExam(reward, 'a', { costs: { ...costs, tokens: { prompt: 'many' } } });
    expect(examOf(paths, settings as never)).toBeNull();
  });

  it.each<[Told, boolean]>([
    [{}, false],
    [{ teaches: 'unknown' }, false],
    [{ accused: true }, true],
    [{ teaches: 'weakly' }, true],
    [{ teaches: 'no' }, true],
  ])('warn before a run starts where they found something: %j', async (told, warns) => {
    const loaded = await config();
    const folder = writeExam(rewardIn(loaded), 'a', told);
    expect(examWarnings([loaded, loaded])).toEqual(
      warns ? [`the exam of the judge 'editrl-rule-judge' says: What it says. (${folder})`] : [],
    );
  });
});

describe('a judge that is the model of the policy', () => {
  const judging = async (policy: unknown, model: string): Promise<string[]> => {
    const loaded = await config();
    const { settings } = loaded;
    const reward = { ...rewardIn(loaded), endpoint: 'http://judge:8000', model };
    const same = { ...loaded, settings: { ...settings, policy: { model: policy }, reward } } as unknown as LoadedConfig;
    return selfJudgedWarnings([same, same]);
  };

  it.each([[{ hub: 'Qwen/Qwen2.5-VL-7B-Instruct', revision: 'main' }], ['/models/qwen2.5-vl-7b-instruct']])(
    'is warned about once: %j',
    async (policy) => {
      expect(await judging(policy, 'Qwen/Qwen2.5-VL-7B-Instruct')).toEqual([
        "the judge 'Qwen/Qwen2.5-VL-7B-Instruct' is the model that the policy starts from: a model prefers its own answers, so measure with another judge, too",
      ]);
    },
  );

  it('is not another model, a run or random weights', async () => {
    for (const policy of [{ hub: 'Qwen/Qwen2.5-VL-3B-Instruct', revision: 'main' }, { run: 'a', config: 'a' }, null]) {
      expect(await judging(policy, 'Qwen/Qwen2.5-VL-7B-Instruct')).toEqual([]);
    }
  });
});
