import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { parquetWriteBuffer } from 'hyparquet-writer';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { main } from '../../src/cli/main.js';
import { openImageEdits, IMAGE_EDIT_COLUMNS } from '../../src/data/image_edits.js';
import { capture } from '../cli/run_directory.js';
import { testFolders } from '../support/folder.js';
import { plain, writeFiles } from './image_files.js';

const folders = testFolders('benchmarks');
afterEach(() => {
  vi.restoreAllMocks();
});

interface Row {
  readonly task_type: string;
  readonly key: string;
  readonly instruction: string;
  readonly instruction_language: string;
  readonly input_image: { readonly bytes: Uint8Array; readonly path: string | null } | null;
  readonly input_image_raw: { readonly bytes: Uint8Array; readonly path: string | null } | null;
}

const words = (name: string) =>
  ({ name, type: 'BYTE_ARRAY', converted_type: 'UTF8', repetition_type: 'OPTIONAL' }) as const;
const picture = (name: string) =>
  [
    { name, repetition_type: 'OPTIONAL', num_children: 2 },
    { name: 'bytes', type: 'BYTE_ARRAY', repetition_type: 'OPTIONAL' },
    words('path'),
  ] as const;

/** Rows as the Hub has them: pictures are bytes beside the names of their files. */
function parquet(path: string, rows: readonly Row[]): string {
  const texts = ['task_type', 'key', 'instruction', 'instruction_language'] as const;
  const images = ['input_image', 'input_image_raw'] as const;
  const schema = [{ name: 'root', num_children: 6 }, ...texts.map(words), ...images.flatMap(picture)];
  const columnData = [...texts, ...images].map((name) => ({ name, data: rows.map((row) => row[name]) }));
  writeFileSync(path, new Uint8Array(parquetWriteBuffer({ schema, columnData })));
  return path;
}

async function bench(...args: readonly string[]): Promise<{ code: number; out: string; error: string }> {
  const written = capture();
  const code = await main(['data', 'bench', ...args]);
  vi.restoreAllMocks();
  return { code, out: written.out, error: written.error };
}

const read = (...path: readonly string[]): unknown[] =>
  readFileSync(join(...path), 'utf8')
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line) as unknown);

