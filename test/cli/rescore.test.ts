import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { encodePng, sha256 } from '../../src/core/images/image.js';
import { main } from '../../src/cli/main.js';
import type { RunPaths } from '../../src/run/paths.js';
import { makeSmallWorld, smallSettings } from '../recipes/image_edit_tokens/small_world.js';
import { capture, RunFolder } from './run_directory.js';

let folder: RunFolder;
let written: { out: string; error: string };
let paths: RunPaths;
beforeEach(async () => {
  folder = new RunFolder();
  const world = await makeSmallWorld(join(folder.dir, 'world'));
  paths = folder.make('a', 'finished');
  const settings = smallSettings(world);
  writeFileSync(paths.record, JSON.stringify({ format: 1, run_name: 'a', hash: 'h', settings, attempts: [] }));
  written = capture();
});
afterEach(() => {
  vi.restoreAllMocks();
  folder.remove();
});

const call = (...args: readonly string[]): Promise<number> => main(['rescore', 'a', '--exp-dir', folder.dir, ...args]);

it('says of a run without episodes that it has none', async () => {
  expect(await call('--offline', '--reward', 'jpeg_size')).toBe(0);
  expect(written.out).toContain('a: trained on viescore, rescored with jpeg_size');
  expect(written.out).toContain('It recorded no episodes.');
});

it.each([
  [['--reward', 'viescore', '--config', 'x.jsonnet'], 'found --reward and --config'],
  [['--set', 'seed=3'], '--set seed=3: allowed: keys of the reward'],
  [['--reward', 'beauty'], 'reward.mode: found "beauty"'],
  [['--reward', 'viescore', '--name', '../x'], "'../x' is not a valid run name"],
  [['--set', 'reward.terms=[{"name":"jpeg_size","weight":0.5}]'], 'weight'],
  [['--reward', 'viescore', '--name', 'measure-x'], "--name measure-x: names must not begin with 'measure-'"],
  [['--reward', 'viescore', '--with', 'x.libsonnet'], 'found --with x.libsonnet without --config'],
  [['--measure', 'jpeg_size', '--with', 'x.libsonnet'], 'found --measure beside --with'],
  [['--measure', 'jpeg_size', '--set', 'reward.model=other'], 'found --measure beside --set reward.model=other'],
])('rejects %j with exit code 2', async (args, message) => {
  expect(await call('--offline', ...args)).toBe(2);
  expect(written.error).toContain(message);
});

it('names its files by what is scored by', async () => {
  const name = async (...args: readonly string[]): Promise<string> => {
    written.out = '';
    expect(await call('--offline', '--json', ...args)).toBe(0);
    return (JSON.parse(written.out) as { name: string }).name;
  };
  expect(await name('--reward', 'sqrt(viescore_pq*ground_score)')).toMatch(
    /^sqrt_viescore_pqxground_score-[0-9a-f]{8}$/,
  );
  const terms = 'reward.terms=[{"name":"viescore","weight":0.5},{"name":"jpeg_size","weight":0.5}]';
  expect(await name('--set', terms)).toMatch(/^terms-/);
  expect(await name('--reward', 'viescore')).not.toBe(
    await name('--reward', 'viescore', '--set', 'reward.model=another'),
  );
  expect(await name('--name', 'mine')).toBe('mine');
});

it('scores a supervised run, which has no advantages, by a reward that is named', async () => {
  const record = JSON.parse(readFileSync(paths.record, 'utf8')) as { settings: { algorithm: object } };
  record.settings.algorithm = { type: 'sft' };
  writeFileSync(paths.record, JSON.stringify(record));
  await call('--offline', '--reward', 'jpeg_size');
  expect(written.error).not.toContain('algorithm.advantage');
  expect(written.out).toContain('rescored with jpeg_size');
});

it('asks for a measure where --set reports that the judge is', async () => {
  const asked = ['--measure', 'jpeg_size', '--set', 'reward.endpoint=http://127.0.0.1:9'];
  expect(await call(...asked)).toBe(1);
  expect(written.error).toContain("none of 0 held-out answers could be scored by 'jpeg_size'");
});

it('prints one JSON document, of several measures too', async () => {
  const png = await encodePng({ width: 8, height: 8, data: new Uint8Array(8 * 8 * 3).fill(90) });
  const picture = sha256(png);
  mkdirSync(paths.mediaDir, { recursive: true });
  writeFileSync(paths.media(picture), png);
  mkdirSync(paths.episodesDir, { recursive: true });
  const told = { key: 'validation/1/s/sampled/0', sample: 'a', instruction: 'b', finished: true };
  const outcome = { kind: 'scored', value: 1, normalised: 0.1, parts: {} };
  writeFileSync(
    paths.heldOutEpisodes(1),
    `${JSON.stringify({ ...told, source: picture, edited: picture, outcome })}\n`,
  );
  const both = ['jpeg_size', 'image_similarity'];
  expect(await call('--offline', '--json', ...both.flatMap((term) => ['--measure', term]))).toBe(0);
  const { measures } = JSON.parse(written.out) as { measures: { reward: string }[] };
  expect(measures.map(({ reward }) => reward)).toEqual(both);
  written.out = '';
  expect(await call('--offline', '--json', '--measure', 'jpeg_size')).toBe(0);
  expect(JSON.parse(written.out)).toMatchObject({ reward: 'jpeg_size', rescored: { scored: 1 } });
});

it('says before anything else that what it finds cannot be written', async () => {
  writeFileSync(paths.rescoredDir, '');
  expect(await call('--offline', '--reward', 'jpeg_size')).toBe(1);
  expect(written.error).toBe(
    `editrl: ${paths.rescoredDir}: is a file, not a folder\n  Rescoring writes there. Copy the run's folder to a writable place, and name the copy: editrl rescore /path/RUN\n`,
  );
});

it('reports which line of an episode file is none', async () => {
  mkdirSync(paths.episodesDir, { recursive: true });
  writeFileSync(paths.episodes(1), '{"key": "1/0/0"}\n');
  expect(await call('--offline', '--reward', 'jpeg_size')).toBe(1);
  expect(written.error).toMatch(/000001\.jsonl:1: invalid episode: sample/);
});
