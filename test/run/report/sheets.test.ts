import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import sharp from 'sharp';
import { expect, it } from 'vitest';
import { RunPaths } from '../../../src/run/paths.js';
import {
  contactSheets,
  saveContactSheet,
  startMiddleEnd,
  writeContactSheet,
} from '../../../src/run/report/contact_sheet.js';
import { testFolder } from '../../support/folder.js';

it('finds the start, the middle and the end', () => {
  const sheets = [0, 10, 40, 50].map((iteration) => ({ iteration, path: String(iteration) }));
  expect(startMiddleEnd(sheets).map(({ iteration }) => iteration)).toEqual([0, 10, 50]);
  expect(startMiddleEnd(sheets.slice(0, 1)).map(({ iteration }) => iteration)).toEqual([0]);
  expect(startMiddleEnd([])).toEqual([]);
});

it('draws one, which is also the latest, and passes over files of other names', async () => {
  const paths = new RunPaths(testFolder('sheets'), 'mine');
  mkdirSync(paths.contactSheetsDir, { recursive: true });
  writeFileSync(`${paths.contactSheetsDir}/000001.png.7.tmp`, 'torn');
  const row = { instruction: 'x', source: null, edit: null, truth: null, score: '1', words: null };
  await saveContactSheet(paths, { iteration: 20, manner: 'greedy' }, [row]);
  const [sheet, ...more] = contactSheets(paths);
  expect([sheet.iteration, more]).toEqual([20, []]);
  expect(readFileSync(sheet.path).equals(readFileSync(paths.contactSheet))).toBe(true);
});

it.each([
  ['pictures', null],
  ['words', { thought: null, answer: 'yes', expected: 'no' }],
])('says above a sheet of %s which run, iteration and manner it is of', async (_, words) => {
  const paths = new RunPaths(testFolder('captions'), 'a-run-of-a-long-name'.repeat(4));
  mkdirSync(paths.contactSheetsDir, { recursive: true });
  const row = { instruction: 'x', source: null, edit: null, truth: null, score: '1', words };
  const bare = `${paths.dir}/bare.png`;
  await writeContactSheet(bare, [row]);
  await saveContactSheet(paths, { iteration: 20, manner: 'greedy' }, [row]);
  const [below, { data, info }] = await Promise.all(
    [bare, paths.contactSheet].map((path) => sharp(path).greyscale().raw().toBuffer({ resolveWithObject: true })),
  );
  const added = info.height - below.info.height;
  expect(info.width).toBe(below.info.width);
  expect(added).toBeGreaterThan(20);
  // It reaches into the margin of the sheet, and not further.
  const margin = 28;
  expect(data.subarray((added + margin) * info.width).equals(below.data.subarray(margin * info.width))).toBe(true);
  const above = data.subarray(0, (added + margin) * info.width);
  expect(above.filter((value) => value < 100).length).toBeGreaterThan(300);
  // Nothing is cut at the right: a long name goes on in another line.
  for (let y = 0; y < added + margin; y++) expect(above[(y + 1) * info.width - 10]).toBe(255);
});
