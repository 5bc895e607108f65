import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { EndpointError, RunError, ServerEndedError } from '../../../src/core/errors.js';
import { isRetryable } from '../../../src/launch/processes/failure.js';
import { Guardian } from '../../../src/launch/processes/guardian.js';
import {
  serverPrograms,
  skyrlScript,
  startTrainingServer,
  trainingServerCommand,
  type StartedServer,
} from '../../../src/launch/servers/training_server.js';
import { withServerEnded } from '../../../src/run/claim/training_server_lock.js';
import { trainerAnywhere, type TinkerSettings } from '../../../src/config/schema/trainer.js';
import { TinkerProgram } from '../../train/policies/tinker/program.js';
import { testFolder, testFolders } from '../../support/folder.js';
import { until } from './kept_program.js';

const folders = testFolders('training-server');
const guardian = new Guardian();
const closing: StartedServer[] = [];
let program: TinkerProgram;
beforeAll(async () => {
  program = await TinkerProgram.make(testFolder('training-server-program'), 5);
});
afterEach(async () => {
  for (const server of closing.splice(0)) await server.close();
  program.mend();
});
afterAll(() => guardian.close());

function trainerOf(serve: object, more: object = {}): TinkerSettings {
  const trainer = trainerAnywhere.parse({ type: 'tinker', base_model: 'base', lora: { rank: 8 }, serve, ...more });
  if (trainer.type !== 'tinker') throw new Error('another trainer');
  return trainer;
}

function prepare(serve: object = {}, devices: readonly number[] | null = null, folder = folders()) {
  const notices: string[] = [];
  const lost: EndpointError[] = [];
  const over = new AbortController();
  const log = join(folder, 'logs/training_server.log');
  const start = async (): Promise<StartedServer> => {
    const server = await startTrainingServer({
      trainer: trainerOf({ command: program.command, ...serve }),
      devices,
      folder: join(folder, 'saved'),
      log,
      guardian,
      user: { notice: (line) => notices.push(line), lost: (error) => lost.push(error), over: over.signal },
      say: () => undefined,
    });
    closing.push(server);
    return server;
  };
  return { folder, notices, lost, over, log, start };
}

function isRunning(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
}

/** Not so where it has ended and nobody has asked how. */
function isSleeping(pid: number): boolean {
  const file = `/proc/${pid}/cmdline`;
  return existsSync(file) && readFileSync(file, 'utf8').startsWith('sleep');
}

const latest = () => program.starts[program.starts.length - 1];

async function statusOf(url: string, key?: string): Promise<number> {
  const headers: Record<string, string> = key === undefined ? {} : { 'x-api-key': key };
  return (await fetch(`${url}/api/v1/get_server_capabilities`, { headers })).status;
}

