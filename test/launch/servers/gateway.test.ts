import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { Guardian } from '../../../src/launch/processes/guardian.js';
import { SharedGateways, urlsToShare } from '../../../src/launch/servers/gateway.js';

const dir = mkdtempSync(join(tmpdir(), 'shared-gateway-'));
const guardian = new Guardian();
afterAll(() => {
  guardian.close();
  rmSync(dir, { recursive: true, force: true });
});

describe('which judges are shared through a gateway', () => {
  it.each([
    ['a list', ['http://a/v1', 'http://b/v1'], false, ['http://a/v1', 'http://b/v1']],
    ['one judge of several runs', 'http://a/v1', true, ['http://a/v1']],
    ['one judge of one run', 'http://a/v1', false, null],
    ['the embedded judge', 'embedded', true, null],
    ["OpenAI's own service", 'https://api.openai.com/v1', true, null],
    ['a node file', { node_file: 'node.txt', port: 4877 }, true, null],
  ])('%s', (_what, endpoint, severalRuns, urls) => {
    expect(urlsToShare(endpoint, severalRuns)).toEqual(urls);
  });
});

describe('the arguments of a gateway', () => {
  it('is the model of a run that expects other names, which no run shares that does not', async () => {
    const program = join(dir, 'told.mjs');
    writeFileSync(
      program,
      `process.stdin.resume().once('close', () => process.exit(0));
      process.on('SIGTERM', () => process.exit(0));
      console.error(process.argv.slice(2).join(' '));
      console.log(JSON.stringify({ url: 'http://127.0.0.1:1/v1' }));`,
    );
    const gateways = new SharedGateways({ severalRuns: true, say: () => undefined, guardian, program });
    const user = { notice: () => undefined, lost: () => undefined, over: new AbortController().signal };
    const baseExpDir = join(dir, 'told');
    const tokens: (string | null)[] = [];
    for (const alias of [false, ['one', 'two'], true] as const) {
      const model_alias = typeof alias === 'boolean' ? alias : [...alias];
      const reward = { concurrency: 8, timeout_s: 60, model: 'a-judge', model_alias };
      tokens.push((await gateways.addressFor('http://a/v1', { runName: 'a_run', baseExpDir, reward, user })).token);
    }
    await gateways.close();
    expect(new Set(tokens).size).toBe(3);
    const told = readFileSync(join(baseExpDir, 'gateway.log'), 'utf8').trim().split('\n');
    expect(told.map((line) => line.replace(/ --token-env.*$/, '')).sort()).toEqual([
      'serve gateway --upstream http://a/v1',
      'serve gateway --upstream http://a/v1 --model a-judge --model-alias',
      'serve gateway --upstream http://a/v1 --model a-judge --model-alias one two',
    ]);
    for (const token of tokens) expect(told.join()).not.toContain(token);
  });
});

describe('a gateway that talks to its end', () => {
  it('has its last words in the log, and nothing is reported of it', async () => {
    // Stands for `editrl serve gateway`: one line with its address, and words that are still in its pipe when it has ended.
    const program = join(dir, 'gateway.mjs');
    writeFileSync(
      program,
      `setInterval(() => undefined, 1000);
      process.on('SIGTERM', () => {
        process.stderr.write('info: its last words\\n'.repeat(2000));
        process.exit(0);
      });
      console.log(JSON.stringify({ url: 'http://127.0.0.1:1/v1' }));`,
    );
    const said: string[] = [];
    const gateways = new SharedGateways({ severalRuns: false, say: (line) => said.push(line), guardian, program });
    const user = { notice: () => undefined, lost: () => undefined, over: new AbortController().signal };
    const reward = { concurrency: 8, timeout_s: 60, model: 'a-judge', model_alias: false } as const;
    const run = { runName: 'a_run', baseExpDir: dir, reward, user };
    const { endpoint, token } = await gateways.addressFor(['http://a/v1', 'http://b/v1'], run);
    expect(endpoint).toBe('http://127.0.0.1:1/run/a_run/v1');
    expect(token).toMatch(/^[0-9a-f]{32,}$/);
    await gateways.close();
    expect(said).toEqual(['a gateway at http://127.0.0.1:1/v1 shares http://a/v1, http://b/v1 between runs']);
    expect(readFileSync(join(dir, 'gateway.log'), 'utf8')).toBe('info: its last words\n'.repeat(2000));
  });
});
