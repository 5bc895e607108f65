import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { brokenForm } from '../../../src/data/video/clip.js';
import { testFolders } from '../../support/folder.js';

const newFolder = testFolders('form');

/** A box of ISO/IEC 14496-12: its length, its name and what it holds. */
function box(length: number, name: string, content = ''): Buffer {
  const head = Buffer.alloc(8);
  head.writeUInt32BE(length);
  head.write(name, 4, 'latin1');
  return Buffer.concat([head, Buffer.from(content, 'latin1')]);
}

const formOf = (...boxes: readonly Buffer[]): string | null => {
  const path = join(newFolder(), 'clip.mp4');
  writeFileSync(path, Buffer.concat(boxes));
  return brokenForm(path);
};

it('explains how much of the last box is missing', () => {
  const start = box(16, 'ftyp', 'isomxxxx');
  expect(formOf(start, box(12, 'mdat', 'abcd'))).toBeNull();
  expect(formOf(start, box(12, 'mdat', 'abc'))).toBe('it ends early: at least 1 byte is missing');
  // One that goes on to the end of the file, and one whose long length is there.
  expect(formOf(start, box(0, 'mdat', 'abc'))).toBeNull();
  expect(formOf(start, box(1, 'mdat', '\0\0\0\0\0\0\0\x14abc'))).toBe('it ends early: at least 1 byte is missing');
});

it('makes nothing of a long length that is cut off: it is not what another box holds in its place', () => {
  expect(formOf(box(16, 'ftyp', 'isomxxxx'), box(1, 'mdat', '\0\0\0'))).toBeNull();
});
