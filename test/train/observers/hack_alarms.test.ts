import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { alarms as alarmsSchema, type AlarmSettings } from '../../../src/config/schema/alarms.js';
import type { RgbImage } from '../../../src/core/images/image.js';
import type { JudgeItem } from '../../../src/rewards/score/types.js';
import type { MetricsLine } from '../../../src/run/metrics.js';
import { alarmsIn, columnsOf } from '../../../src/run/report/alarms.js';
import { HackAlarms } from '../../../src/train/observers/hack_alarms.js';
import {
  artifactMetrics,
  hackMetrics,
  measureAnswer,
  measureArtifact,
} from '../../../src/train/observers/hack_statistics.js';
import { makeSmallWorld, smallSettings, type SmallWorld } from '../../recipes/image_edit_tokens/small_world.js';
import { scorerOf, smallTraining, unscored } from '../small_training.js';

function settings(changes: object = {}): AlarmSettings {
  const parsed = alarmsSchema.parse(changes);
  if (parsed === null) throw new Error('null');
  return parsed;
}

/** Puts a metric's values to the alarms one iteration after the other; which iterations raise it, and what is said. */
function watch(
  metric: string,
  values: readonly (number | null)[],
  changes: object = {},
): { raised: number[]; said: string[] } {
  const said: string[] = [];
  const alarms = new HackAlarms(settings(changes), [], (message) => said.push(message), 2);
  const raised = values.flatMap((value, i) => {
    const found = alarms.observe(i + 1, value === null ? {} : { [metric]: value });
    return Object.keys(found).length > 0 ? [i + 1] : [];
  });
  return { raised, said };
}

