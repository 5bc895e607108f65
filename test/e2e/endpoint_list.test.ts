/** A list of judges as `reward.endpoint`: the launcher's gateway stands between them and a run, or all runs of a sweep. */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, inject, it } from 'vitest';
import type { JudgeStats } from '../../src/rewards/rule_judge/server.js';
import { childrenOf, configFile, isRunning, Place, RL, ROOT, SMALL, sleep, until, type Live } from './editrl.js';

interface Judge {
  readonly process: Live;
  readonly url: string;
}

let place: Place;
let live: Live[];

beforeEach(() => {
  place = Place.make(inject('template'));
  live = [];
});

afterEach(async () => {
  for (const command of live.filter((one) => one.isAlive()).reverse()) {
    command.kill('SIGKILL');
    await command.ended;
  }
  place.remove();
});

function start(args: readonly string[]): Live {
  const command = place.start(args);
  live.push(command);
  return command;
}

/** Judges of equal speed, each a process on a free port; slow enough that several questions are under way at once. */
async function startJudges(count: number): Promise<Judge[]> {
  const processes = Array.from({ length: count }, () =>
    start(['serve', 'judge', '--port', '0', '--latency', '20', '--json']),
  );
  await until('the judges serve', () => processes.every((one) => one.out().includes('\n')));
  return processes.map((process) => ({ process, url: (JSON.parse(process.out()) as { url: string }).url }));
}

function train(run: string, judges: readonly Judge[]): Live {
  const endpoint = JSON.stringify(judges.map(({ url }) => url));
  return start(['run', configFile(RL), ...SMALL, '--set', `run_name=${run}`, '--set', `reward.endpoint=${endpoint}`]);
}

async function requestsOf({ url }: Judge): Promise<number> {
  const reply = await fetch(new URL('/stats', url));
  return ((await reply.json()) as JudgeStats).requests;
}

/** The problems of all judgements of a run, null for those that have none. */
function problems(run: string): unknown[] {
  const lines = readFileSync(join(place.run(run), 'judgements.jsonl'), 'utf8')
    .trim()
    .split('\n');
  return lines.map((line) => (JSON.parse(line) as { problem: unknown }).problem);
}

function expectAllScored(run: string): void {
  expect(place.state(run)).toMatchObject({ state: 'finished', iteration: 6 });
  expect(new Set(problems(run))).toEqual(new Set([null]));
  const unscored = place.metrics(run).flatMap((line) => Object.keys(line).filter((key) => key.includes('/unscored/')));
  expect(unscored).toEqual([]);
}

/** The gateways among the processes that a command has started. */
function gatewaysOf(command: Live): number[] {
  return childrenOf(command.pid).filter((pid) => {
    try {
      return readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0').includes('gateway');
    } catch {
      return false; // It has ended meanwhile.
    }
  });
}

/** Every gateway that a command has had until it ended. */
async function watchGateways(command: Live): Promise<Set<number>> {
  const seen = new Set<number>();
  while (command.isAlive()) {
    for (const pid of gatewaysOf(command)) seen.add(pid);
    await sleep(20);
  }
  return seen;
}

function gatewayLog(): string {
  return readFileSync(join(place.runs, 'gateway.log'), 'utf8');
}

describe('a run with a list of judges', () => {
  it('has a gateway of its own, which lets both judges work', async () => {
    const judges = await startJudges(2);
    const run = train('both', judges);
    const seen = watchGateways(run);
    expect(await run.ended).toMatchObject({ code: 0, err: '' });
    expect(run.out()).toMatch(/^a gateway at http:\S+\/v1 shares http:\S+\/v1, http:\S+\/v1 between runs$/m);
    expectAllScored('both');
    const gateways = [...(await seen)];
    expect(gateways).toHaveLength(1);
    expect(gateways.filter(isRunning)).toEqual([]);
    const asked = problems('both').length;
    for (const judge of judges) expect(await requestsOf(judge)).toBeGreaterThan(asked / 4);
  });

  it('continues with one of them when the other is killed, and scores everything', async () => {
    const judges = await startJudges(2);
    const run = train('one_left', judges);
    await until('an iteration is done', () => !run.isAlive() || (place.state('one_left')?.iteration ?? 0) >= 1);
    judges[0].process.kill('SIGKILL');
    const asked = await requestsOf(judges[1]);
    expect(place.state('one_left')?.state).toBe('running');
    expect(await run.ended).toMatchObject({ code: 0, err: '' });
    expectAllScored('one_left');
    expect(await requestsOf(judges[1])).toBeGreaterThan(asked);
    // Requests that broke under way cast a doubt, which a look confirms; those that found no connection open the circuit. Either may come first.
    const left = new RegExp(`${judges[0].url} is (?:left alone|not ready): `);
    expect(gatewayLog()).toMatch(left);
    expect(run.out()).toMatch(new RegExp(`gateway: ${left.source}`));
    expect(gatewayLog()).not.toContain(`${judges[1].url} is left alone`);
  });
});

describe('a sweep with a list of judges', () => {
  function sweep(judges: readonly Judge[], iterations: number): Live {
    const experiment = join(place.dir, 'two_judges.jsonnet');
    const overlay = join(place.dir, 'two_judges.libsonnet');
    writeFileSync(
      experiment,
      `{
        name: 'two_judges',
        base: import '${join(ROOT, configFile(RL))}',
        axes: { kl: { [kl]: { algorithm+: { kl_coeff: std.parseJson(kl) } } for kl in ['0', '1e-4', '3e-4'] } },
      }`,
    );
    const endpoint = JSON.stringify(judges.map(({ url }) => url));
    writeFileSync(
      overlay,
      `{ reward+: { endpoint: ${endpoint} }, num_iterations: if $.kind == 'rl' then ${iterations} else super.num_iterations }`,
    );
    return start(['sweep', experiment, ...SMALL, '--with', overlay, '--max-parallel', '2']);
  }

  const cells = ['0', '1e-4', '3e-4'].map((kl) => `two_judges__kl-${kl}`);

  it('has one gateway for all its runs, which ends with it', async () => {
    const judges = await startJudges(2);
    const command = sweep(judges, 6);
    const seen = watchGateways(command);
    expect(await command.ended).toMatchObject({ code: 0, err: '' });
    for (const cell of cells) expectAllScored(cell);
    const gateways = [...(await seen)];
    expect(gateways).toHaveLength(1);
    expect(gateways.filter(isRunning)).toEqual([]);
    for (const judge of judges) expect(await requestsOf(judge)).toBeGreaterThan(problems(cells[0]).length);
  });
});
