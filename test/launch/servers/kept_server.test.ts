import { afterEach, describe, expect, it } from 'vitest';
import { EndpointError } from '../../../src/core/errors.js';
import { KeptServer } from '../../../src/launch/servers/kept_server.js';
import { ManualClock, settle } from '../../core/manual_clock.js';
import { testFolders } from '../../support/folder.js';
import { ask, KeptProgram, until } from './kept_program.js';

const folder = testFolders('kept-server');
const closing: KeptServer[] = [];
afterEach(async () => {
  for (const server of closing.splice(0)) await server.close();
});

function prepare() {
  const program = new KeptProgram(folder());
  const clock = new ManualClock();
  const said: string[] = [];
  const start = async (): Promise<KeptServer> => {
    const server = await KeptServer.start({
      name: 'the judge',
      command: [program.path],
      say: (line) => said.push(line),
      next: 'Look at it.',
      onLost: () => undefined,
      clock,
    });
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

describe('a server that is killed', () => {
  it('answers again at its address, those who have asked meanwhile too', async () => {
    const { program, clock, said, start } = prepare();
    const { origin } = await start();
    expect(await ask(origin)).toBe(String(program.pids[0]));
    await expect(ask(`${origin}/die`)).rejects.toThrow();
    await until(() => said.length === 1);
    expect(said).toEqual(['the judge was ended by SIGKILL; it is started again in 0.25 s (1 of 5)']);
    const answers = [1, 2, 3].map(() => ask(origin));
    await settle();
    expect(program.pids).toHaveLength(1);
    await clock.pass(250);
    const [first, ...others] = await Promise.all(answers);
    expect(first).toBe(String(program.pids[1]));
    expect(others).toEqual([first, first]);
    expect(program.pids).toHaveLength(2);
  });

  it('asks for the same token again, which its environment has and its arguments have not', async () => {
    const { clock, said, start } = prepare();
    const { origin, token } = await start();
    const told = async (): Promise<unknown[]> => JSON.parse(await ask(`${origin}/told`)) as unknown[];
    const [given, args] = await told();
    expect(given).toBe(token);
    expect(JSON.stringify(args)).not.toContain(token);
    await expect(ask(`${origin}/die`)).rejects.toThrow();
    await until(() => said.length === 1);
    await clock.pass(250);
    expect((await told())[0]).toBe(token);
    expect(process.env['EDITRL_SERVER_TOKEN']).toBeUndefined();
  });

  it('takes along the connection that it was being given, and no other', async () => {
    const { program, clock, said, start } = prepare();
    const { origin } = await start();
    program.spoil('greedy');
    const [given, waiting] = [ask(origin), ask(origin)].map((answer) => answer.catch((error: Error) => error));
    await until(() => said.length === 1);
    expect(await given).toBeInstanceOf(Error);
    program.mend();
    await clock.pass(250);
    expect(await waiting).toBe(String(program.pids[1]));
  });
});

describe('a kept server', () => {
  it('that does not start says why', async () => {
    const { program, clock, start } = prepare();
    program.spoil('broken');
    const starting = start();
    await expect(starting).rejects.toThrow(EndpointError);
    await expect(starting).rejects.toThrow(
      /^the judge did not start: it ended with exit code 7\n {2}\| there is no memory$/,
    );
    expect(clock.next).toBeNull();
  });

  it('that never says that it is up is ended after half a minute', async () => {
    const { program, clock, start } = prepare();
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
    const { program, clock, said, start } = prepare();
    const server = await start();
    const [pid] = program.pids;
    expect(isRunning(pid)).toBe(true);
    await server.close();
    expect(isRunning(pid)).toBe(false);
    await expect(ask(server.origin)).rejects.toThrow('ECONNREFUSED');
    expect(clock.next).toBeNull();
    expect(said).toEqual([]);
  });
});
