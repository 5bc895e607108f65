/** Runs whose pictures a server makes: with faults, killed and resumed, scored again, and refused before they begin. */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { RandomStream } from '../../src/core/random.js';
import { StubImages, type Fault, type StubOptions } from '../train/environments/images_api/stub_images.js';
import { Place, until, type Ended, type Live } from './editrl.js';

const CONFIG = ['configs/prompt_enhance.jsonnet', '--with', 'test/e2e/recipes/enhance_served.libsonnet'];
/** 4 iterations of 16, and 4 held-out prompts before and after in two manners. */
const PICTURES = 4 * 16 + 2 * 2 * 4;

let place: Place;
let stub: StubImages;
beforeAll(() => void (place = Place.make()));
afterEach(() => stub.close());
afterAll(() => place.remove());

async function started(options: StubOptions = {}): Promise<void> {
  stub = await StubImages.start(options);
}

function start(name: string, ...sets: readonly string[]): Live {
  const args = [`run_name=${name}`, ...sets].flatMap((set) => ['--set', set]);
  return place.start(['run', ...CONFIG, ...args], { APP__IMAGES: stub.url });
}

const lines = (name: string): string[] =>
  readFileSync(join(place.run(name), 'pictures.jsonl'), 'utf8')
    .split('\n')
    .slice(0, -1);

const faults: readonly Fault[] = [
  { kind: 'status', status: 500 },
  { kind: 'status', status: 429 },
  { kind: 'cut' },
  { kind: 'body', body: () => ({ created: 0, data: [] }) },
];

describe('a run whose images a server makes', () => {
  let whole: Ended;

  it('trains on them, with 30 % of the replies faulted', async () => {
    await started();
    const random = new RandomStream('faults', 2);
    let faulted = 0;
    stub.fault = ({ path }) =>
      path !== '/v1/models' && random.uniform() < 0.3 ? faults[faulted++ % faults.length] : null;
    whole = await start('whole').ended;
    expect(whole).toMatchObject({ code: 0, err: '' });
    expect(faulted).toBeGreaterThan(10);
    expect(lines('whole')).toHaveLength(PICTURES);
    const last = place.metrics('whole').at(-1);
    expect(last).toMatchObject({ iteration: 4 });
    expect(last?.['reward/mean']).toBeGreaterThan(0);
  });

  it('killed and resumed asks for nothing again, and ends as one that never stopped', async () => {
    await started();
    const live = start('killed');
    await until(
      'pictures of iteration 3 are stored',
      () => !live.isAlive() || (place.state('killed')?.iteration ?? 0) >= 2,
    );
    live.kill('SIGKILL');
    await live.ended;
    // What it had sent by then is counted as its own.
    await stub.idle();
    const kept = lines('killed');
    const before = stub.asked.length;
    const resumed = await place.call(['resume', 'killed'], { APP__IMAGES: stub.url });
    expect(resumed).toMatchObject({ code: 0, err: '' });
    expect(lines('killed')).toHaveLength(PICTURES);
    expect(lines('killed').slice(0, kept.length)).toEqual(kept);
    // One more is drawn where nothing after the checkpoint was stored.
    expect(stub.asked.length - before).toBeLessThanOrEqual(PICTURES - kept.length + 1);
    expect(place.checkpointFile('killed', 4, 'policy.safetensors')).toEqual(
      place.checkpointFile('whole', 4, 'policy.safetensors'),
    );
  });
});

describe('editrl enhance', () => {
  const enhance = (...args: readonly string[]): Promise<Ended> => place.call(['enhance', ...args]);
  const captions = ['a crimson orb above a cobalt tile', 'an emerald tile'];
  beforeEach(() => started());

  it('rewrites prompts by a trained run, one by one as in a batch', async () => {
    const one = await enhance(captions[0], '--run', 'whole', '--json');
    expect(one).toMatchObject({ code: 0, err: '' });
    const rewrite = JSON.parse(one.out) as Record<string, unknown>;
    expect(rewrite).toEqual({
      prompt: captions[0],
      enhanced_prompt: expect.any(String) as string,
      stripped: [],
      finished: expect.any(Boolean) as boolean,
      // What a server reads of them, nobody says.
      unread: null,
      prompt_unread: null,
    });
    const file = join(place.dir, 'prompts.txt');
    writeFileSync(file, `# of the tiny world\n${captions.join('\n')}\n\n`);
    const batch = await enhance('--file', file, '--run', 'whole', '--json');
    const { prompts } = JSON.parse(batch.out) as { prompts: readonly { readonly prompt: string }[] };
    expect(prompts.map(({ prompt }) => prompt)).toEqual(captions);
    expect(prompts[0]).toEqual(rewrite);
  });

  it('rewrites by a model as it is', async () => {
    const model = join(place.run('whole'), 'checkpoints/000004');
    const said = await enhance('a cat', '--model', model, '--max-tokens', '4');
    expect(said.code).toBe(1);
    expect(said.err).toContain('the model has no chat template');
  });

  it.each([
    [['a cat'], 2, 'found neither --run nor --model; allowed: one of them'],
    [['--file', 'no-such.txt', '--run', 'whole'], 1, 'no-such.txt: no such file'],
    [['a cat', '--run', 'whole', '--temperature', '-1'], 2, '--temperature: found -1; allowed: a number >= 0'],
  ])('%j ends with one message', async (args, code, message) => {
    const ended = await enhance(...args);
    expect(ended.code).toBe(code);
    expect(ended.err).toContain(message);
    expect(ended.err.split('\n').length).toBeLessThan(5);
  });
});
