import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import {
  evaluatedModel,
  evaluatedRun,
  requireCommonNumber,
  type EvaluationChanges,
  type EvaluationSubject,
} from '../../src/launch/evaluation.js';
import { parseRunSpec } from '../../src/run/chosen_checkpoint.js';
import { saveCheckpoint } from '../../src/run/checkpoints.js';
import { claimRun } from '../../src/run/claim/claim.js';
import { claimRequest } from '../../src/run/claim/claim_request.js';
import { RunPaths } from '../../src/run/paths.js';
import type { RunRecord } from '../../src/run/record.js';
import { getPath } from '../../src/core/schema/walk.js';
import { loadEvaluated } from '../config/evaluated.js';
import { testFolder } from '../support/folder.js';

const base = testFolder('evaluation');
const NOTHING: EvaluationChanges = { data: [], measures: [], sets: [] };
const CONFIG = 'configs/sft_s__rl_s.jsonnet';
const place = {
  file: CONFIG,
  overlays: ['configs/lib/tiny.libsonnet'],
  sets: [`base_exp_dir=${base}`],
  expDir: base,
};

/** A run with a checkpoint at iterations 0 and 4, and the runs that it starts from with two each, of which it has pinned the first. */
async function makeRun(): Promise<RunPaths> {
  const config = await loadEvaluated({ file: CONFIG, overlays: place.overlays, sets: place.sets });
  const parents = ['tiny_vq', 'sft_s'].map((run) => {
    const paths = new RunPaths(base, run);
    for (const iteration of [1, 2]) saveCheckpoint(paths, iteration, { 'file.txt': 'x' });
    return { run, config: 'any.jsonnet', iteration: 1 };
  });
  const handle = claimRun(claimRequest(config, { command: [], versions: {}, parents, devices: [] }));
  for (const iteration of [0, 4]) saveCheckpoint(handle.paths, iteration, { 'file.txt': 'x' });
  const record: RunRecord = { ...handle.record, parents };
  writeFileSync(handle.paths.record, JSON.stringify(record));
  handle.release();
  return handle.paths;
}

