import { afterEach, describe, expect, it } from 'vitest';
import { EndpointError } from '../../src/core/errors.js';
import { KeptServer } from '../../src/launch/kept_server.js';
import { ManualClock, settle } from '../rewards/gateway/manual_clock.js';
import { testFolders } from '../support/folder.js';
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
  const lost: string[] = [];
  const start = async (): Promise<KeptServer> => {
    const server = await KeptServer.start({
      name: 'the judge',
      command: [program.path],
      say: (line) => said.push(line),
      next: 'Look at it.',
      onLost: () => lost.push('lost'),
      clock,
    });
    closing.push(server);
    return server;
  };
  return { program, clock, said, lost, start };
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

  it('is given up when it does not start any more: who waits is let go, and who comes later is refused', async () => {
    const { program, clock, said, lost, start } = prepare();
    const server = await start();
    const errors: EndpointError[] = [];
    server.use({ notice: () => undefined, lost: (error) => errors.push(error), over: new AbortController().signal });
    program.breakIt();
    await expect(ask(`${server.origin}/die`)).rejects.toThrow();
    await until(() => said.length === 1);
    const waiting = ask(server.origin).catch((error: Error) => error);
    for (const [restart, pauseMs] of [250, 500, 1000, 2000, 4000].entries()) {
      expect(said).toHaveLength(restart + 1);
      expect(lost).toEqual([]);
      await clock.pass(pauseMs);
      await until(() => said.length === restart + 2);
    }
    expect(lost).toEqual(['lost']);
    expect(errors.map((error) => error.message)).toEqual([
      'the judge does not stay up: it was started again 5 times, and the last time it ended with exit code 7\n  | there is no memory',
    ]);
    expect(await waiting).toBeInstanceOf(Error);
    await expect(ask(server.origin)).rejects.toThrow('ECONNREFUSED');
    expect(program.pids).toHaveLength(6);
  });
});

describe('a kept server', () => {
  it('that does not start says why', async () => {
    const { program, clock, start } = prepare();
    program.breakIt();
    const starting = start();
    await expect(starting).rejects.toThrow(EndpointError);
    await expect(starting).rejects.toThrow(
      /^the judge did not start: it ended with exit code 7\n {2}\| there is no memory$/,
    );
    expect(clock.next).toBeNull();
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
