/** EARL's configs at full size, with a small Emu3 of the published forms in the published one's place. */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { configFile, Place, ROOT } from '../editrl.js';

const SMALL = ['--with', 'test/e2e/recipes/emu3_small.libsonnet'];
const FIXTURE = join(ROOT, 'test/recipes/image_edit_tokens/emu3');
const env = { APP__EMU3: FIXTURE, APP__EMU3_REWARD: join(ROOT, 'docs/rewards/brightness_change.js') };

describe("EARL's configs with Emu3's forms", () => {
  let place: Place;
  beforeAll(() => {
    place = Place.make(null);
  });
  afterAll(() => place.remove());

  const call = (verb: string, name: string, ...more: string[]) =>
    place.call([verb, configFile(name), ...SMALL, ...more], env);

  const lossOf = (run: string, iteration: number) =>
    place.metrics(run).find((line) => line.iteration === iteration)?.['policy/loss'] as number;

  it('pass check and plan, with folders that exist', async () => {
    expect(await place.call(['check', configFile('sft_s__rl_s'), ...SMALL], env)).toMatchObject({ code: 0 });
    const planned = await call('plan', 'sft_s__rl_s', '--json');
    expect(planned).toMatchObject({ code: 0 });
    const { cells } = JSON.parse(planned.out) as { cells: { run_name: string; memory_bytes: number }[] };
    expect(cells.map(({ run_name }) => run_name)).toEqual(['sft_s__rl_s']);
    expect(cells[0].memory_bytes).toBeGreaterThan(2 ** 27);
  });

  it('train by SFT on what torch saved, then by GRPO, and continue bit for bit', async () => {
    expect(await call('run', 'sft_s__rl_s')).toMatchObject({ code: 0 });
    expect(lossOf('sft_s', 80)).toBeLessThan(0.1 * lossOf('sft_s', 1));
    // What was learned is drawn: nearly every answer holds an image of the source's size, and ends.
    const episodes = readFileSync(join(place.run('sft_s__rl_s'), 'episodes/000001.jsonl'), 'utf8')
      .trim()
      .split('\n');
    const read = episodes.map(
      (line) => JSON.parse(line) as { grid: { height: number; width: number } | null; source: string; edited: string },
    );
    const drawn = read.filter(({ grid }) => grid?.height === 3 && grid.width === 4);
    expect(drawn.length).toBeGreaterThanOrEqual(6);
    expect(drawn[0]).toMatchObject({
      source: expect.stringMatching(/^[0-9a-f]{64}/) as string,
      edited: expect.stringMatching(/^[0-9a-f]{64}/) as string,
    });
    const names = ['--set', 'run_name=stopped'];
    expect(await call('run', 'sft_s__rl_s', ...names, '--set', 'num_iterations=2')).toMatchObject({ code: 0 });
    expect(await call('run', 'sft_s__rl_s', ...names, '--set', 'num_iterations=4')).toMatchObject({ code: 0 });
    const files = readdirSync(join(place.run('stopped'), 'checkpoints', '000004'));
    expect(files).toContain('tokenizer.json');
    for (const file of ['policy.safetensors', 'optimizer.safetensors', 'tokenizer.json', 'config.json']) {
      const [whole, resumed] = ['sft_s__rl_s', 'stopped'].map((run) => place.checkpointFile(run, 4, file));
      expect(resumed.equals(whole), file).toBe(true);
    }
  });

  it('train one that reasons before it draws, in the tokenizer that BAAI publishes', async () => {
    const tokenizer = ['--set', `policy.tokenizer=${join(FIXTURE, 'tiktoken')}`];
    expect(await call('run', 'sft_think_s', '--set', 'num_iterations=40', ...tokenizer)).toMatchObject({ code: 0 });
    expect(lossOf('sft_think_s', 40)).toBeLessThan(0.5 * lossOf('sft_think_s', 1));
    const answers = readFileSync(join(place.run('sft_think_s'), 'episodes/validation_000040.jsonl'), 'utf8');
    expect(answers).toContain('thinking: the');
  });
});
