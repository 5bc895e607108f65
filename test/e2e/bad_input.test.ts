import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdirSync, readdirSync, readFileSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest';
import type { Manifest } from '../../src/run/checkpoints.js';
import { configFile, Place, RL, SMALL, START, until, type Ended } from './editrl.js';

let place: Place;
beforeAll(() => {
  place = Place.make(inject('template'));
});
afterAll(() => place.remove());

/** One message: every line of standard error belongs to it, and none comes from a stack trace. */
function expectMessage(ended: Ended, code: number, ...parts: readonly (string | RegExp)[]): void {
  expect(ended.code, ended.err).toBe(code);
  expect(ended.err.match(/^editrl: /gm)).toHaveLength(1);
  expect(ended.err).toMatch(/^editrl: /);
  expect(ended.err).not.toMatch(/\n\s+at /);
  for (const part of parts) expect(ended.err).toMatch(part);
}

function writeConfig(name: string, text: string): string {
  const file = join(place.dir, `${name}.jsonnet`);
  writeFileSync(file, text);
  return file;
}

function runConfig(file: string, ...more: readonly string[]): Promise<Ended> {
  return place.call(['run', file, ...SMALL, ...more]);
}

describe('a wrong config', () => {
  it.each([
    ['is malformed', '{ a: 1,\n  b: }', [/malformed\.jsonnet:2/]],
    ['asks for an external variable that is not set', "{ run_name: std.extVar('APP__NOWHERE') }", [/APP__NOWHERE/]],
    ['imports a file that is not there', "import 'nothing.libsonnet'", [/nothing\.libsonnet/]],
    ['is not an object', '[1, 2]', [/a list; allowed: an object/]],
  ] as const)('that %s', async (_, text, parts) => {
    const ended = await place.call(['run', writeConfig('malformed', text)]);
    expectMessage(ended, 2, ...parts);
  });

  it.each([
    ['an unknown key', 'rollout.generation_per_sample=4', [/rollout\.generation_per_sample/, /generations_per_sample/]],
    ['a wrong type', 'seed=many', [/seed/, /"many"|'many'/, /number/]],
    ['groups that are not whole', 'rollout.generations_per_sample=3', [/multiple of rollout\.generations_per_sample/]],
    ['a run name that is a path', 'run_name=../elsewhere', [/run_name/]],
    ['a judge that is no URL', 'reward.endpoint=somewhere', [/reward\.endpoint/, /http/]],
    ['a task of another recipe', 'task=edit_response', [/policy\.chat_words: unknown key/]],
  ] as const)('with %s', async (_, set, parts) => {
    expectMessage(await runConfig(configFile(RL), '--set', set), 2, ...parts);
  });

  it('reports all problems at once', async () => {
    const ended = await runConfig(configFile(RL), '--set', 'seed=many', '--set', 'optimiser.lr=1');
    expectMessage(ended, 2, /seed/, /optimiser/, /optimizer/);
  });

  it('of the full size says at once which data is missing', async () => {
    const ended = await place.call(['run', configFile(START), '--set', 'run_name=full_size']);
    expectMessage(ended, 1, /train_20250224\/list\/tokenized_datalist\.json: there is no list of samples here/);
    expect(ended.err).toMatch(/^editrl: 2 problems found; nothing was started\n/);
  });
});

describe('a dataset', () => {
  it('with a damaged sample names the file, and the run continues when it is whole again', async () => {
    const list = join(place.data, 'tiny/s/prompts/list/tokenized_datalist.json');
    const { path_list: samples } = JSON.parse(readFileSync(list, 'utf8')) as { path_list: string[] };
    const files = samples.map((sample) => join(place.data, 'tiny/s/prompts', sample));
    const contents = files.map((file) => readFileSync(file));
    for (const file of files) truncateSync(file, 100);
    const more = ['--set', 'run_name=damaged'];
    const ended = await runConfig(configFile(RL), ...more);
    expectMessage(ended, 1, /tiny\/edits-\w+\/s\/prompts\/samples\/\d+\.npz: a sample is not the one that was listed/);
    expect(place.state('damaged')).toMatchObject({ state: 'failed' });

    files.forEach((file, i) => writeFileSync(file, contents[i]));
    expect(await runConfig(configFile(RL), ...more)).toMatchObject({ code: 0, err: '' });
  });
});

