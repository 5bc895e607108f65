import { describe, expect, it } from 'vitest';
import { loadConfig, type LoadedConfig } from '../../../src/config/load.js';
import { rankCommands, startsItsOwnRanks, wandbRunId } from '../../../src/launch/attempts/command.js';
import { RunPaths } from '../../../src/run/paths.js';
import type { RunRecord } from '../../../src/run/record.js';
import { recordWandbId } from '../../../src/run/track/wandb/environment.js';
import { testFolders } from '../../support/folder.js';

const folder = testFolders('command');

const load = (...sets: string[]): Promise<LoadedConfig> =>
  loadConfig({ file: 'experiments/foreign/quadratic.jsonnet', sets, env: {} });

function claimed(kind: 'new' | 'resumed', created_at = '2026-01-01') {
  const record: RunRecord = {
    format: 1,
    run_name: 'quadratic',
    hash: '',
    import_hash: '',
    settings: {},
    parents: [],
    created_at,
    attempts: [],
  };
  return { paths: new RunPaths('/runs', 'quadratic'), attempt: 2, record, kind };
}
const place = { placement: { devices: [4, 5], threads: 3 }, processes: 2 };

describe('a command', () => {
  it.each([
    [['torchrun', 'train.py'], true],
    [['/opt/bin/accelerate', 'launch', 'train.py'], true],
    [['python3', '-m', 'torch.distributed.run', 'train.py'], true],
    [['python3', '-m', 'trainer'], false],
    [['python3', 'train.py'], false],
  ])('%j starts its own ranks: %s', (command, expected) => {
    expect(startsItsOwnRanks(command)).toBe(expected);
  });

  it('is started once per rank, which gets its rank and its address', async () => {
    const ranks = rankCommands(
      { config: await load('launch.env.EXTRA="1"'), handle: claimed('resumed'), ...place },
      1234,
    );
    expect(ranks.map(({ env }) => [env['RANK'], env['WORLD_SIZE'], env['CUDA_VISIBLE_DEVICES']])).toEqual([
      ['0', '2', '4'],
      ['1', '2', '5'],
    ]);
    expect(ranks[1].env).toMatchObject({
      RUN_NAME: 'quadratic',
      RUN_DIR: '/runs/quadratic',
      RESUME: '1',
      EDITRL_CONFIG: '/runs/quadratic/trainer/config.json',
      EDITRL_METRICS: '/runs/quadratic/trainer/metrics_002.jsonl',
      EDITRL_CHECKPOINTS: '/runs/quadratic/trainer/checkpoints',
      APP__RUN_NAME: 'quadratic',
      MASTER_PORT: '1234',
      EXTRA: '1',
    });
  });

  it('that starts its own ranks is started once, with all devices and no rank', async () => {
    const ranks = rankCommands(
      { config: await load('launch.command=["torchrun","train.py"]'), handle: claimed('new'), ...place },
      1234,
    );
    expect(ranks).toHaveLength(1);
    expect(ranks[0].env).toMatchObject({
      CUDA_VISIBLE_DEVICES: '4,5',
      PET_NPROC_PER_NODE: '2',
      PET_MASTER_PORT: '1234',
      RESUME: '0',
    });
    expect(ranks[0].env).not.toHaveProperty('RANK');
  });

  it('has one W&B run for all attempts, and another one when it is made again', () => {
    const [first, again, anew] = [claimed('new'), claimed('resumed'), claimed('new', '2026-02-02')].map(wandbRunId);
    expect(again).toBe(first);
    expect(anew).not.toBe(first);
  });

  it('has the W&B run that was noted for it', () => {
    const handle = { ...claimed('new'), paths: new RunPaths(folder(), 'quadratic') };
    recordWandbId(handle.paths, 'mine');
    expect(wandbRunId(handle)).toBe('mine');
  });
});
