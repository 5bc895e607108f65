import { spawn, type ChildProcess } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { encodePng } from '../../src/core/images/image.js';
import { RewardPool } from '../../src/rewards/server/client/pool.js';
import { picture, postJson } from '../rewards/server/served.js';
import { wholeItem } from '../rewards/terms/term_contract.js';
import { childrenOf, ROOT } from './editrl.js';

const main = process.env['EDITRL_MAIN'] ?? join(ROOT, 'dist/src/cli/main.js');
let dir = '';
const children: ChildProcess[] = [];

beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), 'editrl-reward-server-'));
});
afterEach(async () => {
  await Promise.all(children.splice(0).map((child) => stop(child, 'SIGKILL')));
  rmSync(dir, { recursive: true, force: true });
});

interface Started {
  readonly child: ChildProcess;
  readonly out: () => string;
  readonly err: () => string;
}

function start(command: string, args: readonly string[], env: NodeJS.ProcessEnv = {}): Started {
  // What this machine has set is no part of a test; what is undefined is not passed on.
  const plain = { ...process.env, EDITRL_REWARD_TOKEN: undefined, CUDA_VISIBLE_DEVICES: undefined };
  const child = spawn(command, args, { cwd: ROOT, env: { ...plain, ...env }, stdio: ['ignore', 'pipe', 'pipe'] });
  children.push(child);
  let [out, err] = ['', ''];
  child.stdout.setEncoding('utf8').on('data', (text: string) => (out += text));
  child.stderr.setEncoding('utf8').on('data', (text: string) => (err += text));
  return { child, out: () => out, err: () => err };
}

function editrl(args: readonly string[], env?: NodeJS.ProcessEnv): Started {
  return start(process.execPath, [main, 'serve', 'rewards', ...args], env);
}

async function stop(child: ChildProcess, signal: NodeJS.Signals): Promise<number | null> {
  const ended = exit(child);
  child.kill(signal);
  return ended;
}

function exit(child: ChildProcess): Promise<number | null> {
  if (child.exitCode !== null || child.signalCode !== null) return Promise.resolve(child.exitCode);
  return new Promise((resolve) => child.once('close', resolve));
}

