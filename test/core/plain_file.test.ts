import { spawnSync } from 'node:child_process';
import { appendFileSync, closeSync, mkdirSync, symlinkSync, truncateSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { scanLines } from '../../src/core/log.js';
import { openPlain, readPlain, readPlainText } from '../../src/core/plain_file.js';
import { testFolders } from '../support/folder.js';

const newFolder = testFolders('plain');

function pipe(path: string): void {
  expect(spawnSync('mkfifo', [path]).status).toBe(0);
}

describe('a file of a run', () => {
  it('is read, also through links to it and to its folder, and null if it is missing', () => {
    const folder = newFolder();
    mkdirSync(join(folder, 'there'));
    writeFileSync(join(folder, 'there/state.json'), '{"ä": 1}');
    symlinkSync(join(folder, 'there'), join(folder, 'linked'));
    symlinkSync('state.json', join(folder, 'there/also.json'));
    for (const path of ['there/state.json', 'linked/state.json', 'linked/also.json']) {
      expect(readPlainText(join(folder, path))).toBe('{"ä": 1}');
    }
    expect(readPlain(join(folder, 'nothing'))).toBeNull();
    expect(readPlain(join(folder, 'there/state.json/below'))).toBeNull();
    symlinkSync('nowhere', join(folder, 'dangling'));
    expect(readPlain(join(folder, 'dangling'))).toBeNull();
    writeFileSync(join(folder, 'empty'), '');
    expect(readPlainText(join(folder, 'empty'))).toBe('');
  });

  it('is rejected where it is none, without waiting for it', async () => {
    const folder = newFolder();
    pipe(join(folder, 'pipe'));
    symlinkSync('pipe', join(folder, 'to-pipe'));
    symlinkSync('/dev/zero', join(folder, 'device'));
    mkdirSync(join(folder, 'folder'));
    const server = createServer().listen(join(folder, 'socket'));
    await new Promise((resolve) => server.once('listening', resolve));
    const kinds = {
      pipe: 'a named pipe (FIFO)',
      'to-pipe': 'a named pipe (FIFO)',
      device: 'a device',
      folder: 'a folder',
      socket: 'a socket',
    };
    for (const [name, kind] of Object.entries(kinds)) {
      const where = join(folder, name);
      const refused = expect.objectContaining({
        code: 'run',
        where,
        message: `this is ${kind}, not a plain file`,
      }) as Error;
      for (const read of [openPlain, readPlain]) expect(() => read(where)).toThrow(refused);
      expect(() => scanLines(where, () => undefined)).toThrow(refused);
    }
    server.close();
  });

  it('is rejected where it is larger than it may be, by its size before anything is read', () => {
    const path = join(newFolder(), 'state.json');
    writeFileSync(path, 'x'.repeat(10));
    expect(readPlain(path, 10)).toHaveLength(10);
    expect(() => readPlain(path, 9)).toThrow('this has more than 9 bytes, more than any such file');
    truncateSync(path, 2 ** 42);
    expect(() => readPlain(path)).toThrow('this has more than 64 MiB');
  });

  it('has its size counted if the system reports none', () => {
    expect(readPlain('/proc/self/status')!.length).toBeGreaterThan(100);
    expect(() => readPlain('/proc/self/status', 100)).toThrow('more than 100 bytes');
  });

  it('is read whole where it is longer than one read', () => {
    const path = join(newFolder(), 'long');
    writeFileSync(path, 'a'.repeat(100_000));
    const file = openPlain(path);
    appendFileSync(path, 'b');
    expect(readPlain(path)).toHaveLength(100_001);
    closeSync(file!);
  });
});
