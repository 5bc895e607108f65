/** The embedded judge, killed under the runs that ask it. */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest';
import {
  childrenOf,
  configFile,
  Place,
  RL,
  ROOT,
  sleep,
  SMALL,
  START,
  until,
  type Ended,
  type Live,
} from './editrl.js';

let place: Place;
const commands: Live[] = [];
beforeAll(() => {
  place = Place.make(inject('template'));
});
afterAll(async () => {
  for (const command of commands.filter(({ isAlive }) => isAlive())) {
    command.kill('SIGKILL');
    await command.ended;
  }
  place.remove();
});

function start(...args: readonly string[]): Live {
  const command = place.start(args);
  commands.push(command);
  return command;
}

function train(name: string): Live {
  return start('run', configFile(RL), ...SMALL, '--set', `run_name=${name}`);
}

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

const unsteady =
  'the embedded judge does not stay up: it was started again 5 times, and the last time it was ended by SIGKILL';

async function killEveryJudge(command: Live): Promise<Ended> {
  while (command.isAlive()) {
    for (const judge of judgesOf(command)) process.kill(judge, 'SIGKILL');
    await sleep(20);
  }
  return command.ended;
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
    const live = train('rejudged');
    await iterationReached(live, 'rejudged', 1);
    killJudge(live);
    const { code, out, err } = await live.ended;
    expect({ code, err }).toEqual({ code: 0, err: '' });
    const line = 'warning: the embedded judge was ended by SIGKILL; it is started again in 0.25 s (1 of 5)\n';
    for (const text of [out, place.log('rejudged')]) expect(text.split(line)).toHaveLength(2);
    expectUndisturbed('rejudged');
  });

  it('again and again is not waited for: the run stops with a checkpoint, and the same command goes on', async () => {
    const live = train('unjudged');
    await iterationReached(live, 'unjudged', 1);
    const { code, err } = await killEveryJudge(live);
    expect(err).toContain(`editrl: reward.endpoint: ${unsteady}\n  Look whether memory runs out`);
    expect(code).toBe(3);
    expect(place.state('unjudged')).toMatchObject({ state: 'interrupted', reason: unsteady });
    expect(await train('unjudged').ended).toMatchObject({ code: 0, err: '' });
    expectUndisturbed('unjudged');
  });

  it('ends a reward server that it leaves without scores', async () => {
    const terms = ['--terms', 'align_quality', '--endpoint', 'embedded', '--model', 'editrl-rule-judge'];
    const server = start('reward-server', ...terms, '--port', '0');
    await until('it serves', () => !server.isAlive() || server.out().includes('Scores 1 align_quality'));
    const { code, err } = await killEveryJudge(server);
    expect(err).toContain('the embedded judge was ended by SIGKILL; it is started again in 0.25 s (1 of 5)\n');
    expect(err).toContain(`editrl: reward.endpoint: ${unsteady}\n`);
    expect(code).toBe(3);
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
    const live = start('sweep', experiment, ...SMALL, '--max-parallel', '1');
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
