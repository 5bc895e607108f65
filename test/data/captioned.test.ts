import { cpSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { openCaptioned } from '../../src/data/captioned.js';
import { testFolders } from '../support/folder.js';

const newFolder = testFolders('captioned');
const rows = [
  { file_name: '1.png', text: 'a red circle' },
  { file_name: '1.png', text: 'a crimson orb' },
  { file_name: '2.png', text: 'a blue square' },
];

function write(captions: readonly object[] = rows): string {
  const folder = newFolder();
  writeFileSync(join(folder, 'metadata.jsonl'), captions.map((row) => `${JSON.stringify(row)}\n`).join(''));
  for (const number of [1, 2]) writeFileSync(join(folder, `${number}.png`), `picture ${number}`);
  return folder;
}

describe('the digest of captioned images', () => {
  it('is the same wherever they lie', async () => {
    const folder = write();
    const copy = join(newFolder(), 'copy');
    cpSync(folder, copy, { recursive: true });
    expect((await openCaptioned(copy)).digest).toEqual((await openCaptioned(folder)).digest);
  });

  it('changes with a caption, and with the bytes of an image', async () => {
    const folder = write();
    const { ids, files } = (await openCaptioned(folder)).digest;
    const other = (await openCaptioned(write(rows.map((row) => ({ ...row, text: `${row.text}s` }))))).digest;
    expect(other.ids).not.toBe(ids);
    expect(other.files).toBe(files);
    writeFileSync(join(folder, '2.png'), 'picture 3');
    const changed = (await openCaptioned(folder)).digest;
    expect(changed.ids).toBe(ids);
    expect(changed.files).not.toBe(files);
  });

  it('names the row whose image is missing', async () => {
    const folder = write([...rows, { file_name: '3.png', text: 'a cat' }]);
    const source = await openCaptioned(folder);
    expect(() => source.digest).toThrow(expect.objectContaining({ where: expect.stringMatching(/:4/) as string }));
  });
});
