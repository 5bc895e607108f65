import { rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { runExam } from '../../../src/launch/reward/exam.js';
import { rewardFromFlags } from '../../../src/launch/reward/flags.js';
import { openServedReward } from '../../../src/launch/reward/server.js';
import { readExam, readExamSample } from '../../../src/run/exams.js';
import { ExamWatch, type ExamWatchOptions } from '../../../src/train/scoring/exam_watch.js';
import type { Biases } from '../../../src/rewards/rule_judge/biases.js';
import { tinyExam } from '../../../src/rewards/rule_judge/exam_cases.js';
import { JUDGE_MODEL, startJudge, type RunningJudge } from '../../../src/rewards/rule_judge/server.js';
import { testFolders } from '../../support/folder.js';

const newFolder = testFolders('exam-watch');
const closing: (() => unknown)[] = [];
afterEach(async () => {
  for (const close of closing.splice(0).reverse()) await close();
});

const asking = () => {
  const { signal } = new AbortController();
  return {
    resolveRun: () => null as never,
    onWaiting: () => undefined,
    onNote: () => undefined,
    judge: { notice: () => undefined, lost: () => undefined, over: signal },
    signal,
  };
};

/** A rule judge that has had an exam, with what asks it, and whose weights can be changed behind its address. */
async function examined(biases: Biases = {}) {
  let server: RunningJudge = await startJudge({ port: 0, host: '127.0.0.1', biases });
  closing.push(() => server.close());
  const { url } = server;
  const settings = rewardFromFlags({
    terms: ['viescore'],
    ocrWeight: null,
    vlmWeight: null,
    endpoint: url,
    model: JUDGE_MODEL,
  });
  const folder = newFolder();
  await runExam({ ...asking(), settings, set: tinyExam(20), repeats: 2, folder });
  const reward = await openServedReward(settings, asking());
  closing.push(() => reward.close());
  const becomes = async (next: Biases): Promise<void> => {
    await server.close();
    server = await startJudge({ port: Number(new URL(url).port), host: '127.0.0.1', biases: next });
  };
  const looks = () => Math.floor(server.stats().requests / 40);
  const warnings: string[] = [];
  const notes: string[] = [];
  const watch = (changes: Partial<ExamWatchOptions> = {}): ExamWatch => {
    const made = new ExamWatch({
      exam: { folder, record: readExam(folder) },
      reward: { name: 'viescore', score: async (item, signal) => (await reward.scoreTerms(item, signal)).outcome },
      everyMs: 10,
      asker: 'test',
      hasRoom: () => true,
      warn: (message) => warnings.push(message),
      info: (message) => notes.push(message),
      ...changes,
    });
    closing.push(() => made.close());
    return made;
  };
  return { folder, becomes, looks, warnings, notes, watch, close: () => server.close() };
}

const wait = { timeout: 30_000, interval: 20 };

describe('a judge that is compared with its exam', () => {
  it('is reported when other weights answer at its address, once, and when the old ones are back', async () => {
    const { becomes, looks, warnings, notes, watch } = await examined();
    watch();
    const before = looks();
    await vi.waitFor(() => expect(looks()).toBeGreaterThan(before + 3), wait);
    expect(warnings).toEqual([]);
    await becomes({ noise: 0.5 });
    await vi.waitFor(() => expect(warnings).toHaveLength(1), wait);
    expect(warnings[0]).toMatch(
      /answers differently than in its exam of 2\S+: the scores of 20 answers differ by 0\.[12]\d of 1, of which noise explains 0\.0\d\. \w+ of case \d+ got/,
    );
    const after = looks();
    await vi.waitFor(() => expect(looks()).toBeGreaterThan(after + 3), wait);
    expect(warnings).toHaveLength(1);
    await becomes({});
    await vi.waitFor(() => expect(notes).toEqual([expect.stringContaining('answers as in its exam again')]), wait);
  });

  it('is not reported for its noise', async () => {
    const { looks, warnings, watch } = await examined({ noise: 0.2 });
    watch();
    const before = looks();
    await vi.waitFor(() => expect(looks()).toBeGreaterThan(before + 30), wait);
    expect(warnings).toEqual([]);
  });

  it('is not reported while it is unreachable, or asked if there is no room for that', async () => {
    const { close, looks, warnings, watch } = await examined();
    const before = looks();
    await watch({ hasRoom: () => false }).close();
    expect(looks()).toBe(before);
    await close();
    const score = vi.fn(async () => ({ kind: 'unscored', reason: 'connection', detail: '', parts: {} }) as const);
    watch({ reward: { name: 'viescore', score } });
    await vi.waitFor(() => expect(score.mock.calls.length).toBeGreaterThan(60), wait);
    expect(warnings).toEqual([]);
  });

  it('is let alone where its exam kept no sample, and that it cannot be read is reported', async () => {
    const { folder, looks, warnings, notes, watch } = await examined();
    expect(await readExamSample(folder)).toHaveLength(20);
    const before = looks();
    writeFileSync(join(folder, 'sample.jsonl'), '{"name": 1}\n');
    await watch().close();
    expect(warnings).toEqual([expect.stringContaining('not an answer of a judge exam')]);
    rmSync(join(folder, 'sample.jsonl'));
    expect(await readExamSample(folder)).toEqual([]);
    expect(notes).toEqual([]);
    await watch().close();
    expect(notes).toEqual([expect.stringContaining('which stored no single answers')]);
    expect(warnings).toHaveLength(1);
    expect(looks()).toBe(before);
  });
});
