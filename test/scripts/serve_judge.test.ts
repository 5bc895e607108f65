/** The script that serves a judge: the commands it would run, and how it starts and ends one (a stand-in for vLLM). */
import { spawn, spawnSync } from 'node:child_process';
import { chmodSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { hostname, tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';

const script = resolve(import.meta.dirname, '../../scripts/serve_judge.sh');

let dir: string;
beforeAll(() => {
  dir = mkdtempSync(join(tmpdir(), 'editrl-serve-'));
});
afterAll(() => rmSync(dir, { recursive: true, force: true }));

function call(...args: readonly string[]) {
  const { status, stdout, stderr } = spawnSync('bash', [script, ...args], { encoding: 'utf8', env: environment() });
  return { status, out: stdout, err: stderr };
}

/** Stand-ins come first on the path. */
function environment(): NodeJS.ProcessEnv {
  return { ...process.env, PATH: `${dir}:${process.env['PATH'] ?? ''}` };
}

function standIn(name: string, body: string): void {
  writeFileSync(join(dir, name), `#!/usr/bin/env bash\n${body}\n`);
  chmodSync(join(dir, name), 0o755);
}

describe('the command', () => {
  it.each([
    [1, 24, '7B', 1, 1],
    [1, 80, '7B', 1, 1],
    [1, 141, '32B', 1, 1],
    [2, 80, '32B', 2, 1],
    [2, 141, '72B', 2, 1],
    [4, 24, '32B', 4, 1],
    [4, 80, '72B', 4, 1],
    [8, 24, '72B', 8, 1],
    [8, 80, '72B', 4, 2],
    [8, 141, '72B', 2, 4],
  ])('for %i GPUs of %i GB serves %s, split over %i, %i times', (gpus, memory, size, tensor, data) => {
    const { status, out } = call('--gpus', String(gpus), '--memory', String(memory), '--dry-run');
    expect(status).toBe(0);
    expect(out).toContain(`vllm serve Qwen/Qwen2.5-VL-${size}-Instruct --host 127.0.0.1 --port 4877 --dtype bfloat16`);
    expect(out).toContain(`--tensor-parallel-size ${tensor} --max-model-len 8192 --max-num-seqs 256`);
    expect(out).toContain(String.raw`--limit-mm-per-prompt \{\"image\":3\,\"video\":0\} --generation-config vllm`);
    expect(out).toContain(
      String.raw`--structured-outputs-config \{\"backend\":\"xgrammar\"\,\"disable_any_whitespace\":true\}`,
    );
    expect(out.includes('--mm-encoder-tp-mode data')).toBe(tensor > 1);
    expect(/--data-parallel-size (\d+)/.exec(out)?.[1] ?? '1').toBe(String(data));
  });

  it('of a 7B model on several GPUs is a copy on each', () => {
    const { out } = call('--gpus', '8', '--memory', '80', '--model', 'Qwen/Qwen2.5-VL-7B-Instruct', '--dry-run');
    expect(out).toMatch(/--tensor-parallel-size 1 .*--data-parallel-size 8/);
  });

  it('takes what follows -- as it is, and one of the GPUs that nvidia-smi lists', () => {
    standIn('nvidia-smi', 'printf "143771\\n81559\\n81559\\n81559\\n"');
    const { out } = call('--dry-run', '--port', '5000', '--', '--enable-log-requests');
    expect(out).toContain('Qwen2.5-VL-7B-Instruct --host 127.0.0.1 --port 5000');
    expect(out).toMatch(/--tensor-parallel-size 1 .* --enable-log-requests \n$/);
    expect(out).not.toContain('--data-parallel-size');
  });

  it.each([
    [['--model', 'Qwen/Qwen2.5-VL-72B-Instruct'], 'printf "81559\\n%.0s" {1..8}', 4],
    [['--model', 'Qwen/Qwen2.5-VL-32B-Instruct'], 'printf "81559\\n%.0s" {1..8}', 2],
    [[], 'printf "16384\\n%.0s" {1..8}', 2],
  ])('takes as few GPUs as hold the model: %j', (args, listing, gpus) => {
    standIn('nvidia-smi', listing);
    const { out } = call('--dry-run', ...args);
    expect(out).toContain(`--tensor-parallel-size ${gpus} `);
    expect(out).not.toContain('--data-parallel-size');
  });

  it.each([
    [['--gpus', '3', '--memory', '80'], '1, 2, 4 or 8'],
    [['--gpus', '1', '--memory', '16'], 'needs about 24 GB'],
    [['--gpus', '1', '--memory', '80', '--model', 'Qwen/Qwen2.5-VL-72B-Instruct'], 'needs about 173 GB'],
    [['--gpus', '1', '--memory', 'much'], 'gigabytes'],
    [['--gpus'], 'needs a value'],
    [['--frobnicate', '1'], 'unknown option'],
  ])('is rejected for %j', (args, words) => {
    const { status, err } = call('--dry-run', ...args);
    expect(status).toBe(2);
    expect(err).toContain(words);
  });
});

describe('the server', () => {
  it.each([
    [['--node-file', 'node.txt'], ''],
    [['--host', '0.0.0.0'], ''],
    [['--host', '10.0.0.1'], 'short'],
  ])('is not started where others reach it without a key: %j', (args, key) => {
    const { status, stderr } = spawnSync('bash', [script, '--gpus', '1', '--memory', '80', ...args], {
      encoding: 'utf8',
      cwd: dir,
      env: { ...environment(), VLLM_API_KEY: key },
    });
    expect([status, existsSync(join(dir, 'node.txt'))]).toEqual([2, false]);
    expect(stderr).toContain('VLLM_API_KEY');
  });

  it('has its host in the node file while it runs, and ends with the script', async () => {
    const ending = `trap 'echo ended >"${dir}/ended"; kill "$waiting"; exit 7' TERM`;
    standIn('vllm', `${ending}\nsleep 60 & waiting=$!\necho started >"${dir}/started"\nwait`);
    const nodeFile = join(dir, 'node.txt');
    const child = spawn('bash', [script, '--gpus', '1', '--memory', '80', '--node-file', nodeFile], {
      env: { ...environment(), VLLM_API_KEY: 'a-key-that-is-long-enough' },
      stdio: 'ignore',
    });
    const ended = new Promise<number | null>((done) => child.once('close', done));
    while (!existsSync(join(dir, 'started'))) await new Promise((done) => setTimeout(done, 20));
    expect(readFileSync(nodeFile, 'utf8').trim()).toBe(hostname());
    child.kill('SIGTERM');
    expect(await ended).toBe(7);
    expect([existsSync(join(dir, 'ended')), existsSync(nodeFile)]).toEqual([true, false]);
  });
});
