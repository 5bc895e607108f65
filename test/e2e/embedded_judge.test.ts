/** The embedded judge, asked by strangers and killed under the runs that ask it. */
import { readdirSync, readFileSync, readlinkSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest';
import { childrenOf, configFile, Place, RL, sleep, SMALL, until, type Ended, type Live } from './editrl.js';

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
      return readFileSync(`/proc/${pid}/cmdline`, 'utf8').includes('main.js\0serve\0judge\0');
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

const unsteady = 'the embedded judge keeps ending: 5 restarts failed, and the last time it was ended by SIGKILL';

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

const TWO_PROCESSES = ['launch.processes=2', 'optimizer.per_device_batch_size=4'].flatMap((set) => ['--set', set]);

/** What a process was given in its environment (Linux). */
function variableOf(pid: number, name: string): string | undefined {
  const variables = readFileSync(`/proc/${pid}/environ`, 'utf8').split('\0');
  return variables.find((variable) => variable.startsWith(`${name}=`))?.slice(name.length + 1);
}

/** The only address on which a process listens (Linux). */
function originOf(pid: number): string {
  const fds = `/proc/${pid}/fd`;
  const links = readdirSync(fds).map((fd) => {
    try {
      return readlinkSync(join(fds, fd));
    } catch {
      return ''; // It was closed meanwhile.
    }
  });
  const own = new Set(links.flatMap((link) => /^socket:\[(\d+)\]$/.exec(link)?.[1] ?? []));
  const rows = readFileSync(`/proc/${pid}/net/tcp`, 'utf8').trim().split('\n').slice(1);
  const ports = rows.flatMap((row) => {
    const [, local, , state, , , , , , inode] = row.trim().split(/\s+/);
    return state === '0A' && own.has(inode) ? [parseInt(local.split(':')[1], 16)] : [];
  });
  expect(ports).toHaveLength(1);
  return `http://127.0.0.1:${ports[0]}`;
}

/** The files of a folder and of those in it that have a text, by their paths. */
function filesWith(text: string, folder: string): string[] {
  const files = readdirSync(folder, { recursive: true, encoding: 'utf8' }).map((name) => join(folder, name));
  return files.filter((file) => statSync(file).isFile()).filter((file) => readFileSync(file).includes(text));
}

describe('a judge of runs', () => {
  it.each([
    { manner: 'of one process', name: 'closed', sets: [] },
    { manner: 'of two processes', name: 'closed_two', sets: TWO_PROCESSES },
  ])('$manner answers them alone, and what they know of it stands nowhere', async ({ name, sets }) => {
    const live = start('run', configFile(RL), ...SMALL, '--set', `run_name=${name}`, ...sets);
    await iterationReached(live, name, 1);
    const children = childrenOf(live.pid);
    const [judge] = judgesOf(live);
    const token = variableOf(judge, 'EDITRL_SERVER_TOKEN') ?? '';
    expect(token).toMatch(/^[0-9a-f]{32,}$/);
    for (const pid of [live.pid, ...children]) {
      expect(readFileSync(`/proc/${pid}/cmdline`, 'utf8')).not.toContain(token);
      if (pid !== judge) expect(variableOf(pid, 'EDITRL_SERVER_TOKEN')).toBeUndefined();
    }
    const origin = originOf(judge);
    const known = { authorization: `Bearer ${token}` };
    const chats = async (): Promise<{ requests: number; in_flight: number }> =>
      (await fetch(`${origin}/stats`, { headers: known })).json() as Promise<{ requests: number; in_flight: number }>;
    // Nobody else may ask while it is counted.
    const others = children.filter((pid) => pid !== judge);
    for (const pid of others) process.kill(pid, 'SIGSTOP');
    try {
      while ((await chats()).in_flight > 0) await sleep(5);
      const { requests } = await chats();
      expect(requests).toBeGreaterThan(0);
      const body = JSON.stringify({ model: 'editrl-rule-judge', messages: [{ role: 'user', content: 'Hello' }] });
      const chat = (headers: Record<string, string>): Promise<Response> =>
        fetch(`${origin}/v1/chat/completions`, {
          method: 'POST',
          headers: { 'content-type': 'application/json', ...headers },
          body,
        });
      for (const headers of [{}, { authorization: 'Bearer none' }, { authorization: `Bearer ${'0'.repeat(64)}` }]) {
        expect((await chat(headers)).status).toBe(401);
        expect((await fetch(`${origin}/v1/models`, { headers })).status).toBe(401);
        expect((await fetch(`${origin}/stats`, { headers })).status).toBe(401);
      }
      expect((await chats()).requests).toBe(requests);
      expect((await chat(known)).status).not.toBe(401);
      expect((await chats()).requests).toBe(requests + 1);
    } finally {
      for (const pid of others) process.kill(pid, 'SIGCONT');
    }
    const { code, out, err } = await live.ended;
    expect({ code, err }).toEqual({ code: 0, err: '' });
    const unscored = place
      .metrics(name)
      .flatMap((line) => Object.keys(line).filter((key) => key.includes('/unscored/')));
    expect(unscored).toEqual([]);
    expect(out).not.toContain(token);
    // The judge's model stands in the run's files, so that they were looked at.
    expect(filesWith('editrl-rule-judge', place.run(name))).not.toEqual([]);
    expect(filesWith(token, place.dir)).toEqual([]);
  });
});

describe('a judge that is killed', () => {
  it('is started again, and the run ends as if it had been there all the time', async () => {
    const live = train('rejudged');
    await iterationReached(live, 'rejudged', 1);
    killJudge(live);
    const { code, out, err } = await live.ended;
    expect({ code, err }).toEqual({ code: 0, err: '' });
    const line = 'warning: the embedded judge was ended by SIGKILL; restarting it in 0.25 s (1 of 5)\n';
    for (const text of [out, place.log('rejudged')]) expect(text.split(line)).toHaveLength(2);
    expectUndisturbed('rejudged');
  });

  it('again and again is not waited for: the run stops with a checkpoint, and the same command continues', async () => {
    const live = train('unjudged');
    await iterationReached(live, 'unjudged', 1);
    const { code, err } = await killEveryJudge(live);
    expect(err).toContain(`editrl: reward.endpoint: ${unsteady}\n  Check whether memory runs out`);
    expect(code).toBe(3);
    expect(place.state('unjudged')).toMatchObject({ state: 'interrupted', reason: unsteady });
    expect(await train('unjudged').ended).toMatchObject({ code: 0, err: '' });
    expectUndisturbed('unjudged');
  });
});
