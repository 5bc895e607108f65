import { readFileSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest';
import { Place, ROOT, SMALL } from './editrl.js';

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

  it('does not continue by a module that was changed, unless that is allowed', async () => {
    const longer = ['--set', 'num_iterations=8'];
    const part = readFileSync(join(place.dir, 'part.js'), 'utf8');
    write('part.js', part.replace('difference / at', 'difference / at / 2'));
    const refused = await call(['run'], ...longer);
    expect(refused).toMatchObject({ code: 2 });
    expect(refused.err).toMatch(/reward\.terms\.0\.module: ".*mine\.js \(module \w{12}\)" -> ".*\(module \w{12}\)"/);
    expect(await call(['run'], ...longer, '--allow-changes', 'reward.terms.0.module')).toMatchObject({ code: 0 });
    expect(place.metrics(NAME)).toHaveLength(9);
  });

  it('does not start with a module that gives no score, which every verb that could start it reports', async () => {
    write('part.js', 'export default () => 6;');
    const said =
      /reward term mine: .*, the (labeled image|source, unchanged): mine gave 6; allowed: a number from 0 to 1/;
    const [checked, ran, planned, scored] = [
      await call(['check']),
      await call(['run'], '--fresh'),
      await place.call(['plan', join(place.dir, 'own.jsonnet'), ...SMALL], { COLUMNS: '1000' }),
      await place.call(['score', join(place.dir, 'own.jsonnet'), ...SMALL, '--rows', '2']),
    ];
    expect([checked.code, ran.code, scored.code]).toEqual([2, 2, 1]);
    for (const { err } of [checked, ran]) expect(err).toMatch(said);
    expect(planned.out).toMatch(said);
    expect(scored.err).toContain('mine gave 6');
    expect(scored.out).toMatch(/wrong/);
  });

  it('does not start by a module that is broken, and explains why', async () => {
    write('part.js', 'export default {\n  score( { }\n};');
    const checked = await call(['check']);
    expect(checked).toMatchObject({ code: 2 });
    expect(checked.err).toMatch(/mine\.js: the reward module cannot be used: SyntaxError: .* \(.*part\.js:3\)/);
    const planned = await place.call(['plan', join(place.dir, 'own.jsonnet'), ...SMALL]);
    expect(planned.out).toMatch(/blocked [^]*SyntaxError/);
    const ran = await call(['run'], '--fresh');
    expect(ran).toMatchObject({ code: 2 });
    expect(ran.err).toContain('SyntaxError');
  });
});