describe('an alarm', () => {
  it('is raised where the last values are too far below the first ones, and said once', () => {
    const { raised, said } = watch('hack/edge_density', [0.4, 0.2, 0.3, 0.2, 0.1, 0.1, 0.1]);
    // first: 0.3; the last two: 0.25, 0.25, 0.15, 0.1, 0.1
    expect(raised).toEqual([5, 6, 7]);
    expect(said).toEqual([expect.stringMatching(/^iteration 5: .*by 50% .*edge_density.max_fall/)]);
  });

  it('takes limits of fractions in their own unit, and rises as well as falls', () => {
    expect(watch('hack/dark_fraction', [0.01, 0.01, 0.2, 0.2, 0.3, 0.3]).raised).toEqual([6]);
    expect(watch('hack/source_similarity', [0.9, 0.9, 0.95, 0.95, 1, 1]).raised).toEqual([6]);
    expect(watch('hack/source_similarity', [0.9, 0.9, 0.3, 0.3]).raised).toEqual([3, 4]);
    expect(watch('hack/answer_length', [10, 10, 30, 30]).raised).toEqual([4]);
    expect(watch('hack/repeat_rate', [0, 0, 0.5]).raised).toEqual([3]);
  });

  it('stands where over a tenth of the scores is at a limit, from the first iteration on', () => {
    const { raised, said } = watch('hack/at_limit', [0.1, 0.1, 0.2, 0.2, 0, 0]);
    expect(raised).toEqual([3, 4]);
    expect(said).toEqual([expect.stringMatching(/^iteration 3: .* 0\.150 .*at_limit.max/)]);
    expect(watch('hack/at_limit', [0.5]).raised).toEqual([1]);
    expect(watch('hack/at_limit', [0.5], { limits: { at_limit: { max: 0.6 } } }).raised).toEqual([]);
    expect(watch('hack/at_limit', [1], { limits: { at_limit: { max: null } } }).raised).toEqual([]);
  });

  it('stands while over a fifth of the answers has no score, from the first iteration on', () => {
    const { raised, said } = watch('hack/unscored', [0.1, 0.2, 0.3, 1, 1, 0, 0]);
    expect(raised).toEqual([3, 4, 5, 6]);
    expect(said).toEqual([expect.stringMatching(/^iteration 3: .* 0\.250 .*unscored.max/)]);
    expect(watch('hack/unscored', [1]).raised).toEqual([1]);
    expect(watch('hack/unscored', [1], { limits: { unscored: { max: null } } }).raised).toEqual([]);
  });

  it('stands while a judge gives every answer the same scores, and is reported once', () => {
    const { raised, said } = watch('hack/same_score', [0.9, 1, 1, 0.5, 1]);
    expect(raised).toEqual([2, 3, 5]);
    expect(said).toHaveLength(2);
    expect(said[0]).toContain('iteration 2: alarm: the judge gave every answer the same score');
  });

  it('never stands where its limit is null', () => {
    expect(watch('hack/dark_fraction', [0.9, 0.9, 0, 0]).raised).toEqual([]);
    expect(watch('hack/edge_density', [1, 1, 0, 0], { limits: { edge_density: { max_fall: null } } }).raised).toEqual(
      [],
    );
  });

  it('waits for enough values, counting only iterations that measured it', () => {
    expect(watch('hack/edge_density', [1, 0]).raised).toEqual([]);
    // What does not measure it leaves it as it is.
    expect(watch('hack/dark_fraction', [0, null, null, 0, null, 0.9, null]).raised).toEqual([6, 7]);
    expect(watch('hack/edge_density', [1, NaN, NaN, NaN]).raised).toEqual([]);
  });

  it('keeps its baseline over a resume, and does not repeat what it said', () => {
    const values = [1, 1, 1, 0, 0, 0];
    const lines: MetricsLine[] = [{ iteration: 0, metrics: { 'validation/sampled/mean': 3 } }];
    let said: string[] = [];
    for (const [i, value] of values.entries()) {
      const alarms = new HackAlarms(settings(), lines, (message) => said.push(message), 2);
      const metrics = { 'hack/edge_density': value };
      lines.push({ iteration: i + 1, metrics: { ...metrics, ...alarms.observe(i + 1, metrics) } });
    }
    expect(said).toHaveLength(1);
    expect(
      lines.filter(({ metrics }) => metrics['alarm/edge_density'] === 1).map(({ iteration }) => iteration),
    ).toEqual([4, 5, 6]);
    said = [];
    new HackAlarms(settings(), lines, (message) => said.push(message), 2).observe(7, { 'hack/edge_density': 1 });
    expect(said).toEqual([]);
    expect(alarmsIn(columnsOf(lines))).toEqual([
      { name: 'edge_density', from: 4, to: 6, active: true, metric: 'hack/edge_density', value: 0 },
    ]);
  });
});

describe('the alarm of the KL', () => {
  it('is raised in an iteration that jumps, and not for a KL that grows step by step or stays small', () => {
    const usual = [0.05, 0.08, 0.07, 0.1, 0.09, 0.12];
    const { raised, said } = watch('policy/kl', [...usual, 3.17, 0.11, 0.12]);
    expect(raised).toEqual([7]);
    expect(said).toEqual([expect.stringMatching(/^iteration 7: .*KL.* 3\.17/)]);
    expect(watch('policy/kl', [0.1, 0.15, 0.22, 0.33, 0.5, 0.75, 1.1, 1.6]).raised).toEqual([]);
    expect(watch('policy/kl', [0, 0.001, 0.001, 0.3]).raised).toEqual([]);
    expect(watch('policy/kl', [5]).raised).toEqual([]);
    expect(watch('policy/kl', [0.1, 0.1, 0.1, NaN, Infinity, 0.1]).raised).toEqual([]);
  });

  it('knows the KL of before a resume, and is reported with the KL', () => {
    const lines: MetricsLine[] = [1, 2, 3, 4].map((iteration) => ({ iteration, metrics: { 'policy/kl': 0.1 } }));
    const jump = { 'policy/kl': 2 };
    const found = new HackAlarms(settings(), lines, () => undefined, 2).observe(5, jump);
    expect(alarmsIn(columnsOf([...lines, { iteration: 5, metrics: { ...jump, ...found } }]))).toEqual([
      { name: 'kl', from: 5, to: 5, active: true, metric: 'policy/kl', value: 2 },
    ]);
  });
});

