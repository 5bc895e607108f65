/** The embedded judge, killed under the runs that ask it. */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest';
import { childrenOf, configFile, Place, RL, ROOT, sleep, SMALL, START, until, type Live } from './editrl.js';

let place: Place;
beforeAll(() => {
  place = Place.make(inject('template'));
});
afterAll(() => place.remove());

/** The judges among the processes that a command has started: one, or none while it is down. */
function judgesOf(command: Live): number[] {
  return childrenOf(command.pid).filter((pid) => {
    try {
      return readFileSync(`/proc/${pid}/cmdline`, 'utf8').includes('embedded_judge_main.js');
    } catch {
      return false; // It has ended meanwhile.
    }
  });
}

async function iterationReached(live: Live, name: string, iteration: number): Promise<void> {
  await until(
    `iteration ${iteration} of ${name}`,
    () => !live.isAlive() || (place.state(name)?.iteration ?? 0) >= iteration,
  );
}

function killJudge(live: Live): void {
  const [judge, ...others] = judgesOf(live);
  expect(others).toEqual([]);
  process.kill(judge, 'SIGKILL');
}

/** What the template's run came to, which had its judge all the time. */
function expectUndisturbed(name: string): void {
  for (const file of ['policy.safetensors', 'optimizer.safetensors', 'trainer.json']) {
    const [run, undisturbed] = [name, RL].map((of) => place.checkpointFile(of, 6, file));
    expect(run.equals(undisturbed), file).toBe(true);
  }
  expect(place.metrics(name).map(withoutTimes)).toEqual(place.metrics(RL).map(withoutTimes));
}

function withoutTimes(metrics: Readonly<Record<string, unknown>>): Record<string, unknown> {
  const lasting = Object.entries(metrics).filter(([name]) => !name.startsWith('time/') && name !== 'tokens/s');
  return Object.fromEntries(lasting);
}

describe('a judge that is killed', () => {
  it('is started again, and the run ends as if it had been there all the time', async () => {
    const live = place.startTraining(RL, '--set', 'run_name=rejudged');
    await iterationReached(live, 'rejudged', 1);
    killJudge(live);
    const { code, out, err } = await live.ended;
    expect({ code, err }).toEqual({ code: 0, err: '' });
    const line = 'warning: the embedded judge was ended by SIGKILL; it is started again in 0.25 s (1 of 5)\n';
    for (const text of [out, place.log('rejudged')]) expect(text.split(line)).toHaveLength(2);
    expectUndisturbed('rejudged');
  });

  it('again and again is not waited for: the run stops with a checkpoint, and the same command goes on', async () => {
    const live = place.startTraining(RL, '--set', 'run_name=unjudged');
    await iterationReached(live, 'unjudged', 1);
    while (live.isAlive()) {
      for (const judge of judgesOf(live)) process.kill(judge, 'SIGKILL');
      await sleep(20);
    }
    const { code, err } = await live.ended;
    const found =
      'the embedded judge does not stay up: it was started again 5 times, and the last time it was ended by SIGKILL';
    expect(err).toMatch(new RegExp(`^editrl: reward\\.endpoint: ${found}\n {2}Look whether memory runs out`));
    expect(code).toBe(3);
    expect(place.state('unjudged')).toMatchObject({ state: 'interrupted', reason: found });
    expect(await place.train(RL, '--set', 'run_name=unjudged')).toMatchObject({ code: 0, err: '' });
    expectUndisturbed('unjudged');
  });

  it('in a sweep answers the runs that come later, and the sweep says what happened', async () => {
    const experiment = join(place.dir, 'judged.jsonnet');
    writeFileSync(
      experiment,
      `{
        name: 'judged',
        base: import '${join(ROOT, configFile(START))}',
        axes: { seed: { '1': { seed: 1 }, '2': { seed: 2 } } },
      }`,
    );
    const live = place.start(['sweep', experiment, ...SMALL, '--max-parallel', '1']);
    await iterationReached(live, 'judged__seed-1', 1);
    killJudge(live);
    const { code, out, err } = await live.ended;
    expect({ code, err }).toEqual({ code: 0, err: '' });
    expect(out.match(/^the embedded judge was ended by SIGKILL; .*\(1 of 5\)$/gm)).toHaveLength(1);
    for (const cell of ['judged__seed-1', 'judged__seed-2']) {
      expect(place.state(cell)).toMatchObject({ state: 'finished' });
      const last = place.metrics(cell).at(-1);
      expect(last?.['validation/sampled/mean']).toEqual(expect.any(Number));
      expect(Object.keys(last ?? {}).filter((key) => key.includes('/unscored/'))).toEqual([]);
    }
  });
});
