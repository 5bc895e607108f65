import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { loadConfig } from '../../../src/config/load.js';
import { DataError } from '../../../src/core/errors.js';
import { encodePlainPng } from '../../../src/core/images/png.js';
import { toUnit } from '../../../src/core/images/planes.js';
import { Datasets } from '../../../src/data/datasets.js';
import { openCaptioned } from '../../../src/data/captioned.js';
import { pixelCodec } from '../../../src/train/environments/image_codec.js';
import { WordEncoder } from '../../../src/train/environments/word_encoder.js';
import { CaptionedTask } from '../../../src/recipes/pretraining/open.js';
import { testFolders } from '../../support/folder.js';

const newFolder = testFolders('captioned-task');
const encoder = new WordEncoder({ words: ['red'], length: 2 });

async function open(rows: readonly object[], width = 16): Promise<CaptionedTask> {
  const { settings } = await loadConfig({ file: 'configs/tiny_painter.jsonnet', env: {} });
  const folder = join(newFolder(), 'images');
  mkdirSync(folder);
  const data = Uint8Array.from({ length: 3 * width * 16 }, (_, i) => (i * 7) % 256);
  writeFileSync(join(folder, '0.png'), encodePlainPng({ width, height: 16, data }));
  const list = join(folder, 'metadata.jsonl');
  writeFileSync(list, rows.map((row) => `${JSON.stringify(row)}\n`).join(''));
  const listed = { path: folder, coefficient: null };
  const datasets = await Datasets.open({ seed: settings.seed, data: { train: [listed], validation: [listed] } }, () =>
    openCaptioned(folder),
  );
  return new CaptionedTask(settings as never, pixelCodec, encoder, datasets);
}

describe('captioned images', () => {
  it('are what a model should leave, and what it is asked', async () => {
    const task = await open([{ file_name: '0.png', text: 'Red thing' }]);
    const prompt = await task.prompt(3);
    expect(prompt).toMatchObject({ id: 'metadata.jsonl:1', instruction: 'Red thing', flow: { rows: 4, columns: 4 } });
    expect(prompt.flow.text).toEqual((await encoder.encode('red other')).text);
    const wanted = await prompt.wanted();
    expect(wanted.length).toBe(16 * 48);
    // The first token's channels come one after the other: a row of four pixels each time.
    const red = (x: number, y: number): number => toUnit((3 * (16 * y + x) * 7) % 256);
    expect([...wanted.subarray(0, 8)]).toEqual(
      [0, 1, 2, 3]
        .flatMap((x) => red(x, 0))
        .concat([0, 1, 2, 3].map((x) => red(x, 1)))
        .map(Math.fround),
    );
    expect(await (await task.promptAt(task.heldOut[0].source, 0)).wanted()).toBe(wanted);
    expect(task.predictsSample).toBe(true);
  });

  it.each([
    [{ file_name: '0.png', text: ' ' }, /no image with a caption/],
    [{ text: 'a cat' }, /no image with a caption/],
    [{ file_name: 'gone.png', text: 'a cat' }, /cannot read .*gone\.png \(ENOENT\)/],
  ])('that are missing are rejected by their row: %j', async (row, message) => {
    const task = await open([row]);
    const read = async (): Promise<unknown> => (await task.prompt(0)).wanted();
    await expect(read()).rejects.toThrow(DataError);
    await expect(read()).rejects.toThrow(message);
    await expect(read()).rejects.toMatchObject({ where: expect.stringMatching(/metadata\.jsonl:1$/) as string });
  });
});
