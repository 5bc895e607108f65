import { existsSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest';
import { Place, RL, START, type Ended } from './editrl.js';

describe('editrl run, from nothing', () => {
  const first = inject('firstRun');
  const place = Place.at(inject('template'));

  it('trains the parents first, in their order', () => {
    expect(first.err).toBe('');
    expect(first.code).toBe(0);
    const order = [
      `${RL}: 3 runs, one after another: tiny_vq, ${START}, ${RL}`,
      'starting tiny_vq',
      'finished tiny_vq in ',
      `starting ${START}`,
      `finished ${START} in `,
      `starting ${RL}`,
      `finished ${RL} in `,
    ];
    const places = order.map((text) => first.out.indexOf(text));
    expect(places.every((at) => at >= 0)).toBe(true);
    expect(places).toEqual([...places].sort((a, b) => a - b));
  });

  it('says evaluations when they come, in few and short lines', () => {
    expect(first.out).toMatch(
      new RegExp(`\\n${RL} {2}held-out viescore at 0: \\d\\.\\d\\d ± \\d\\.\\d\\d, greedy \\d`),
    );
    const lines = first.out.split('\n').slice(0, first.out.split('\n').indexOf(''));
    expect(lines.length).toBeLessThan(40);
    expect(lines.filter((line) => !line.includes(place.runs) && line.length > 100)).toEqual([]);
  });

  it('keeps a line for every iteration in its log, with the figures that a person watches', () => {
    const lines = place
      .log(RL)
      .split('\n')
      .filter((line) => / {2}iteration \d\/6 /.test(line));
    expect(lines).toHaveLength(6);
    const line = (left: string): RegExp =>
      new RegExp(
        ` {2}iteration \\d/6 {2}reward +\\d.* KL +.*entropy +\\d.* tokens/s +\\d+\\.\\d\\d s/it +${left} left$`,
      );
    // Two iterations say too little of the time left.
    expect(lines[1]).toMatch(line('-'));
    expect(lines[2]).toMatch(line('\\d+ s'));
  });

  it('ends with held-out reward before and after, and with the paths of all results', () => {
    const table = first.out.slice(first.out.indexOf(`${RL}: finished, iteration 6 of 6`));
    expect(table).toMatch(/held-out: viescore, 0 to 10 +before, at 0 +after, at 6 +change/);
    expect(table).toMatch(/reward, sampled +\d+\.\d+ ± \d/);
    expect(table).toMatch(/reward, greedy +\d+\.\d+ ± \d/);
    for (const file of ['curve.png', 'contact_sheet.png']) {
      expect(table).toContain(`${place.run(RL)}/${file}`);
      expect(existsSync(`${place.run(RL)}/${file}`)).toBe(true);
    }
  });

  it('records every iteration once, episodes and judgements with it', () => {
    expect(place.metrics(RL).map(({ iteration }) => iteration)).toEqual([0, 1, 2, 3, 4, 5, 6]);
    expect(place.state(RL)).toMatchObject({ state: 'finished', iteration: 6 });
    expect(existsSync(`${place.run(RL)}/episodes/000006.jsonl`)).toBe(true);
    expect(existsSync(`${place.run(RL)}/judgements.jsonl`)).toBe(true);
  });

  it('reports it for machines', async () => {
    const report = await place.call(['report', RL, '--json']);
    expect(report.code).toBe(0);
    expect(JSON.parse(report.out)).toMatchObject({
      run_name: RL,
      state: 'finished',
      iteration: 6,
      heldout: { before: expect.any(Number) as number, after: expect.any(Number) as number },
      seconds_per_iteration: Object.fromEntries(
        ['total', 'rollout', 'judge', 'update', 'other'].map((part) => [part, expect.any(Number) as number]),
      ),
      speed: { unit: 'tokens/s', value: expect.any(Number) as number },
    });
  });
});

describe('editrl run, again', () => {
  let place: Place;
  beforeAll(() => {
    place = Place.make(inject('template'));
  });
  afterAll(() => place.remove());

  it('reports that the run is finished, and what makes it longer', async () => {
    const again = await place.train(RL);
    expect(again).toMatchObject({ code: 0, err: '' });
    expect(again.out).toContain(`${RL} is finished. To continue, raise num_iterations: --set num_iterations=12`);
    expect(again.out).not.toMatch(/^iteration/m);
  });

  it('rejects a setting that decides the result, and shows the change', async () => {
    const changed = await place.train(RL, '--set', 'optimizer.learning_rate=1e-5');
    expect(changed.code).toBe(2);
    expect(changed.err).toMatch(/optimizer\.learning_rate: 0\.0004 -> (0\.00001|1e-5)/);
    expect(changed.err).not.toMatch(/\n {4}at /);
  });

  it('continues where a raised num_iterations allows it', async () => {
    const longer = await place.train(RL, '--set', 'num_iterations=8', '--json');
    expect(longer).toMatchObject({ code: 0, err: '' });
    expect(JSON.parse(longer.out)).toMatchObject({ iteration: 8, state: 'finished' });
    expect(place.metrics(RL).map(({ iteration }) => iteration)).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8]);
    expect(place.log(RL)).toContain('num_iterations: 6 -> 8');
  });
});

describe('editrl run --fresh', () => {
  it('keeps an earlier folder of the name beside it, and only if nothing prevents the run', async () => {
    const place = Place.make();
    const file = join(place.dir, 'other.jsonnet');
    const run = (program: string, seed: number, ...more: readonly string[]): Promise<Ended> => {
      const command = `launch: { command: ['${program}'] }`;
      writeFileSync(
        file,
        `{ task: 'external', run_name: 'other', base_exp_dir: '${place.runs}', num_iterations: 1, seed: ${seed}, ${command} }`,
      );
      return place.call(['run', file, ...more]);
    };
    try {
      expect(await run('true', 1, '--fresh')).toMatchObject({ code: 0 });
      expect((await run('true', 2)).err).toContain('was started with other settings');
      expect((await run('no-such-program', 2, '--fresh')).err).toContain('no program');
      expect(readdirSync(place.runs)).toEqual(['other']);
      const { code, out } = await run('true', 2, '--fresh');
      expect(code).toBe(0);
      expect(out).toContain(`other starts from scratch; the previous run was moved to ${place.runs}/other.old-1\n`);
      expect(readdirSync(place.runs).sort()).toEqual(['other', 'other.old-1']);
    } finally {
      place.remove();
    }
  });
});

it('two runs that need one missing parent train it once', async () => {
  const place = Place.make();
  try {
    const ended = await Promise.all(
      ['one', 'two'].map((name) => place.train(START, '--set', `run_name=${name}`, '--set', 'num_iterations=1')),
    );
    expect(ended.map(({ code, err }) => ({ code, err }))).toEqual([
      { code: 0, err: '' },
      { code: 0, err: '' },
    ]);
    expect(place.attempts('tiny_vq')).toBe(1);
    const waited = ended.filter(({ out }) => /waiting for process \d+ on .*, which trains tiny_vq/.test(out));
    expect(waited).toHaveLength(1);
  } finally {
    place.remove();
  }
});