describe('editrl data bench', () => {
  const [small, raw] = [plain(4, 4, [200, 255, 128]), plain(8, 8, [200, 255, 128])];
  const row = (key: string, task_type: string, language = 'en', rest: Partial<Row> = {}): Row => ({
    ...{ key, task_type, instruction: `edit ${key}`, instruction_language: language },
    ...{ input_image: { bytes: small, path: 'a.png' }, input_image_raw: { bytes: raw, path: null }, ...rest },
  });

  it('makes a list for each type of GEdit-Bench, whose images are those in the files, in one language', async () => {
    const folder = folders();
    const many = Array.from({ length: 120 }, (_, i) => row(`k${i}`, 'subject-add'));
    const lists = [
      parquet(join(folder, 'a.parquet'), [row('1', 'style_change'), row('2', 'style_change', 'cn'), ...many]),
      parquet(join(folder, 'b.parquet'), [row('3', 'style_change', 'en', { input_image_raw: null })]),
    ];
    const out = join(folder, 'out');
    const made = await bench(...lists, '--out', out);
    expect(made).toEqual({ code: 0, error: '', out: `${out}: 122 edits (style_change 2, subject-add 120)\n` });
    const lines = read(out, 'style_change.jsonl') as { key: string; source: string; instruction: string }[];
    expect(lines.map(({ key, instruction }) => [key, instruction])).toEqual([
      ['1', 'edit 1'],
      ['3', 'edit 3'],
    ]);
    expect(lines.map(({ source }) => readFileSync(join(out, source)).length)).toEqual([raw.length, small.length]);
    expect(Buffer.compare(readFileSync(join(out, lines[0].source)), Buffer.from(raw))).toBe(0);
    // It is a dataset of edits in rows, as a whole and by type.
    expect((await openImageEdits(out, null, IMAGE_EDIT_COLUMNS)).length).toBe(122);
    expect(await bench(...lists, '--out', join(folder, 'all'), '--language', 'all', '--json')).toMatchObject({
      code: 0,
    });
    const all = read(folder, 'all', 'style_change.jsonl');
    expect(all).toMatchObject([{ language: 'en', intersection: false }, { language: 'cn' }, { language: 'en' }]);
    // The judge of GEdit-Bench sees the smaller image.
    const { shown_source } = all[0] as { shown_source: string };
    expect(readFileSync(join(folder, 'all', shown_source)).length).toBe(small.length);
  });

  it('makes a list for each type of ImgEdit, whose images stay where they are', async () => {
    const folder = folders();
    writeFiles(folder, {
      'singleturn/animal/1.jpg': small,
      'basic_edit.json': JSON.stringify({
        '1082': { id: 'animal/1.jpg', prompt: 'Remove the dog.', edit_type: 'remove' },
        '7': { id: 'animal/1.jpg', prompt: 'Make it a cat.', edit_type: 'replace' },
      }),
      'UGE_edit.json': JSON.stringify({ '1': { id: 'animal/1.jpg', prompt: 'Swap both.' } }),
    });
    const pictures = join(folder, 'singleturn');
    const out = join(folder, 'out');
    const lists = ['basic_edit.json', 'UGE_edit.json'].map((name) => join(folder, name));
    expect(await bench(...lists, '--pictures', pictures, '--out', out)).toMatchObject({ code: 0 });
    const source = '../singleturn/animal/1.jpg';
    expect(read(out, 'remove.jsonl')).toEqual([
      { source, instruction: 'Remove the dog.', key: '1082', task_type: 'remove' },
    ]);
    expect(read(out, 'edit.jsonl')).toEqual([{ source, instruction: 'Swap both.', key: '1', task_type: 'edit' }]);
    const edits = await openImageEdits(join(out, 'remove.jsonl'), null, IMAGE_EDIT_COLUMNS);
    expect(existsSync(edits.read(0).source)).toBe(true);
    expect(edits.read(0).instruction).toBe('Remove the dog.');
  });

  it('keeps the columns of RISEBench that decide its questions', async () => {
    const folder = folders();
    writeFiles(folder, {
      'images/1.png': small,
      'images/ref.png': raw,
      'data_total.json': JSON.stringify([
        {
          index: 't1',
          category: 'temporal_reasoning',
          instruction: 'Later.',
          image: 'images/1.png',
          reference: 'Old.',
        },
        {
          ...{ index: 'l1', category: 'logical_reasoning', instruction: 'Solve.', image: 'images/1.png' },
          ...{ reference_img: 'images/ref.png', reasoning_wo_ins: true, subtask: 'Puzzle Solving' },
        },
      ]),
    });
    const out = join(folder, 'out');
    expect(await bench(join(folder, 'data_total.json'), '--pictures', folder, '--out', out)).toMatchObject({ code: 0 });
    expect(read(out, 'temporal_reasoning.jsonl')).toMatchObject([
      {
        source: '../images/1.png',
        key: 't1',
        task_type: 'temporal_reasoning',
        reference: 'Old.',
        consistency_free: null,
      },
    ]);
    expect(read(out, 'logical_reasoning.jsonl')).toMatchObject([
      { reference_image: '../images/ref.png', reasoning_wo_ins: true, subtask: 'Puzzle Solving' },
    ]);
  });

  it('reads the categories of KRIS-Bench, with several images for some', async () => {
    const folder = folders();
    writeFiles(folder, {
      'viewpoint_change/1.jpg': small,
      'viewpoint_change/1_gt.jpg': raw,
      'viewpoint_change/annotation.json': JSON.stringify({
        '1': { ori_img: '1.jpg', gt_img: '1_gt.jpg', ins_en: 'Turn it.', explain_en: '' },
      }),
      'temporal_prediction/1-1.jpg': small,
      'temporal_prediction/1-3.jpg': small,
      'temporal_prediction/annotation.json': JSON.stringify({
        '1': { ori_img: ['1-1.jpg', '1-3.jpg'], gt_img: '1-2.jpg', ins_en: 'Predict it.' },
      }),
    });
    const out = join(folder, 'out');
    const lists = ['viewpoint_change', 'temporal_prediction'].map((name) => join(folder, name, 'annotation.json'));
    expect(await bench(...lists, '--out', out)).toMatchObject({ code: 0 });
    expect(read(out, 'viewpoint_change.jsonl')).toEqual([
      {
        ...{ source: '../viewpoint_change/1.jpg', instruction: 'Turn it.', key: 'viewpoint_change_1' },
        ...{ task_type: 'viewpoint_change', reference_image: '../viewpoint_change/1_gt.jpg', explanation: '' },
      },
    ]);
    const edits = await openImageEdits(join(out, 'temporal_prediction.jsonl'), null, IMAGE_EDIT_COLUMNS);
    expect(edits.read(0)).toMatchObject({ further: [join(folder, 'temporal_prediction/1-3.jpg')] });
    expect(edits.read(0).row).toMatchObject({
      source: ['../temporal_prediction/1-1.jpg', '../temporal_prediction/1-3.jpg'],
    });
  });

  it('reads the parquet files of GEditBench v2', async () => {
    const folder = folders();
    const file = join(folder, 'v2.parquet');
    const schema = [
      { name: 'root', num_children: 3 },
      ...['key', 'instruction'].map(words),
      ...picture('source_image'),
    ];
    const columnData = [
      { name: 'key', data: ['color_alter_000001'] },
      { name: 'instruction', data: ['Paint it.'] },
      { name: 'source_image', data: [{ bytes: raw, path: null }] },
    ];
    writeFileSync(file, new Uint8Array(parquetWriteBuffer({ schema, columnData })));
    const out = join(folder, 'out');
    expect(await bench(file, '--out', out)).toMatchObject({ code: 0 });
    expect(read(out, 'color_alter.jsonl')).toMatchObject([{ key: 'color_alter_000001', task_type: 'color_alter' }]);
  });

  it('rejects what is neither, in one message, and leaves no folder behind', async () => {
    const folder = folders();
    writeFiles(folder, {
      'edit.json': JSON.stringify({ '1': { id: 'gone.jpg', prompt: 'x', edit_type: 'a' } }),
      'other.json': JSON.stringify([{ a: 1 }]),
      'no.parquet': 'PAR',
    });
    const out = join(folder, 'out');
    const noPicture = parquet(join(folder, 'n.parquet'), [
      row('1', 'a', 'en', { input_image_raw: null, input_image: null }),
    ]);
    const words = parquet(join(folder, 'w.parquet'), [
      row('1', 'a', 'en', { input_image_raw: { bytes: new TextEncoder().encode('words'), path: null } }),
    ]);
    for (const [args, code, said] of [
      [[join(folder, 'edit.json')], 2, 'Give the folder: --pictures FOLDER'],
      [[join(folder, 'edit.json'), '--pictures', folder], 1, 'the image of edit 1 is missing'],
      [
        [join(folder, 'other.json'), '--pictures', folder],
        1,
        'not an edit of GEdit-Bench or GEditBench v2 (parquet), ImgEdit, ',
      ],
      [[join(folder, 'no.parquet')], 1, 'cannot be read as parquet'],
      [[join(folder, 'gone.parquet')], 1, 'there is no such file'],
      [[noPicture], 1, 'neither input_image_raw nor input_image'],
      [[words], 1, 'neither PNG, JPEG nor WebP'],
      [[join(folder, 'a.csv')], 2, 'allowed: .parquet files of GEdit-Bench'],
    ] as const) {
      const made = await bench(...args, '--out', out);
      expect(made.error).toContain(said);
      expect(made).toMatchObject({ code, out: '' });
      expect(existsSync(out)).toBe(false);
    }
    const full = await bench(join(folder, 'edit.json'), '--pictures', folder, '--out', folder);
    expect(full).toMatchObject({ code: 2 });
    expect(full.error).toContain('is not empty');
  });
});
