import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { ROOT } from './editrl.js';

const command = join(ROOT, 'dist/src/cli/main.js');

describe.each([
  ['judge', []],
  ['rewards', ['--terms', 'jpeg_size']],
  ['gateway', ['--upstream', 'http://127.0.0.1:9/v1']],
])('editrl serve %s that its parent started', (verb, more) => {
  it('ends at a signal while its input stays open', async () => {
    const args = [command, 'serve', verb, ...more, '--port', '0', '--json', '--exit-with-parent'];
    const child = spawn(process.execPath, args, { stdio: ['pipe', 'pipe', 'ignore'] });
    await once(child.stdout, 'data');
    const ended = once(child, 'exit');
    child.kill('SIGTERM');
    expect(await ended).toEqual([0, null]);
  });
});
