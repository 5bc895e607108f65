import { createHash } from 'node:crypto';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest';
import type { EvaluationReport } from '../../src/run/report/evaluation.js';
import { configFile, Place, RL, SMALL, START, until, type Ended } from './editrl.js';

interface Evaluated extends EvaluationReport {
  readonly checkpoint: string | null;
  readonly against: EvaluationReport | null;
  readonly recorded: EvaluationReport['metrics'] | null;
  readonly paths: { readonly records: string; readonly contact_sheet: string | null };
}

let place: Place;
let before: Map<string, string>;
beforeAll(() => {
  place = Place.make(inject('template'));
  before = ownFiles();
});
afterAll(() => place.remove());

/** The run's files but those of its evaluations. */
function ownFiles(): Map<string, string> {
  const entries = readdirSync(place.run(RL), { recursive: true, withFileTypes: true }).filter((one) => one.isFile());
  const files = entries.map((one) => join(one.parentPath, one.name)).filter((name) => !name.includes('/evaluations/'));
  return new Map(files.map((name) => [name, createHash('sha256').update(readFileSync(name)).digest('hex')]));
}

const evaluate = (...args: readonly string[]): Promise<Ended> => place.call(['evaluate', ...args]);

async function numbers(...args: readonly string[]): Promise<Evaluated> {
  const ended = await evaluate(...args, '--json');
  expect(ended).toMatchObject({ code: 0, err: '' });
  return JSON.parse(ended.out) as Evaluated;
}

/** The held-out metrics that a run recorded at an iteration. */
function recorded(run: string, iteration: number): Record<string, unknown> {
  const line = place.metrics(run).find((one) => one.iteration === iteration) ?? {};
  return Object.fromEntries(Object.entries(line).filter(([name]) => name.startsWith('validation/')));
}

describe('editrl evaluate', () => {
  it('comes to the very numbers that a run recorded, and leaves its files as they were', async () => {
    const last = await numbers(RL);
    expect(last.metrics).toEqual(recorded(RL, 6));
    expect(last.recorded).toEqual(last.metrics);
    expect(last).toMatchObject({ iteration: 6, checkpoint: join(place.run(RL), 'checkpoints/000006') });
    expect(existsSync(join(last.paths.records, 'episodes/validation_000006.jsonl'))).toBe(true);
    expect(existsSync(last.paths.contact_sheet ?? '')).toBe(true);
    const supervised = await numbers(`${START}@12`);
    expect(supervised.metrics).toEqual(recorded(START, 12));
    expect(ownFiles()).toEqual(before);
  });

  it('asks the judge nothing that an earlier evaluation has an answer to', async () => {
    const records = (await numbers(RL)).paths.records;
    const judgements = (): number => readFileSync(join(records, 'judgements.jsonl'), 'utf8').split('\n').length;
    const asked = judgements();
    await numbers(RL);
    expect(judgements()).toBe(asked);
  });

  it('compares two checkpoints prompt by prompt, by measures that the run was never given', async () => {
    const found = await numbers(`${RL}@6`, '--against', START, '--measure', 'jpeg_size', '--measure', 'ground_score');
    expect(found.numbers.map(({ by, manner }) => `${by ?? 'reward'} ${manner}`)).toEqual(
      ['reward', 'jpeg_size', 'ground_score'].flatMap((by) => [`${by} sampled`, `${by} greedy`]),
    );
    found.numbers.forEach(({ mean, n, difference }, i) => {
      expect(n).toBe(16);
      expect(difference?.n).toBe(16);
      expect(difference?.mean).toBeCloseTo(mean - (found.against?.numbers[i].mean ?? NaN), 9);
    });
  });

  it("evaluates a config's start, an exported folder and a run's checkpoint in its place", async () => {
    const config = [configFile(RL), ...SMALL];
    const start = await numbers(...config);
    expect(start.metrics).toEqual(recorded(RL, 0));
    const folder = join(place.dir, 'exported');
    expect(await place.call(['export', RL, '--out', folder])).toMatchObject({ code: 0 });
    const exported = await numbers(...config, '--model', folder, '--against', `run:${RL}@6`);
    expect(exported.metrics).toEqual(recorded(RL, 6));
    expect(exported.numbers.map(({ difference }) => difference)).toEqual([
      { mean: 0, stderr: 0, n: 16 },
      { mean: 0, stderr: 0, n: 16 },
    ]);
  });

  it('ends with exit code 3 where the judge is unreachable, and continues by the same command', async () => {
    const away = ['reward.endpoint=http://127.0.0.1:1', 'reward.max_wait_s=1', 'reward.max_attempts=1'];
    const left = await evaluate(RL, ...away.flatMap((set) => ['--set', set]));
    expect(left.code).toBe(3);
    expect(left.err).not.toMatch(/\n {4}at /);
    expect(await evaluate(RL)).toMatchObject({ code: 0 });
  });

  it('evaluates a run that trains on, which may remove the checkpoint meanwhile', async () => {
    const often = ['num_iterations=100000', 'checkpoint.save_every_n_iterations=1', 'checkpoint.keep_last=1'];
    const sets = ['run_name=live', 'validation.every_n_iterations=50', ...often];
    const live = place.startTraining(RL, ...sets.flatMap((set) => ['--set', set]));
    await until('it has checkpoints', () => (place.state('live')?.iteration ?? 0) > 3);
    const found = await numbers('live');
    expect(existsSync(found.checkpoint ?? '')).toBe(false);
    expect(found.numbers.map(({ n }) => n)).toEqual([16, 16]);
    expect(readdirSync(join(place.run('live'), 'evaluations'))).toEqual([found.paths.records.split('/').at(-1)]);
    expect(place.state('live')?.state).toBe('running');
    live.kill('SIGINT');
    expect(await live.ended).toMatchObject({ code: 130 });
  });

  it.each([
    [[`${RL}@5`], 1, 'has no checkpoint of iteration 5'],
    [[RL, '--set', 'seed=3'], 2, '--set seed=3: found a key of seed; allowed: keys of data'],
    [[configFile('tiny_vq'), ...SMALL, '--model', '.'], 2, 'starts from no model'],
  ])('rejects %j', async (args, code, said) => {
    const ended = await evaluate(...args);
    expect(ended.err).toContain(said);
    expect(ended).toMatchObject({ code, out: '' });
  });
});
