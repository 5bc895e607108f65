import { constants, type accessSync as AccessSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it, vi } from 'vitest';
import { requireWritable } from '../../src/core/files.js';
import { testFolder } from '../support/folder.js';

const refusal = vi.hoisted(() => ({ code: null as string | null, asked: [] as unknown[] }));
vi.mock('node:fs', async (original) => {
  const real = await original<Record<string, unknown>>();
  const accessSync: typeof AccessSync = (path, mode) => {
    refusal.asked.push(path, mode);
    if (refusal.code !== null) throw Object.assign(new Error(refusal.code), { code: refusal.code });
  };
  return { ...real, accessSync };
});

it.each([
  ['EROFS', 'the disk is read-only'],
  ['EACCES', 'no permission to write here'],
])('says of the folder that a missing one would be made in what keeps it from being made: %s', (code, message) => {
  const there = testFolder('writable');
  refusal.code = code;
  refusal.asked = [];
  const ask = (): string => requireWritable(join(there, 'missing', 'deeper'), 'Go elsewhere.');
  expect(ask).toThrow(expect.objectContaining({ code: 'run', message, where: there, next: 'Go elsewhere.' }));
  expect(refusal.asked).toEqual([there, constants.W_OK]);
  refusal.code = null;
  expect(ask()).toBe(there);
});