describe('a checkpoint', () => {
  it('that is missing is named', async () => {
    const ended = await runConfig(configFile(RL), '--set', 'policy.model=/no/such/folder', '--set', 'run_name=lost');
    expectMessage(ended, 1, /\/no\/such\/folder/);
  });

  it('that is corrupt is passed over for the one before, which is reported', async () => {
    truncateSync(join(place.run(RL), 'checkpoints/000006/policy.safetensors'), 1000);
    const ended = await runConfig(configFile(RL), '--set', 'num_iterations=7');
    expect(ended).toMatchObject({ code: 0, err: '' });
    expect(ended.out).toMatch(/checkpoint skipped: .*000006\/policy\.safetensors has 1000 bytes/);
    expect(ended.out).toContain(`resuming ${RL} from iteration 4`);
    expect(place.metrics(RL).map(({ iteration }) => iteration)).toEqual([0, 1, 2, 3, 4, 5, 6, 7]);
  });

  it('whose weights are not finite is passed over though its manifest is right', async () => {
    const folder = join(place.run(RL), 'checkpoints/000007');
    const weights = join(folder, 'policy.safetensors');
    const bytes = readFileSync(weights);
    bytes.writeFloatLE(NaN, bytes.length - 4);
    writeFileSync(weights, bytes);
    const manifest = JSON.parse(readFileSync(join(folder, 'MANIFEST.json'), 'utf8')) as Manifest;
    const files = {
      ...manifest.files,
      'policy.safetensors': { bytes: bytes.length, sha256: createHash('sha256').update(bytes).digest('hex') },
    };
    writeFileSync(join(folder, 'MANIFEST.json'), JSON.stringify({ ...manifest, files }));
    const ended = await runConfig(configFile(RL), '--set', 'num_iterations=8');
    expect(ended).toMatchObject({ code: 0, err: '' });
    expect(ended.out).toMatch(
      /checkpoint skipped: .*000007\/policy\.safetensors: tensor \S+ contains .* not finite \(NaN/,
    );
    expect(ended.out).toContain(`resuming ${RL} from iteration 6`);
  });

  it('of which none is whole ends the run with what to do', async () => {
    for (const iteration of readdirSync(join(place.run(RL), 'checkpoints')).filter((name) => /^\d+$/.test(name))) {
      rmSync(join(place.run(RL), 'checkpoints', iteration, 'trainer.json'));
    }
    const ended = await runConfig(configFile(RL), '--set', 'num_iterations=9');
    expectMessage(ended, 1, /none of the \d checkpoints is valid; the newest: .*trainer\.json/, /move the folder/);
  });
});

/** A file system of a size, or why there is none. */
function mountSmall(dir: string, kib: number): string | null {
  mkdirSync(dir, { recursive: true });
  const mounted = spawnSync('mount', ['-t', 'tmpfs', '-o', `size=${kib}k`, 'tmpfs', dir], { encoding: 'utf8' });
  return mounted.status === 0 ? null : (mounted.error?.message ?? mounted.stderr.trim());
}

describe('a full disk', () => {
  it('ends the run with one message, and with space it continues to the same weights', async ({ skip }) => {
    const full = Place.make();
    const why = mountSmall(full.dir, 65_536);
    if (why !== null) {
      full.remove();
      skip(`a small file system cannot be mounted here: ${why}`);
    }
    try {
      const copied = spawnSync('cp', ['-a', `${inject('template')}/.`, full.dir], { encoding: 'utf8' });
      expect(copied.stderr).toBe('');
      const more = ['--set', 'run_name=full', '--set', 'num_iterations=12', '--set', 'checkpoint.keep_last=100'];
      expect(await runConfig(configFile(RL), ...more)).toMatchObject({ code: 0 });

      const live = full.start(['run', configFile(RL), ...SMALL, ...more]);
      await until('iteration 2', () => !live.isAlive() || (full.state('full')?.iteration ?? 0) >= 2);
      const filler = join(full.dir, 'filler');
      spawnSync('dd', ['if=/dev/zero', `of=${filler}`, 'bs=4k']);
      const ended = await live.ended;
      expect(ended.code).toBe(1);
      expect(ended.err).toMatch(/cannot write \(ENOSPC\)\n {2}The disk is full: free some space/);
      expect(ended.err.match(/^editrl: /gm)).toHaveLength(1);
      expect(ended.err).not.toMatch(/\n\s+at /);

      rmSync(filler);
      expect(await full.call(['run', configFile(RL), ...SMALL, ...more])).toMatchObject({ code: 0, err: '' });
      const weights = [place, full].map((where) => where.checkpointFile('full', 12, 'policy.safetensors'));
      expect(weights[1].equals(weights[0])).toBe(true);
    } finally {
      spawnSync('umount', [full.dir]);
      full.remove();
    }
  });
});