describe('a training server of the run', () => {
  it('is up when it is announced, requires its key, and ends with the run', async () => {
    const { notices, log, folder, start } = prepare({}, [3, 5]);
    const { address, close } = await start();
    expect(await statusOf(address.url)).toBe(401);
    expect(await statusOf(address.url, address.token)).toBe(200);
    const { pid, args, env } = latest();
    expect(args.join(' ')).toMatch(
      new RegExp(`^--vocabulary 5 --model base --rank 8 --port \\d+ --dir ${join(folder, 'saved')}$`),
    );
    expect(args.join()).not.toContain(address.token);
    expect(env).toMatchObject({
      EDITRL_SERVER_TOKEN: address.token,
      TINKER_API_KEY: address.token,
      CUDA_VISIBLE_DEVICES: '3,5',
      CUDA_DEVICE_ORDER: 'PCI_BUS_ID',
    });
    expect(address.startedBy).toEqual([
      ...program.command,
      ...['--model', 'base', '--rank', '8', '--dir', join(folder, 'saved')],
    ]);
    expect(notices).toEqual([`starting the training server; its log is ${log}`]);
    await close();
    expect(isRunning(pid)).toBe(false);
    expect(readFileSync(log, 'utf8')).toBe('up\n');
  });

  it('that requires no key is reported', async () => {
    program.spoil('open');
    const { notices, start } = prepare();
    await start();
    expect(notices[1]).toContain('answers without the key that it was given (EDITRL_SERVER_TOKEN): other users');
  });

  it('that does not even reply without its key is none of those, and the run continues', async () => {
    const script = `require('node:http').createServer((asked, reply) => {
      if (asked.headers['x-api-key'] === undefined) asked.socket.destroy();
      else reply.setHeader('content-type', 'application/json').end('{}');
    }).listen(Number(process.argv[process.argv.indexOf('--port') + 1]), '127.0.0.1')`;
    const { notices, start } = prepare({ command: [process.execPath, '-e', script, '--'] });
    await start();
    expect(notices).toHaveLength(1);
  });

  it.skipIf(process.platform !== 'linux').each([
    ['is ended', async (_pid: number, close: () => Promise<void>) => close()],
    ['ends', async (pid: number) => void process.kill(pid, 'SIGKILL')],
  ])('that %s leaves nothing running that has left its process group', async (_how, end) => {
    const script = `const { pid } = require('node:child_process').spawn('sleep', ['600'], { detached: true, stdio: 'ignore' });
      require('node:http').createServer((_asked, reply) => reply.end(JSON.stringify([process.pid, pid])))
        .listen(Number(process.argv[process.argv.indexOf('--port') + 1]), '127.0.0.1')`;
    const { lost, start } = prepare({ command: [process.execPath, '-e', script, '--'] });
    const { address, close } = await start();
    const [pid, stray] = (await (await fetch(address.url)).json()) as [number, number];
    expect(isSleeping(stray)).toBe(true);
    await end(pid, close);
    await until(() => lost.length > 0 || !isRunning(pid));
    await close();
    expect(isSleeping(stray)).toBe(false);
  });

  it('that ends is not started again, and explains how a run continues', async () => {
    const { lost, start } = prepare();
    const before = program.starts.length;
    await start();
    process.kill(latest().pid, 'SIGKILL');
    await until(() => lost.length > 0);
    expect(lost[0]).toBeInstanceOf(ServerEndedError);
    expect(lost[0].exitCode).toBe(3);
    expect(lost[0].toText()).toContain('the training server that was started with the run was ended by SIGKILL');
    expect(lost[0].toText()).toContain('launch.max_restarts does so by itself');
    expect(isRetryable(lost[0])).toBe(true);
    expect(isRetryable(new EndpointError('away'))).toBe(false);
    expect(program.starts.length - before).toBe(1);
  });

  it('has its folder to itself until it has ended', async () => {
    const one = prepare();
    const first = await one.start();
    const saved = join(one.folder, 'saved');
    await expect(prepare({}, null, one.folder).start()).rejects.toThrow(RunError);
    expect(() => withServerEnded(saved, () => null)).toThrow(`the training server of process ${process.pid} on`);
    await first.close();
    expect(() => withServerEnded(saved, () => null)).not.toThrow();
    await prepare({}, null, one.folder).start();
  });

  it('that does not start says what it said, and leaves its folder free', async () => {
    program.spoil('broken');
    const { folder, log, start } = prepare();
    const error = (await start().catch((found: unknown) => found)) as EndpointError;
    expect(error).toBeInstanceOf(EndpointError);
    expect(error.message).toMatch(
      /^the training server did not start: it ended with exit code 7\n {2}\| RuntimeError: no module of that name$/,
    );
    expect(error.toText()).toContain(`Its log is ${log}.`);
    expect(existsSync(join(folder, 'saved/lock.json'))).toBe(false);
  });

  it('that starts for too long, or whose run ends meanwhile, is ended', async () => {
    program.spoil('slow');
    await expect(prepare({ start_timeout_s: 0.5 }).start()).rejects.toThrow('was not up within 0.5 s');
    const { pid } = latest();
    const other = prepare();
    const before = program.starts.length;
    const starting = other.start();
    void starting.catch(() => undefined);
    await until(() => program.starts.length > before);
    other.over.abort();
    await expect(starting).rejects.toThrow('was ended while it started');
    expect([pid, latest().pid].some(isRunning)).toBe(false);
  });
});

describe('the command line', () => {
  const lineOf = (serve: object, devices: readonly number[] | null): string =>
    trainingServerCommand({ trainer: trainerOf(serve), devices, folder: '/run/saved' }, 5).join(' ');

  it('is that of the script of this program', () => {
    expect(existsSync(skyrlScript())).toBe(true);
    const own = `bash ${skyrlScript()} --model base --rank 8 --port 5 --dir /run/saved`;
    expect(lineOf({}, null)).toBe(`${own} --mode jax --adapters 2`);
    expect(lineOf({}, [1, 2])).toBe(`${own} --mode fsdp --gpus 2`);
    expect(lineOf({ mode: 'megatron', python: '/env', flags: ['--nodes', '2'] }, [1])).toBe(
      `${own} --mode megatron --env /env --gpus 1 --nodes 2`,
    );
    expect(lineOf({ mode: 'jax' }, [0])).toBe(`${own} --mode jax --adapters 2`);
    expect(lineOf({ mode: 'jax', devices: [0] }, [0])).toBe(`${own} --mode jax --adapters 2 --device cuda`);
  });

  it('is another program’s, which gets only the run’s part of it', () => {
    expect(lineOf({ command: ['python', 'serve.py'], flags: ['--fast'] }, [0])).toBe(
      'python serve.py --model base --rank 8 --port 5 --dir /run/saved --fast',
    );
  });

  it('needs programs that a look before the run finds', () => {
    const of = (serve: object): string[] =>
      serverPrograms(trainerOf(serve).serve!).map(({ key, program: name }) => `${key} ${name}`);
    expect(of({})).toEqual(['policy.trainer.serve bash', 'policy.trainer.serve.python uv']);
    expect(of({ python: '/env' })).toEqual(['policy.trainer.serve bash', 'policy.trainer.serve.python /env/bin/uv']);
    expect(of({ command: ['serve', '--x'] })).toEqual(['policy.trainer.serve.command serve']);
  });
});
