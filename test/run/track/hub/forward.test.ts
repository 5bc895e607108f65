import { existsSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { setTimeout as delay } from 'node:timers/promises';
import { beforeEach, expect, it } from 'vitest';
import { saveCheckpoint } from '../../../../src/run/checkpoints.js';
import {
  publishCheckpoints,
  type HubOptions,
  type PublishReply,
  type SentRequest,
} from '../../../../src/run/track/hub/forward.js';
import { testFolders } from '../../../support/folder.js';
import { FakeRun } from '../run_directory.js';

const folder = testFolders('hub-forward');
const over = AbortSignal.abort();
let asked: SentRequest[];
let said: string[];
let answer: (request: SentRequest) => PublishReply;

beforeEach(() => {
  [asked, said] = [[], []];
  answer = ({ branch }) => ({ repository: 'me/edits', url: `https://hub/me/edits/tree/${branch}`, commit: 'c0ffee' });
});

function publish(run: FakeRun, given: Partial<HubOptions> = {}): Promise<number> {
  return publishCheckpoints({
    paths: run.paths,
    settings: { every_n_iterations: 10, repo_id: 'me/edits', private: true },
    ending: over,
    giveUp: new AbortController().signal,
    say: (line) => void said.push(line),
    everyMs: 5,
    publish: async (request) => {
      asked.push(request);
      // It stays while it is published, whatever the run does with its own.
      expect(readdirSync(request.checkpoint)).toContain('policy.safetensors');
      await delay(1);
      return answer(request);
    },
    ...given,
  });
}

function checkpoint(run: FakeRun, iteration: number): void {
  saveCheckpoint(run.paths, iteration, { 'policy.safetensors': `weights ${iteration}` });
}

const branches = (): string[] => asked.map(({ branch }) => branch);

it('publishes what is due on branches, and the end of a finished run as main, each once', async () => {
  const run = new FakeRun(folder());
  for (const iteration of [5, 10, 20, 25]) checkpoint(run, iteration);
  run.state('finished', 25);
  expect(await publish(run)).toBe(3);
  expect(branches()).toEqual(['ckpt_000010', 'ckpt_000020', 'main']);
  expect(asked.map(({ iteration }) => iteration)).toEqual([10, 20, 25]);
  expect(said).toEqual([
    'published iteration 10: https://hub/me/edits/tree/ckpt_000010',
    'published iteration 20: https://hub/me/edits/tree/ckpt_000020',
    'published iteration 25: https://hub/me/edits/tree/main',
  ]);
  expect(await publish(run)).toBe(0);
  expect(asked).toHaveLength(3);
  checkpoint(run, 30);
  expect(await publish(run)).toBe(2);
  expect(branches().slice(3)).toEqual(['ckpt_000030', 'main']);
  expect(readdirSync(run.paths.trackDir)).toEqual(['hub.json']);
});

it('keeps a checkpoint that the run removes', async () => {
  const run = new FakeRun(folder());
  const ending = new AbortController();
  for (const iteration of [10, 20]) checkpoint(run, iteration);
  const publishing = publish(run, {
    ending: ending.signal,
    publish: async (request) => {
      asked.push(request);
      rmSync(run.paths.checkpoint(20), { recursive: true, force: true });
      expect(readFileSync(`${request.checkpoint}/policy.safetensors`, 'utf8')).toBe(`weights ${request.iteration}`);
      return answer(request);
    },
  });
  await delay(60);
  ending.abort();
  await publishing;
  expect(branches()).toEqual(['ckpt_000010', 'ckpt_000020']);
});

it('leaves a checkpoint that is damaged, and reports it', async () => {
  const run = new FakeRun(folder());
  checkpoint(run, 10);
  writeFileSync(`${run.paths.checkpoint(10)}/policy.safetensors`, 'others');
  await expect(publish(run)).rejects.toThrow('not published: ckpt_000010');
  expect(said).toEqual(['iteration 10 was not published: its checkpoint is damaged']);
  expect(branches()).toEqual([]);
});

it('reports what is not published, continues, and does it the next time', async () => {
  const run = new FakeRun(folder());
  for (const iteration of [10, 20]) checkpoint(run, iteration);
  answer = ({ branch, iteration }) =>
    iteration === 10
      ? { problem: 'the Hub cannot be reached', lasting: false }
      : { repository: 'me/edits', url: branch, commit: 'c' };
  await expect(publish(run)).rejects.toMatchObject({
    message: 'not published: ckpt_000010',
    next: 'To publish a checkpoint that still exists: editrl export run@ITERATION --hub me/edits',
  });
  expect(said[0]).toBe('iteration 10 was not published: the Hub cannot be reached');
  expect(branches()).toEqual(['ckpt_000010', 'ckpt_000020']);
  answer = () => ({ repository: 'me/edits', url: '', commit: 'c' });
  expect(await publish(run)).toBe(1);
});

it('says it once if no checkpoint could be published', async () => {
  const run = new FakeRun(folder());
  for (const iteration of [10, 20]) checkpoint(run, iteration);
  answer = () => ({ problem: 'there is no token', lasting: true });
  await expect(publish(run)).rejects.toThrow('not published: ckpt_000010');
  expect(said).toEqual(['iteration 10 was not published: there is no token']);
});

it('rejects what cannot name a repository, and notes of another version', async () => {
  const run = new FakeRun(folder());
  await expect(
    publish(run, { settings: { every_n_iterations: 1, repo_id: 'a/b/c', private: true } }),
  ).rejects.toMatchObject({ where: 'track.push_to_hub.repo_id' });
  checkpoint(run, 10);
  await publish(run);
  writeFileSync(run.paths.hub, '{"format":2}');
  await expect(publish(run)).rejects.toMatchObject({ where: run.paths.hub });
  expect(existsSync(run.paths.hub)).toBe(true);
});