describe('what is evaluated', () => {
  it('is named as a run, with or without an iteration', () => {
    expect(parseRunSpec('sft_s')).toEqual({ name: 'sft_s', checkpoint: 'last' });
    expect(parseRunSpec('sft_s@12')).toEqual({ name: 'sft_s', checkpoint: 12 });
    expect(parseRunSpec('sft_s@last')).toEqual({ name: 'sft_s', checkpoint: 'last' });
    expect(parseRunSpec('sft_s@best')).toEqual({ name: 'sft_s', checkpoint: 'best' });
    expect(() => parseRunSpec('sft_s@first')).toThrow(
      "found 'first'; allowed: the iteration of a checkpoint, last or best",
    );
  });

  it("is a run's checkpoint with the very models that the run began with, in a folder of its own", async () => {
    const run = await makeRun();
    const subject = evaluatedRun(run, 'last', NOTHING);
    const { settings, evaluation } = subject.config;
    expect(evaluation).toEqual({ checkpoint: run.checkpoint(4), iteration: 4 });
    expect(subject.paths.baseExpDir).toBe(join(run.dir, 'evaluations'));
    expect(subject.paths.runName).toMatch(/^000004-[0-9a-f]{8}$/);
    expect(subject.recordedBy).toBe(run);
    // The parents have trained on since.
    expect(getPath(settings, 'policy.model')).toBe(join(base, 'sft_s/checkpoints/000001'));
    expect(getPath(settings, 'environment.model')).toBe(join(base, 'tiny_vq/checkpoints/000001'));

    expect(evaluatedRun(run, 4, NOTHING).paths.dir).toBe(subject.paths.dir);
    const other = evaluatedRun(run, 4, { data: [base], measures: ['jpeg_size'], sets: ['validation.prompts=3'] });
    expect(other.paths.dir).not.toBe(subject.paths.dir);
    expect(other.recordedBy).toBeNull();
    expect(getPath(other.config.settings, 'data.validation')).toEqual([{ path: base, coefficient: null }]);
    expect(getPath(other.config.settings, 'validation')).toMatchObject({
      prompts: 3,
      measure: [{ name: 'jpeg_size' }],
    });
    expect(() => evaluatedRun(run, 3, NOTHING)).toThrow('no checkpoint of iteration 3');
    expect(() => evaluatedRun(run, 4, { ...NOTHING, sets: ['algorithm.kl_coeff=0'] })).toThrow(
      'found a key of algorithm',
    );
  });

  it('scores a benchmark with its questions instead of the reward', () => {
    const run = new RunPaths(base, 'sft_s__rl_s');
    const folder = join(base, 'imgedit');
    const judged = ['reward.endpoint=http://judge:4877'];
    mkdirSync(folder, { recursive: true });
    for (const [name, rows] of [
      ['add', 3],
      ['remove', 5],
    ] as const) {
      writeFileSync(join(folder, `${name}.jsonl`), '{"source": "a.png"}\n'.repeat(rows));
    }
    const { config } = evaluatedRun(run, 4, { ...NOTHING, sets: judged, data: [folder], benchmark: 'imgedit' });
    const get = (path: string): unknown => getPath(config.settings, path);
    expect(get('data.validation')).toMatchObject([
      { path: join(folder, 'add.jsonl') },
      { path: join(folder, 'remove.jsonl') },
    ]);
    expect(get('validation.prompts')).toBeGreaterThanOrEqual(5);
    expect(get('validation.measure')).toEqual([]);
    expect(get('reward.mode')).toBeNull();
    expect(get('reward.terms')).toEqual([{ name: 'imgedit', weight: 1, folder, model: null }]);

    const given = '{"name": "gedit_v2", "gallery": "g", "opponents": ["BAGEL"]}';
    const pairs = evaluatedRun(run, 4, { ...NOTHING, sets: judged, data: [folder], benchmark: given });
    expect(getPath(pairs.config.settings, 'reward.terms')).toMatchObject([{ name: 'gedit_v2', opponents: ['BAGEL'] }]);

    const wrong = (changes: Partial<EvaluationChanges>) => () => evaluatedRun(run, 4, { ...NOTHING, ...changes });
    expect(wrong({ benchmark: 'mmbench', data: [folder] })).toThrow(
      '--benchmark: found "mmbench"; allowed: gedit, imgedit, rise, kris, gedit_v2',
    );
    expect(wrong({ benchmark: 'rise' })).toThrow('--benchmark: found 0 folders in --data; allowed: one');
    expect(wrong({ benchmark: 'rise', data: [join(base, 'none')] })).toThrow('found no .jsonl files');
    expect(wrong({ benchmark: 'rise', data: [folder], measures: ['jpeg_size'] })).toThrow('--measure with --benchmark');
    for (const set of [
      'reward.terms=[{"name":"jpeg_size","weight":1}]',
      'reward.mode=viescore',
      'data.validation=[]',
    ]) {
      expect(wrong({ benchmark: 'imgedit', data: [folder], sets: [set] })).toThrow(
        'found with --benchmark, which sets',
      );
    }
    const fewer = [...judged, 'validation.prompts=2', 'reward.terms.0.model=other'];
    const set = evaluatedRun(run, 4, { ...NOTHING, sets: fewer, data: [folder], benchmark: 'imgedit' });
    expect(getPath(set.config.settings, 'validation.prompts')).toBe(2);
    expect(getPath(set.config.settings, 'reward.terms')).toMatchObject([{ name: 'imgedit', model: 'other' }]);
  });

  it('is a folder in the place of what a config starts from', async () => {
    const folder = join(base, 'exported');
    mkdirSync(folder, { recursive: true });
    const sets = [...place.sets, `environment.model=${folder}`, `policy.tokenizer=${folder}`];
    const { config, label } = await evaluatedModel({ ...place, sets }, folder, NOTHING);
    expect(config.evaluation).toEqual({ checkpoint: null, iteration: 0 });
    expect(getPath(config.settings, 'policy.model')).toBe(folder);
    expect(label).toBe(`sft_s__rl_s with ${folder}`);
    const hub = await evaluatedModel({ ...place, sets }, 'hub:me/model@v2', NOTHING);
    expect(getPath(hub.config.settings, 'policy.model')).toEqual({ hub: 'me/model', revision: 'v2' });
    await expect(evaluatedModel(place, join(base, 'none'), NOTHING)).rejects.toThrow('no such folder');
  });
});

describe('what two evaluations have in common', () => {
  const subject = (label: string, reward: object, measure: readonly object[] = []) => ({
    label,
    config: { settings: { reward, validation: { measure } } } as unknown as EvaluationSubject['config'],
  });
  const [judged, drawn] = [{ mode: 'viescore' }, { terms: [{ name: 'image_similarity', weight: 1 }] }];

  it('is one reward, or a measure of both; else they are rejected', () => {
    expect(() => requireCommonNumber([subject('A', judged), subject('B', drawn)])).toThrow(
      '--against: the rewards of A and of B differ (viescore and image_similarity), so their numbers cannot be compared',
    );
    const term = { name: 'jpeg_size' };
    expect(() => requireCommonNumber([subject('A', judged, [term]), subject('B', drawn, [term])])).not.toThrow();
    expect(() => requireCommonNumber([subject('A', judged, [term]), subject('B', drawn)])).toThrow('differ');
    expect(() => requireCommonNumber([subject('A', drawn), subject('B', drawn)])).not.toThrow();
    expect(() => requireCommonNumber([subject('A', drawn)])).not.toThrow();
  });
});
