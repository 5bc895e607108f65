import { readFileSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest';
import type { RescoreSummary } from '../../src/rescore/rescore_summary.js';
import { encodePng } from '../../src/core/image.js';
import { postJson } from '../rewards/server/served.js';
import { Place, RL, ROOT, SMALL, until } from './editrl.js';

let place: Place;
beforeAll(() => {
  place = Place.make(inject('template'));
  write('own.jsonnet', `(import '${join(ROOT, 'configs/sft_s__rl_s.jsonnet')}') + { reward: { terms: ${terms} } }`);
  write('mine.js', "export { default } from './part.js';");
  write('part.js', readFileSync(resolve(ROOT, 'docs/rewards/brightness_change.js'), 'utf8'));
});
afterAll(() => place.remove());

const terms = "[{ name: 'module', module: './mine.js', weight: 1, settings: { at: 200 } }]";
const NAME = 'by_module';

function write(name: string, text: string): void {
  writeFileSync(join(place.dir, name), text);
}

async function grey(level: number): Promise<string> {
  const png = await encodePng({ width: 8, height: 8, data: new Uint8Array(192).fill(level) });
  return Buffer.from(png).toString('base64');
}

/** A verb with the config of this place; its parents are those of the template. */
function call(verb: readonly string[], ...args: readonly string[]) {
  const start = ['policy.model', 'environment.model'].flatMap((key) => ['--set', `${key}.config="${configOf(key)}"`]);
  const named = verb[0] === 'config' ? verb : [...verb, '--set', `run_name=${NAME}`];
  return place.call([...named, join(place.dir, 'own.jsonnet'), ...SMALL, ...start, ...args]);
}

const configOf = (key: string): string =>
  join(ROOT, 'configs', key.startsWith('policy') ? 'sft_s.jsonnet' : 'tiny_vq.jsonnet');

describe('a run that is rewarded by a module', () => {
  it('trains on what it says, in its worker', async () => {
    const ended = await call(['run'], '--json');
    expect(ended).toMatchObject({ code: 0 });
    const metrics = place.metrics(NAME).slice(1);
    expect(metrics).toHaveLength(6);
    for (const line of metrics) {
      expect(line['reward/mine/difference']).toBeGreaterThan(0);
      expect(line['reward/mine/normalised']).toBeCloseTo(Number(line['reward/mine/difference']) / 200, 9);
    }
  });

  it('does not go on by a module that was changed, unless that is allowed', async () => {
    const longer = ['--set', 'num_iterations=8'];
    const part = readFileSync(join(place.dir, 'part.js'), 'utf8');
    write('part.js', part.replace('difference / at', 'difference / at / 2'));
    const refused = await call(['run'], ...longer);
    expect(refused).toMatchObject({ code: 2 });
    expect(refused.err).toMatch(/reward\.terms\.0\.module: ".*mine\.js \(module \w{12}\)" -> ".*\(module \w{12}\)"/);
    expect(await call(['run'], ...longer, '--allow-changes', 'reward.terms.0.module')).toMatchObject({ code: 0 });
    expect(place.metrics(NAME)).toHaveLength(9);
  });

  it('scores recorded episodes again, from its own record and over a run of another reward', async () => {
    const own = await place.call(['rescore', NAME, '--json']);
    expect(own).toMatchObject({ code: 0 });
    expect((JSON.parse(own.out) as RescoreSummary).rescored).toMatchObject({ unscored: 0 });
    const module = `reward.terms=[{"name":"module","module":"${join(place.dir, 'mine.js')}","weight":1}]`;
    const other = await place.call(['rescore', RL, '--json', '--set', module]);
    expect(other).toMatchObject({ code: 0 });
    expect(JSON.parse(other.out)).toMatchObject({ reward: '1 mine', recorded_reward: 'viescore', not_rescored: {} });
  });

  it('is served to others', async () => {
    const server = place.start(['reward-server', '--config', join(place.dir, 'own.jsonnet'), '--port', '0', '--json']);
    try {
      await until('the server listens', () => server.out().includes('\n'));
      const { url, terms: served } = JSON.parse(server.out()) as { url: string; terms: unknown };
      expect(served).toEqual([{ name: 'mine', weight: 1 }]);
      const [image, source] = await Promise.all([0, 100].map((level) => grey(level)));
      const reply = await postJson(url, { prompt: 'darker', image, source });
      // The module was changed above: a difference of 100 levels is worth 100 / 200 / 2.
      expect(reply).toMatchObject({ status: 200, body: { outcome: { kind: 'scored', normalised: 0.25 } } });
    } finally {
      server.kill('SIGTERM');
      await server.ended;
    }
  });

  it('does not start by a module that gives no score, and is told so by every verb that could start it', async () => {
    write('part.js', 'export default () => 6;');
    const said =
      /reward term mine: .*, the (labelled picture|source, unchanged): mine gave 6; allowed: a number from 0 to 1/;
    const [checked, ran, planned, scored] = [
      await call(['config', 'check']),
      await call(['run'], '--fresh'),
      await place.call(['plan', join(place.dir, 'own.jsonnet'), ...SMALL], { COLUMNS: '1000' }),
      await place.call(['score', join(place.dir, 'own.jsonnet'), ...SMALL, '--rows', '2']),
    ];
    expect([checked.code, ran.code, scored.code]).toEqual([1, 2, 1]);
    for (const { err } of [checked, ran]) expect(err).toMatch(said);
    expect(planned.out).toMatch(said);
    expect(scored.err).toContain('mine gave 6');
    expect(scored.out).toMatch(/wrong/);
  });

  it('fails, instead of waiting for a judge, where the module scores none of its answers', async () => {
    // The answers that are tried before a run get their scores; those of the policy do not.
    write(
      'part.js',
      "export default ({ key }) => { if (!key.includes(', the ')) throw new Error('no score'); return 1; };",
    );
    const ran = await call(['run'], '--fresh');
    expect(ran).toMatchObject({ code: 1 });
    expect(ran.err).toMatch(/the reward's own code scored none of \d+ episodes; the first: .*mine: Error: no score/);
    expect(place.state(NAME)).toMatchObject({ state: 'failed' });
    expect(place.log(NAME)).not.toContain('waiting for the judge');
  });

  it('does not start by a module that is broken, and says why', async () => {
    write('part.js', 'export default {\n  score( { }\n};');
    const checked = await call(['config', 'check']);
    expect(checked).toMatchObject({ code: 1 });
    expect(checked.err).toMatch(/mine\.js: a reward module cannot be used: SyntaxError: .* \(.*part\.js:3\)/);
    const planned = await place.call(['plan', join(place.dir, 'own.jsonnet'), ...SMALL]);
    expect(planned.out).toMatch(/in the way of [^]*SyntaxError/);
    const ran = await call(['run'], '--fresh');
    expect(ran).toMatchObject({ code: 2 });
    expect(ran.err).toContain('SyntaxError');
  });
});
