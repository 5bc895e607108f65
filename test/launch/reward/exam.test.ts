import { existsSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { text as textOf } from 'node:stream/consumers';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { runExam, type ExamRequest } from '../../../src/launch/reward/exam.js';
import { rewardFromFlags } from '../../../src/launch/reward/flags.js';
import { EXAM_FILE } from '../../../src/run/exams.js';
import { tinyExam } from '../../../src/rewards/rule_judge/exam_cases.js';
import {
  JUDGE_MODEL,
  startJudge,
  type JudgeOptions,
  type RunningJudge,
} from '../../../src/rewards/rule_judge/server.js';
import { testFolders } from '../../support/folder.js';

const newFolder = testFolders('run-exam');
const CASES = 20;
/** Seven answers twice and five tricks, two questions each. */
const QUESTIONS = CASES * 19 * 2;
let folder = '';
const judges: RunningJudge[] = [];
beforeEach(() => {
  folder = newFolder();
});
afterEach(async () => {
  await Promise.all(judges.splice(0).map((judge) => judge.close()));
});

async function judge(options: Partial<JudgeOptions> = {}): Promise<RunningJudge> {
  const started = await startJudge({ port: 0, host: '127.0.0.1', ...options });
  judges.push(started);
  return started;
}

function request({ url }: RunningJudge, changes: Partial<ExamRequest> = {}): ExamRequest {
  const { signal } = new AbortController();
  return {
    settings: rewardFromFlags({
      terms: ['viescore'],
      ocrWeight: null,
      vlmWeight: null,
      endpoint: url,
      model: JUDGE_MODEL,
    }),
    set: tinyExam(CASES),
    repeats: 2,
    folder,
    resolveRun: () => null as never,
    onWaiting: () => undefined,
    onNote: () => undefined,
    judge: { notice: () => undefined, lost: () => undefined, over: signal },
    signal,
    ...changes,
  };
}

describe('an exam', () => {
  it('continues where it was stopped, and comes to the same', async () => {
    const server = await judge();
    const whole = await runExam(request(await judge(), { folder: newFolder() }));
    const stop = new AbortController();
    const onCase = (done: number): void => {
      if (done === 8) stop.abort();
    };
    await expect(runExam(request(server, { signal: stop.signal, onCase }))).rejects.toMatchObject({
      name: 'AbortError',
    });
    expect(existsSync(join(folder, EXAM_FILE))).toBe(false);
    expect(existsSync(join(folder, 'lock'))).toBe(false);
    const before = server.stats().requests;
    expect(before).toBeLessThan(QUESTIONS);
    const record = await runExam(request(server));
    // Those under way when it was stopped are asked again, and each opening asks one small question.
    expect(server.stats().requests - before).toBeLessThanOrEqual(QUESTIONS - 8 * 38 + 1);
    expect(record.marks).toEqual(whole.marks);
    expect(record.judgements.count).toBe(QUESTIONS);
  });

  it('asks again what got no score the last time', async () => {
    const first = await runExam(request(await judge({ biases: { unreadable: 0.2 } })));
    const { understood } = first.marks;
    expect(understood.mean).toBeLessThan(0.8);
    const sound = await judge();
    const second = await runExam(request(sound));
    expect(second.marks.understood.mean).toBe(1);
    expect(second.judgements.problems).toEqual({});
    expect(sound.stats().requests).toBeLessThan(QUESTIONS / 2);
  });

  it('names the model that answered, not the name that it was asked by', async () => {
    const { url } = await judge();
    const proxy = createServer((call, reply) => {
      void (async () => {
        const { method, body } = { method: call.method ?? 'GET', body: await textOf(call) };
        const headers = { 'content-type': 'application/json' };
        const found = await fetch(`${new URL(url).origin}${call.url}`, {
          method,
          headers,
          ...(method === 'POST' ? { body } : {}),
        });
        const said = (await found.text()).replace(`"model":"${JUDGE_MODEL}"`, '"model":"Qwen/Qwen2.5-VL-7B"');
        reply.writeHead(found.status, headers).end(said);
      })();
    });
    await new Promise<void>((resolve) => proxy.listen(0, '127.0.0.1', resolve));
    const { port } = proxy.address() as AddressInfo;
    const settings = { ...request(judges[0]).settings, endpoint: `http://127.0.0.1:${port}/v1`, model_alias: true };
    try {
      const { reward } = await runExam(request(judges[0], { set: tinyExam(2), settings }));
      expect(reward).toMatchObject({ asked: JUDGE_MODEL, model: 'Qwen/Qwen2.5-VL-7B' });
    } finally {
      proxy.close();
      proxy.closeAllConnections();
    }
  });

  it('is made by one process at a time', async () => {
    const server = await judge();
    const first = runExam(request(server));
    await expect(runExam(request(server))).rejects.toThrow('another process makes this exam');
    await first;
  });
});