describe('a report', () => {
  it('has one span per crossing', () => {
    const line = (iteration: number, ...names: string[]): MetricsLine => ({
      iteration,
      metrics: { 'hack/a': iteration, ...Object.fromEntries(names.map((name) => [`alarm/${name}`, 1] as const)) },
    });
    expect(alarmsIn(columnsOf([line(1), line(2, 'a'), line(3, 'a', 'b'), line(4), line(5, 'a')]))).toEqual([
      { name: 'a', from: 2, to: 3, active: false, metric: 'hack/a', value: 2 },
      { name: 'b', from: 3, to: 3, active: false, metric: 'hack/b', value: null },
      { name: 'a', from: 5, to: 5, active: true, metric: 'hack/a', value: 5 },
    ]);
    expect(alarmsIn(columnsOf([line(1)]))).toEqual([]);
  });
});

describe('artifacts', () => {
  const group = (name: string, ...lengths: number[]) => ({
    prompt: { id: name, instruction: '', sourcePng: null },
    answers: lengths.map((length) => ({ logProbs: new Float32Array(length), finished: true })),
  });
  const flat = (level: number): RgbImage => ({ width: 4, height: 4, data: new Uint8Array(48).fill(level) });

  it('are described by means over those that are images', () => {
    const artifacts = [flat(0), flat(255), null].map((edited) => measureArtifact({ edited, source: flat(255) }));
    expect(artifacts[2]).toBeNull();
    expect(artifactMetrics([group('a', 3, 4, 5), group('b', 8)], [artifacts, [artifacts[0]]])).toEqual({
      'hack/changed_fraction': 2 / 3,
      'hack/grid': 0,
      'hack/saturation': 0,
      'hack/sharpness': 0,
      'hack/edge_density': 0,
      'hack/colour_entropy': 0,
      'hack/dark_fraction': 2 / 3,
      'hack/source_similarity': 1 / 3,
      'hack/repeat_rate': 2 / 3,
      'hack/answer_length': 5,
    });
  });

  describe('the share of answers without an image', () => {
    const shareOf = (item: Partial<JudgeItem>) =>
      hackMetrics([group('a', 1)], [[measureAnswer({ ...nothing, ...item })]])['hack/no_picture'];
    const nothing: JudgeItem = {
      ...{ key: 'k', instruction: 'name a colour', source: null, edited: null, truth: null },
      finished: true,
    };

    it('counts an answer of image tokens that decodes to none', () => {
      expect(shareOf({})).toBe(1);
      expect(shareOf({ edited: flat(3) })).toBe(0);
    });
  });
});

describe('an iteration of GRPO', () => {
  const root = mkdtempSync(join(tmpdir(), 'hack-alarms-'));
  let world: SmallWorld;
  beforeAll(async () => {
    world = await makeSmallWorld(root);
  });
  afterAll(() => rmSync(root, { recursive: true }));

  it('raises an alarm where a judge gives no score at all, and the reward has no mean', async () => {
    const said: string[] = [];
    const hackAlarms = new HackAlarms(settings(), [], (message) => said.push(message), 2);
    const none = scorerOf(() => unscored);
    const { training } = smallTraining(smallSettings(world), none, undefined, { hackAlarms });
    try {
      const metrics = await training.step(1);
      expect(metrics).toMatchObject({ 'reward/mean': NaN, 'hack/unscored': 1, 'alarm/unscored': 1 });
      expect(alarmsIn(columnsOf([{ iteration: 1, metrics }]))).toMatchObject([
        { name: 'unscored', active: true, value: 1 },
      ]);
    } finally {
      await training.dispose();
    }
    expect(said).toHaveLength(1);
  });
});
