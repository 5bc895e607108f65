import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { SharedGateways, urlsToShare } from '../../src/launch/shared_gateway.js';

const dir = mkdtempSync(join(tmpdir(), 'shared-gateway-'));
afterAll(() => rmSync(dir, { recursive: true, force: true }));

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

describe('a gateway that talks to its end', () => {
  it('has its last words in the log, and nothing is said of it', async () => {
    // Stands for `editrl gateway`: one line with its address, and words that are still in its pipe when it has ended.
    const program = join(dir, 'gateway.mjs');
    writeFileSync(
      program,
      `import { spawn } from 'node:child_process';
      setInterval(() => undefined, 1000);
      process.on('SIGTERM', () => {
        const late = "setTimeout(() => process.stderr.write('info: its last words\\\\n'), 300)";
        spawn(process.execPath, ['-e', late], { stdio: ['ignore', 'ignore', 'inherit'] });
        process.exit(0);
      });
      console.log(JSON.stringify({ url: 'http://127.0.0.1:1/v1' }));`,
    );
    const said: string[] = [];
    const gateways = new SharedGateways({ severalRuns: false, say: (line) => said.push(line), program });
    const user = { notice: () => undefined, lost: () => undefined, over: new AbortController().signal };
    const run = { runName: 'a_run', baseExpDir: dir, concurrency: 8, timeoutS: 60, user };
    const { endpoint, token } = await gateways.addressFor(['http://a/v1', 'http://b/v1'], run);
    expect(endpoint).toBe('http://127.0.0.1:1/run/a_run/v1');
    expect(token).toMatch(/^[0-9a-f]{32,}$/);
    await gateways.close();
    expect(said).toEqual(['a gateway at http://127.0.0.1:1/v1 shares http://a/v1, http://b/v1 between runs']);
    expect(readFileSync(join(dir, 'gateway.log'), 'utf8')).toBe('info: its last words\n');
  });
});
