/** What is done for runs before any of them starts, and in which order. */
import { dirname, join } from 'node:path';
import { writeFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { loadExperiment } from '../../../src/config/experiment/load.js';
import type { LoadedConfig } from '../../../src/config/load.js';
import { noView } from '../../../src/launch/live/view.js';
import { Launcher } from '../../../src/launch/launcher.js';
import { Preflight } from '../../../src/launch/preflight/preflight.js';
import { submitSweep } from '../../../src/launch/slurm/submit.js';
import { testFolders } from '../../support/folder.js';
import { fileOf, runOf } from './prompted_run.js';

const newFolder = testFolders('ready');

const NO_ROOM = [{ context: 16, answer: 12 }, [12, 13, 15]] as const;
const LITTLE_ROOM = [{ context: 16, answer: 12 }, [4, 5, 3, 8]] as const;

/** Notes the steps that are taken. */
async function stepsOf(runs: readonly LoadedConfig[], rehearsed: boolean): Promise<string[]> {
  const steps: string[] = [];
  const models = {
    obstacles: () => {
      steps.push('models');
      return Promise.resolve([]);
    },
    fetch: () => {
      steps.push('download');
      return Promise.resolve();
    },
  };
  const preflight = new Preflight();
  await preflight.prepare(runs, { models: rehearsed ? null : models, warn: (warning) => void steps.push(warning) });
  return steps;
}

describe('runs that are to start', () => {
  it('are warned, and fetch the models of the Hub that they name unless it is a rehearsal', async () => {
    const run = await runOf(newFolder(), ...LITTLE_ROOM);
    const warning: unknown = expect.stringMatching(/2 of 4 .* checked prompts leave answers 8 to 11 tokens/);
    expect(await stepsOf([run], false)).toEqual([warning]);
    const { settings } = run;
    const policy = { ...(settings as { policy?: object }).policy, model: { hub: 'some/model', revision: 'main' } };
    const named = { ...run, settings: { ...settings, policy } as typeof settings };
    expect(await stepsOf([named], false)).toEqual(['models', 'download']);
    expect(await stepsOf([named], true)).toEqual([]);
  });

  it('are checked before any request or download', async () => {
    const run = await runOf(newFolder(), ...LITTLE_ROOM);
    const { settings } = run;
    const data = { ...(settings as { data?: object }).data, train: [{ path: 'nowhere.jsonl', coefficient: null }] };
    const broken = { ...run, settings: { ...settings, data } as typeof settings };
    const unasked = {
      obstacles: () => Promise.reject(new Error('asked')),
      fetch: () => Promise.reject(new Error('asked')),
    };
    await expect(new Preflight().prepare([broken], { models: unasked, warn: () => {} })).rejects.toThrow(
      'there is no such dataset',
    );
  });

  it('are rejected by the room of their prompts, one run, a sweep, or a sweep that Slurm places', async () => {
    const file = fileOf(newFolder(), ...NO_ROOM);
    const base = JSON.stringify({ launch: { backend: 'slurm' } });
    const path = join(dirname(file), 'trial.jsonnet');
    const axes = { seed: { '1': { seed: 1 }, '2': { seed: 2 } } };
    writeFileSync(path, `{ name: 'trial', base: import 'own.jsonnet', axes: ${JSON.stringify(axes)} }`);
    const onSlurm = path.replace('trial', 'placed');
    writeFileSync(onSlurm, `{ name: 'placed', base: (import 'own.jsonnet') + ${base}, axes: ${JSON.stringify(axes)} }`);
    const here = await loadExperiment({ file: path });
    const launcher = new Launcher({ view: noView, command: [], stop: new AbortController().signal });
    const refusal = /leave answers 1 to 4 tokens/;
    const configs = here.cells.map(({ config }) => config);
    await expect(launcher.ready(configs, { claimed: [] })).rejects.toThrow(refusal);
    await expect(launcher.run(configs[0])).rejects.toThrow(refusal);
    await launcher.close();
    const limits = { maxParallel: null, retries: 0, failFast: false };
    const placed = await loadExperiment({ file: onSlurm });
    await expect(submitSweep(placed, { only: null, failed: false }, limits, ['node', 'main.js'])).rejects.toThrow(
      refusal,
    );
  });
});
