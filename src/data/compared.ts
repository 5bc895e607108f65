/** Datasets of every kind that `data check` knows, as their samples are compared with those of others. */
import { comparedCaption, openCaptioned } from './captioned.js';
import type { DatasetReport, DatasetUse } from './check.js';
import { TEXT_COLUMNS } from './check_texts.js';
import { openQuestions, shownDigest } from './conversations.js';
import { comparedEdit, openEditDataset } from './edits.js';
import { openImageDataset } from './images.js';
import { pixelDigest, type ComparedSet } from './overlap.js';
import { openPicturedEdits, PICTURED_COLUMNS, shownBefore } from './pictured_edits.js';
import { openRows, valueAt } from './rows.js';
import { comparedInpaint, openSelfBench } from './self_bench.js';

type Opener = (path: string, use: DatasetUse) => Promise<Omit<ComparedSet, 'name'>>;

const openers: Readonly<Record<DatasetReport['kind'], Opener>> = {
  edits: async (path) => {
    const source = openEditDataset(path);
    return { length: source.length, at: (index) => comparedEdit(source, index) };
  },
  images: async (path) => {
    const source = openImageDataset(path);
    return {
      length: source.length,
      at: (index) => {
        const { id, bytes, path: file } = source.read(index);
        return { id, words: '', picture: () => pixelDigest(bytes, file) };
      },
    };
  },
  inpainting: async (path) => {
    const source = openSelfBench(path);
    return { length: source.length, at: (index) => comparedInpaint(source, index) };
  },
  videos: async (path, { media }) => {
    const source = openQuestions(path, media);
    return {
      length: source.length,
      at: (index) => {
        const question = source.read(index);
        return { id: source.id(index), words: JSON.stringify(question.turns), picture: () => shownDigest(question) };
      },
    };
  },
  pictured: async (path, { media, columns }) => {
    const source = await openPicturedEdits(path, media ?? null, { ...PICTURED_COLUMNS, ...columns });
    return {
      length: source.length,
      at: (index) => {
        const edit = source.read(index);
        return { id: edit.id, words: edit.instruction, picture: () => shownBefore(edit) };
      },
    };
  },
  captioned: async (path) => {
    const source = await openCaptioned(path);
    return { length: source.length, at: (index) => comparedCaption(source, index) };
  },
  texts: async (path, { columns }) => {
    const source = await openRows(path);
    const { prompt } = { ...TEXT_COLUMNS, ...columns };
    return {
      length: source.length,
      at: (index) => {
        const words = valueAt(source.read(index), prompt);
        return {
          id: source.id(index),
          words: typeof words === 'string' ? words : JSON.stringify(words),
          picture: null,
        };
      },
    };
  },
};

/** Opens a dataset that was read through. Raises DataError as its kind's opener does, for one that has problems. */
export async function openCompared({ path, kind }: DatasetReport, use: DatasetUse): Promise<ComparedSet> {
  return { name: path, ...(await openers[kind](path, use)) };
}
