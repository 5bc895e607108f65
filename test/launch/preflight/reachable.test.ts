import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, describe, expect, it, vi } from 'vitest';
import type { LoadedConfig } from '../../../src/config/load.js';
import { freePort } from '../../../src/launch/processes/supervise.js';
import { ServerChecks, type ServerCheckResult } from '../../../src/launch/preflight/reachable.js';
import { loadEvaluated } from '../../config/evaluated.js';
import { place, readsAndJudges } from '../../rewards/server/served.js';
import { startStubJudge, stubModel, type StubJudge } from '../../rewards/judge/stub_judge.js';
import { testFolders } from '../../support/folder.js';

const newFolder = testFolders('reachable');
const closing: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  vi.unstubAllEnvs();
  for (const close of closing.splice(0)) await close();
});

const overlays = ['configs/lib/tiny.libsonnet'];

/** The run of a config whose judge serves the stub's model. */
async function runOf(sets: readonly string[], file = 'configs/sft_s__rl_s.jsonnet'): Promise<LoadedConfig> {
  return loadEvaluated({ file, overlays, sets: [`reward.model=${stubModel}`, `base_exp_dir=${newFolder()}`, ...sets] });
}

async function judge(...models: string[]): Promise<StubJudge> {
  const data = models.map((id) => ({ id, object: 'model' }));
  const stub = await startStubJudge(() => ({ kind: 'text', text: 'ready' }), {
    ...(models.length === 0 ? {} : { models: { kind: 'json', body: { object: 'list', data } } }),
  });
  closing.push(stub.close);
  return stub;
}

async function downUrl(): Promise<string> {
  return `http://127.0.0.1:${await freePort()}/v1`;
}

function texts({ obstacles }: ServerCheckResult): string[] {
  return obstacles.map(({ run, error }) => `${run}: ${error.toText()}`);
}

const nothing: ServerCheckResult = { obstacles: [], notes: [] };

describe('what of the servers of runs is in the way', () => {
  it('is nothing if the judge lists its model and accepts two images, and is checked once for all runs', async () => {
    const stub = await judge();
    const run = await runOf([`reward.endpoint=${stub.url}`]);
    const other = { ...run, settings: { ...run.settings, run_name: 'other', seed: 7 } };
    const servers = new ServerChecks();
    expect(await servers.of([run, other])).toEqual(nothing);
    expect(await servers.of([other])).toEqual(nothing);
    expect(stub.requests.map(({ images }) => images.length)).toEqual([2]);
  });

  it('is no training server that is started with the run, which is reported', async () => {
    const trainer = JSON.stringify({ type: 'tinker', base_model: 'base', serve: {} });
    const file = 'configs/text_plain.jsonnet';
    const sets = ['policy.model=null', 'policy.init=null', 'policy.tokenizer=/folder', `policy.trainer=${trainer}`];
    const run = await loadEvaluated({ file, overlays: ['configs/lib/text_tiny.libsonnet'], sets });
    expect(await new ServerChecks().of([run])).toEqual({
      obstacles: [],
      notes: [
        `${run.settings.run_name}: its training server starts with the run and was not checked; \`editrl check --launch\` starts it`,
      ],
    });
  });

  it('is a judge that is down, reported for each set of runs that uses it', async () => {
    const url = await downUrl();
    const run = await runOf([`reward.endpoint=${url}`]);
    const servers = new ServerChecks();
    const found = texts(await servers.of([run, { ...run, settings: { ...run.settings, run_name: 'other' } }]));
    expect(found).toEqual([
      expect.stringMatching(/^sft_s__rl_s: http:.*\/v1: the judge is not ready: .*ECONNREFUSED.*\n {2}Start the judge/),
    ]);
    expect(texts(await servers.of([run]))).toEqual(found);
  });

  it('is none of several judges being ready; others that are not are noted, for a gateway leaves them out', async () => {
    const [up, other, down] = [(await judge()).url, (await judge('another')).url, await downUrl()];
    const some = await new ServerChecks().of([await runOf([`reward.endpoint=${JSON.stringify([up, other, down])}`])]);
    expect(some.obstacles).toEqual([]);
    expect(some.notes).toEqual([
      expect.stringMatching(/^sft_s__rl_s: one of its judges is not ready, but others are: .*it serves: 'another'/),
      expect.stringMatching(/not ready, but others are: .*ECONNREFUSED/),
    ]);
    const none = await new ServerChecks().of([await runOf([`reward.endpoint=${JSON.stringify([other, down])}`])]);
    expect([texts(none).length, none.notes]).toEqual([2, []]);
  });

  it('is no embedded judge, and none that is still to write its node file', async () => {
    expect(await new ServerChecks().of([await runOf([])])).toEqual({
      obstacles: [],
      notes: ['sft_s__rl_s: its embedded judge starts with the run and was not checked'],
    });
    const file = join(newFolder(), 'node');
    const run = await runOf([`reward.endpoint={"node_file":"${file}","port":${await freePort()}}`]);
    const found = await new ServerChecks().of([run]);
    expect(found.obstacles).toEqual([]);
    expect(found.notes).toEqual([
      expect.stringMatching(/its judge is not running yet, and the run will wait for it: .*\/node: /),
    ]);
    writeFileSync(file, '127.0.0.1\n');
    expect(texts(await new ServerChecks().of([run]))[0]).toContain('the judge is not ready');
  });

  it('is a reward server that is unreachable, without waiting for it, or a term that cannot be made here', async () => {
    const remote = (endpoint: string): string[] => [
      'reward.mode=null',
      `reward.terms=[{"name":"remote","weight":1,"endpoint":"${endpoint}"}]`,
    ];
    const here = place();
    closing.push(() => here.close());
    const { url } = await here.start(readsAndJudges);
    expect(await new ServerChecks().of([await runOf(remote(url))])).toEqual(nothing);
    const { origin } = new URL(await downUrl());
    expect(texts(await new ServerChecks().of([await runOf(remote(origin))]))).toEqual([
      expect.stringMatching(
        /^sft_s__rl_s: http.*: no reward server is ready: .*\n {2}Start one with `editrl serve rewards`/,
      ),
    ]);
    const gone = join(newFolder(), 'gone');
    const clip = ['reward.mode=null', `reward.terms=[{"name":"clip","weight":1,"model":"${gone}"}]`];
    expect(texts(await new ServerChecks().of([await runOf(clip)]))).toEqual([
      expect.stringContaining(`${gone}: there is no such model folder`),
    ]);
  });
});
