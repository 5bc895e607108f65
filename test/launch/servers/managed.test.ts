/** What every server keeps that is started with runs, however it is reached. */
import { afterAll, afterEach, describe, expect, it } from 'vitest';
import { ConfigError, EndpointError } from '../../../src/core/errors.js';
import { Guardian } from '../../../src/launch/processes/guardian.js';
import { ManagedServer, type Readiness } from '../../../src/launch/servers/managed.js';
import { ManualClock } from '../../core/manual_clock.js';
import { testFolders } from '../../support/folder.js';
import { answer, ask, KeptProgram, until } from './kept_program.js';

const folder = testFolders('managed-server');
const guardian = new Guardian();
afterAll(() => guardian.close());
const closing: ManagedServer[] = [];
afterEach(async () => {
  for (const server of closing.splice(0)) await server.close();
});

function prepare(kind: Readiness['kind']) {
  const program = new KeptProgram(folder());
  const clock = new ManualClock();
  const said: string[] = [];
  const start = async (changes: object = {}): Promise<ManagedServer> => {
    const spec = { ...(await program.specification(kind)), ...changes };
    const server = await ManagedServer.start(spec, { guardian, say: (line) => said.push(line), clock });
    closing.push(server);
    return server;
  };
  return { program, clock, said, start };
}

function isRunning(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
}

describe.each(['printed', 'probed'] as const)('a server whose address is %s', (kind) => {
  it('is up when its start returns, and answers again at its address once it was killed', async () => {
    const { program, clock, said, start } = prepare(kind);
    const { url } = await start();
    expect(await ask(url)).toBe(String(program.pids[0]));
    await expect(ask(`${url}/die`)).rejects.toThrow();
    await until(() => said.length === 1);
    expect(said).toEqual(['the judge was ended by SIGKILL; restarting it in 0.25 s (1 of 5)']);
    expect(program.pids).toHaveLength(1);
    await clock.pass(250);
    expect(await answer(url)).toBe(String(program.pids[1]));
    expect(program.pids).toHaveLength(2);
  });

  it('is ended by force if it does not end when it is asked to', async () => {
    const { program, clock, start } = prepare(kind);
    program.spoil('deaf');
    const server = await start();
    const closed = server.close();
    await until(() => program.logged.includes('not yet'));
    await clock.pass(29_999);
    expect(isRunning(program.pids[0])).toBe(true);
    await clock.pass(1);
    await closed;
    expect(isRunning(program.pids[0])).toBe(false);
  });

  it('asks for the same token again, which its environment has and its arguments have not', async () => {
    const { clock, said, start } = prepare(kind);
    const { url, token } = await start();
    const told = async (): Promise<unknown[]> => JSON.parse(await answer(`${url}/told`)) as unknown[];
    const [given, args] = await told();
    expect(given).toBe(token);
    expect(JSON.stringify(args)).not.toContain(token);
    await expect(ask(`${url}/die`)).rejects.toThrow();
    await until(() => said.length === 1);
    await clock.pass(250);
    expect((await told())[0]).toBe(token);
    expect(process.env['EDITRL_SERVER_TOKEN']).toBeUndefined();
  });

  it('that does not start explains why, and its log has it', async () => {
    const { program, clock, start } = prepare(kind);
    program.spoil('broken');
    const starting = start();
    await expect(starting).rejects.toThrow(EndpointError);
    await expect(starting).rejects.toThrow(
      /^the judge did not start: it ended with exit code 7\n {2}\| there is no memory$/,
    );
    expect(clock.next).toBeNull();
    expect(program.logged).toBe('there is no memory\n');
  });

  it('that never reports that it is up is ended after half a minute', async () => {
    const { program, clock, start } = prepare(kind);
    program.spoil('mute');
    const starting = start().catch((error: Error) => error.message);
    await until(() => program.pids.length === 1);
    await clock.pass(29_999);
    expect(isRunning(program.pids[0])).toBe(true);
    await clock.pass(1);
    expect(await starting).toBe('the judge did not start: it was not up within 30 s');
    await until(() => !isRunning(program.pids[0]));
  });

  it('ends when it is closed, and is not started again', async () => {
    const { program, clock, said, start } = prepare(kind);
    const server = await start();
    const [pid] = program.pids;
    expect(isRunning(pid)).toBe(true);
    await server.close();
    expect(isRunning(pid)).toBe(false);
    await expect(ask(server.url)).rejects.toThrow('ECONNREFUSED');
    expect(clock.next).toBeNull();
    expect(said).toEqual([]);
  });

  it('whose program is missing is named once, with what to do', async () => {
    const { start } = prepare(kind);
    const starting = start({ command: () => ['no-such-judge'], noProgram: { where: 'a.key', next: 'Install it.' } });
    const error: unknown = await starting.catch((found: unknown) => found);
    expect(error).toBeInstanceOf(ConfigError);
    expect((error as ConfigError).toText()).toBe("a.key: 'no-such-judge' cannot be started (ENOENT)\n  Install it.");
  });
});

it('counts its deaths from one again once it was up for a minute', async () => {
  const { clock, said, start } = prepare('printed');
  const { url } = await start();
  const die = async (passedMs: number): Promise<string | undefined> => {
    const before = said.length;
    await clock.pass(passedMs);
    await answer(url);
    await expect(ask(`${url}/die`)).rejects.toThrow();
    await until(() => said.length > before);
    return /\((\d) of 5\)/.exec(said.at(-1) ?? '')?.[1];
  };
  expect([await die(0), await die(250), await die(500)]).toEqual(['1', '2', '3']);
  await clock.pass(1000);
  await answer(url);
  expect(await die(60_000)).toBe('1');
});
