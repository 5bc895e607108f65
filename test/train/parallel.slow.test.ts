/** One run on several ranks, each rank a process group member inside this process. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { ImageEditSettings } from '../../src/recipes/image_edit_tokens/settings.js';
import { latestWhole } from '../../src/run/checkpoints.js';
import { claimRun } from '../../src/run/claim/claim.js';
import { openRunLog } from '../../src/run/logs.js';
import { MetricsJournal, readMetrics, type Metrics } from '../../src/run/metrics.js';
import { RunPaths } from '../../src/run/paths.js';
import type { LoopEnd } from '../../src/train/loop.js';
import { JUDGE_MODEL, startJudge, type RunningJudge } from '../../src/rewards/rule_judge/server.js';
import { recipeOpening } from '../../src/recipes/open.js';
import { trainRun } from '../../src/train/worker.js';
import { testFolder } from '../support/folder.js';
import { makeSmallWorld, smallSettings, type SmallWorld } from '../recipes/image_edit_tokens/small_world.js';
import { onRanks } from './groups.js';
import { sameOnRanks, untimed } from './on_ranks.js';

const root = testFolder('parallel');
let world: SmallWorld;
let judge: RunningJudge;
beforeAll(async () => {
  world = await makeSmallWorld(root);
  judge = await startJudge({ port: 0, host: '127.0.0.1', models: [JUDGE_MODEL] });
});
afterAll(async () => {
  await judge.close();
});

sameOnRanks([4]);

describe('a run on two ranks', () => {
  const paths = (name: string): RunPaths => new RunPaths(root, name);

  function settingsOf(name: string, changes: Record<string, Record<string, unknown>> = {}): ImageEditSettings {
    const settings = smallSettings(world, {
      validation: { prompts: 4, every_n_iterations: 2 },
      ...changes,
    });
    return { ...settings, run_name: name, base_exp_dir: root, num_iterations: 4 };
  }

  async function attempt(settings: ImageEditSettings, size: number, stopAfter = Infinity): Promise<LoopEnd[]> {
    return onRanks(size, async (group) => {
      const stop = new AbortController();
      const common = {
        group,
        resolveRun: () => '',
        judge: { endpoint: judge.url, token: null },
        stop: stop.signal,
      };
      const logOf = (attempt: number) =>
        openRunLog({ paths: paths(settings.run_name), attempt, rank: group.rank, terminal: null });
      if (group.rank > 0) {
        const log = logOf(1);
        try {
          return await trainRun(settings, recipeOpening(settings), { ...common, handle: null, log });
        } finally {
          group.close();
          await log.close();
        }
      }
      const handle = claimRun({
        settings: { run_name: settings.run_name, base_exp_dir: root, num_iterations: 4 },
        compare: () => [],
        resultHash: 'a',
        importHash: 'b',
        command: [],
        versions: {},
      });
      const log = logOf(handle.attempt);
      class StoppingJournal extends MetricsJournal {
        override append(iteration: number, metrics: Metrics): void {
          super.append(iteration, metrics);
          if (iteration === stopAfter) stop.abort();
        }
      }
      const journal = new StoppingJournal(handle.paths);
      try {
        return await trainRun(settings, recipeOpening(settings), { ...common, handle, log, journal });
      } finally {
        group.close();
        journal.close();
        handle.release();
        await log.close();
      }
    });
  }

  const weights = (name: string): Buffer => readFileSync(join(latestWhole(paths(name))!.dir, 'policy.safetensors'));
  const judged = (name: string): string[] =>
    readFileSync(paths(name).judgements, 'utf8')
      .trim()
      .split('\n')
      .map((line) => (JSON.parse(line) as { key: string }).key)
      .sort();

  it('that is stopped and resumed ends in the same bits as one that was not, and judges what one process judges', async () => {
    expect(await attempt(settingsOf('whole'), 2)).toEqual(Array(2).fill({ kind: 'finished', reason: null }));
    expect(await attempt(settingsOf('parts'), 2, 2)).toEqual(Array(2).fill({ kind: 'interrupted' }));
    expect(latestWhole(paths('parts'))?.iteration).toBe(2);
    // Its judgements are there: another iteration 3 would ask for nothing that it already has.
    await attempt(settingsOf('parts'), 2);
    expect(weights('parts').equals(weights('whole'))).toBe(true);
    const numbers = (name: string): unknown =>
      readMetrics(paths(name)).map(({ iteration, metrics }) => [iteration, untimed(metrics)]);
    expect(numbers('parts')).toEqual(numbers('whole'));
    await attempt(settingsOf('single'), 1);
    expect(judged('whole')).toEqual(judged('single'));
    expect(judged('parts')).toEqual(judged('single'));
  });
});
