/** `scripts/gpu_check` as a person calls it: its page, and how it ends. */
import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { testFolders } from '../support/folder.js';

const folder = testFolders('gpu-check');

function call(...args: readonly string[]) {
  const out = join(folder(), 'page.md');
  const { status, stdout, stderr } = spawnSync('scripts/gpu_check', [...args, '--out', out], { encoding: 'utf8' });
  const page = (): string => readFileSync(out, 'utf8');
  return { status, stdout, stderr, page };
}

describe('scripts/gpu_check', () => {
  it('writes a table of what the CPU does at the tiny size', () => {
    const { status, stderr, page } = call('--provider', 'cpu', '--size', 'tiny');
    expect([status, stderr]).toEqual([0, '']);
    expect(page()).toMatch(
      /^\| tiny: 2 layers of 64 \| \d+ \| [\d.]+ \| [\d.]+ \| 0\.0e\+0 \| [\d.]+ \| 0\.0e\+0 \| /m,
    );
  });

  it('ends with 1 where the time is over, and says of which parts', () => {
    const { status, page } = call('--provider', 'cpu', '--size', 'tiny', '--minutes', '0.0001');
    expect(status).toBe(1);
    for (const part of ['products', 'tiny sampling', 'tiny learning']) {
      expect(page()).toContain(`- ${part}: the minutes of --minutes were over before it was done`);
    }
  });

  it.each([
    [['--provider', 'tpu'], 'found tpu; allowed: cuda, webgpu, cpu'],
    [['--provider', 'cpu', '--minutes', '0'], 'a number above 0'],
  ])('rejects %j', (args, words) => {
    const { status, stderr } = call(...args);
    expect(status).toBe(2);
    expect(stderr).toContain(words);
  });
});