async function until(started: Started, holds: () => boolean): Promise<void> {
  while (!holds()) {
    if (started.child.exitCode !== null) throw new Error(`ended: ${started.out()}${started.err()}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

const BATCH_ITEMS = Number(process.env['EDITRL_TEST_BATCH'] ?? 1_000);
const BATCH = `
import json, resource, sys
from editrl_reward import *
reward = Reward(sys.argv[1], deadline_s=1200)
reward([{"prompt": "x", "image": Path(sys.argv[2])}] * int(sys.argv[3]))
print(json.dumps({"counts": reward.stats(), "megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000}))`;

describe('editrl serve rewards', () => {
  it('serves the terms of its flags, and stops on request', async () => {
    const server = editrl(['--terms', 'jpeg_size', '--port', '0', '--json']);
    await until(server, () => server.out().includes('\n'));
    const { url, terms } = JSON.parse(server.out()) as { url: string; terms: unknown };
    expect(terms).toEqual([{ name: 'jpeg_size', weight: 1 }]);
    const { status, body } = await postJson(url, { prompt: 'x', image: await picture(1) });
    expect([status, (body['outcome'] as { kind: string }).kind]).toEqual([200, 'scored']);
    expect(await stop(server.child, 'SIGTERM')).toBe(0);
  });

  it('scores a large batch in one stream, in little memory on either side', async () => {
    const server = editrl(['--terms', 'jpeg_size', '--port', '0', '--json']);
    await until(server, () => server.out().includes('\n'));
    const { url } = JSON.parse(server.out()) as { url: string };
    const file = join(dir, 'noise.png');
    writeFileSync(file, await encodePng({ width: 256, height: 256, data: randomBytes(3 * 256 * 256) }));
    const client = start('python3', ['-c', BATCH, url, file, String(BATCH_ITEMS)], { PYTHONPATH: 'scripts/clients' });
    let serverMb = 0;
    while (client.child.exitCode === null) {
      const metrics = await (await fetch(`${url}/metrics`)).text();
      const bytes = Number(/^process_resident_memory_bytes (\S+)$/m.exec(metrics)?.[1]);
      serverMb = Math.max(serverMb, bytes / 1e6);
      await new Promise((resolve) => setTimeout(resolve, 200));
    }
    expect(client.err()).toBe('');
    const { counts, megabytes } = JSON.parse(client.out()) as { counts: unknown; megabytes: number };
    expect(counts).toMatchObject({ 'reward_server/requests': 1, 'reward_server/scored': BATCH_ITEMS });
    expect(serverMb).toBeLessThan(500);
    expect(megabytes).toBeLessThan(100);
    console.log(`${BATCH_ITEMS} items: server ${serverMb.toFixed(0)} MB, client ${megabytes.toFixed(0)} MB`);
    expect(await stop(server.child, 'SIGTERM')).toBe(0);
  }, 1_200_000);

  it('takes the reward of a config, with the judge that it names', async () => {
    const config = ['--config', 'configs/sft_s__rl_s.jsonnet', '--with', 'configs/lib/tiny.libsonnet'];
    const server = editrl([...config, '--port', '0', '--json']);
    await until(server, () => server.out().includes('\n'));
    const { url } = JSON.parse(server.out()) as { url: string };
    const image = await picture(1);
    const { body } = await postJson(url, { instruction: 'remove the red circle', source: image, image });
    // The picture is no scene of the tiny world: its judge says so, by scores of its own.
    expect((body['outcome'] as { kind: string }).kind).toBe('scored');
    expect(await stop(server.child, 'SIGINT')).toBe(0);
  });

  it.each<[string, string[], string]>([
    ['without a token elsewhere', ['--terms', 'jpeg_size', '--host', '0.0.0.0'], 'a token is required'],
    ['for a token that is not there', ['--terms', 'jpeg_size', '--token-env', 'NOT_THERE'], 'NOT_THERE is not set'],
    ['for a judged term without a judge', ['--terms', 'align_quality'], 'reward.endpoint'],
  ])('refuses to start %s', async (_what, args, message) => {
    const server = editrl(args);
    expect(await exit(server.child)).toBe(2);
    expect(server.err()).toContain(message);
    expect(server.err()).not.toMatch(/\n {4}at /);
  });
});

describe('scripts/run_server.sh', () => {
  it('runs several servers with their own ports and logs, and stops them all', async () => {
    const script = start('bash', ['scripts/run_server.sh', '--terms', 'jpeg_size'], {
      COUNT: '2',
      OUT: dir,
      EDITRL: `${process.execPath} ${main}`,
    });
    const list = join(dir, 'urls.txt');
    await until(script, () => existsSync(list));
    const urls = readFileSync(list, 'utf8').trim().split('\n');
    expect(new Set(urls).size).toBe(2);
    const pool = new RewardPool({ servers: urls });
    await pool.ready(0);
    expect((await pool.score(wholeItem())).kind).toBe('scored');
    await pool.close();
    expect(readFileSync(join(dir, 'server_1.log'), 'utf8')).toContain(urls[1]);
    expect(await stop(script.child, 'SIGINT')).toBe(130);
    for (const url of urls) await expect(fetch(`${url}/health`)).rejects.toThrow();
    expect(existsSync(list)).toBe(false);
  });

  it('starts a server again that ended, where it was', async () => {
    const script = start('bash', ['scripts/run_server.sh', '--terms', 'jpeg_size'], {
      COUNT: '2',
      OUT: dir,
      EDITRL: `${process.execPath} ${main}`,
    });
    const list = join(dir, 'urls.txt');
    await until(script, () => existsSync(list));
    const urls = readFileSync(list, 'utf8').trim().split('\n');
    const servers = childrenOf(script.child.pid!).filter((pid) => {
      return readFileSync(`/proc/${pid}/cmdline`, 'utf8').includes('server_1.url');
    });
    expect(servers).toHaveLength(1);
    process.kill(servers[0], 'SIGKILL');
    await until(script, () => script.err().includes('and restarts'));
    expect(script.err()).toContain('server 1 ended with code 137 and restarts');
    const pool = new RewardPool({ servers: [urls[1]] });
    await pool.ready(60_000);
    expect((await pool.score(wholeItem())).kind).toBe('scored');
    await pool.close();
    expect(await stop(script.child, 'SIGTERM')).toBe(143);
  });

  it('ends with the reason when a server does not start', async () => {
    const script = start('bash', ['scripts/run_server.sh', '--terms', 'nothing'], {
      COUNT: '2',
      OUT: dir,
      EDITRL: `${process.execPath} ${main}`,
    });
    expect(await exit(script.child)).toBe(2);
    expect(script.err()).toContain("unknown term 'nothing'");
  });
});
