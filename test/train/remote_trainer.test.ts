/** GRPO through a trainer that lives elsewhere: the same loop, records and checkpoints, to the same bits; and what is lost on the way. */
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, describe, expect, it } from 'vitest';
import { EndpointError } from '../../src/core/errors.js';
import type { Emu3Prompt } from '../../src/policies/tokens/emu3.js';
import { claimRun } from '../../src/run/claim.js';
import { openRunLog } from '../../src/run/logs.js';
import { MetricsJournal, readMetrics, type Metrics } from '../../src/run/metrics.js';
import { RunPaths } from '../../src/run/paths.js';
import { openLocalSender } from '../../src/rewards/judge/sender.js';
import type { LoopEnd } from '../../src/train/loop.js';
import { trainRun } from '../../src/train/worker.js';
import { RemotePolicy, TrainerService, type Outage } from '../policies/remote/trainer.js';
import { makeSmallWorld, smallSettings, type SmallWorld } from '../recipes/image_edit_tokens/small_world.js';
import { testFolder } from '../support/folder.js';
import { rewardByName, scored, scorerOf, smallTraining } from './small_training.js';
import { untimed } from './on_ranks.js';

const root = testFolder('remote-trainer');
let world: SmallWorld;
beforeAll(async () => {
  world = await makeSmallWorld(root);
});

const ITERATIONS = 4;
const scorer = scorerOf((key) => scored(rewardByName(key)));
const paths = (name: string): RunPaths => new RunPaths(root, name);

/** One attempt of a run, which goes on where the last one of that name ended: with two optimizer steps an iteration. */
async function attempt(name: string, service: TrainerService<Emu3Prompt> | null): Promise<LoopEnd> {
  const settings = smallSettings(world, {
    algorithm: { inner_epochs: 2 },
    validation: { every_n_iterations: 2 },
  });
  const through = (policy: ReturnType<typeof smallTraining>['policy']) => {
    if (service === null) return policy;
    service.host(policy);
    return new RemotePolicy(service, () => policy.dispose());
  };
  const handle = claimRun({
    settings: { run_name: name, base_exp_dir: root, num_iterations: ITERATIONS },
    compare: () => [],
    resultHash: 'a',
    importHash: 'b',
    command: [],
    versions: {},
  });
  const log = openRunLog({ paths: handle.paths, attempt: handle.attempt, rank: 0, terminal: null });
  const journal = new MetricsJournal(handle.paths);
  try {
    return await trainRun(
      {
        ...settings,
        num_iterations: ITERATIONS,
        checkpoint: { ...settings.checkpoint, save_every_n_iterations: 3, keep_last: 9 },
      },
      {
        columns: [],
        open: async ({ group }) => smallTraining(settings, scorer, group, { through }).training,
      },
      {
        handle,
        log,
        journal,
        resolveRun: () => '',
        judge: null,
        stop: new AbortController().signal,
        openSender: openLocalSender,
      },
    );
  } finally {
    journal.close();
    handle.release();
    await log.close();
  }
}

const measured = (name: string): Metrics[] => readMetrics(paths(name)).map(({ metrics }) => untimed(metrics));
const checkpoints = (name: string): string[] => readdirSync(paths(name).checkpointsDir).sort();
const serviceOf = (name: string): TrainerService<Emu3Prompt> => new TrainerService(join(root, 'saved', name));

describe('a run whose policy is trained elsewhere', () => {
  const finished = { kind: 'finished', reason: null } as const;
  const checksums: string[] = [];

  it('samples, measures, learns and evaluates as one that is trained here, to the bit', async () => {
    expect(await attempt('here', null)).toEqual(finished);
    const service = serviceOf('elsewhere');
    expect(await attempt('elsewhere', service)).toEqual(finished);
    expect(measured('elsewhere')).toEqual(measured('here'));
    expect(measured('here')).toHaveLength(ITERATIONS + 1);
    expect(service.asked.filter((name) => name === 'step')).toHaveLength(2 * ITERATIONS);
    checksums.push((await service.ask('checksum', {})) as string);
  });

  const outages: [string, Outage, string[]][] = [
    // In iteration 3, between its two optimizer steps: what was learnt belongs to no iteration.
    ['between two steps', { request: 'learn', nth: 6, lost: 'request' }, ['000000']],
    // The last step of iteration 3 is taken, and nobody here knows.
    ['with the reply to a step', { request: 'step', nth: 6, lost: 'reply' }, ['000000']],
    // Nothing is learnt of iteration 3 yet.
    ['before anything is learnt', { request: 'learn', nth: 5, lost: 'request' }, ['000000', '000002']],
    ['while it saves', { request: 'save', nth: 2, lost: 'request' }, ['000000']],
  ];

  it.each(outages)(
    'that is lost %s ends, keeps no half iteration, and resumes to the same bits',
    async (what, lose, kept) => {
      const name = `lost-${lose.request}-${lose.nth}`;
      const service = serviceOf(name);
      service.lose = lose;
      await expect(attempt(name, service)).rejects.toThrow(EndpointError);
      expect(service.asked.filter((one) => one === lose.request).length, what).toBeGreaterThanOrEqual(lose.nth);
      expect(checkpoints(name)).toEqual(kept);
      // Another process, with a trainer that has nothing but what it saved.
      const again = serviceOf(name);
      expect(await attempt(name, again)).toEqual(finished);
      expect(again.asked).toContain('load');
      expect(measured(name)).toEqual(measured('here'));
      expect(checkpoints(name)).toContain('000004');
      expect(await again.ask('checksum', {})).toBe(checksums[0]);
    },
  );
});
