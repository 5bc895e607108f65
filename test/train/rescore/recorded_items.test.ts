import { describe, expect, it } from 'vitest';
import type { RgbImage } from '../../../src/core/images/image.js';
import { redrawsIdentically, recordedItems, type RecordedTask } from '../../../src/train/rescore/recorded_items.js';
import { listEpisodeFiles, readRecordedEpisodes, storeImage, writeEpisodes } from '../../../src/run/episodes.js';
import { RunPaths } from '../../../src/run/paths.js';
import { testFolders } from '../../support/folder.js';

const newFolder = testFolders('recorded-items');
const grey = (level: number): RgbImage => ({ width: 1, height: 1, data: Uint8Array.of(level, level, level) });

const outcome = { kind: 'scored', value: 1, normalised: 1, parts: {} };
const written = { sample: 'rows:1', instruction: 'a cat', finished: true, tokens: [1], outcome };

const never = (): never => {
  throw new Error('nothing is drawn here');
};

/** Paints words in one grey, and notes how many. */
class Painting implements RecordedTask {
  readonly order = { ordinary: never, refill: never, epochLength: 1 };
  readonly validation = [];
  painted = 0;

  constructor(private readonly level: number) {}

  prompt = () => Promise.resolve({ id: 'rows:1', instruction: 'a cat', sourcePng: null });
  labels = () => Promise.resolve({ truth: null, row: { prompt: 'a cat', level: 3 } });
  reread = ({ tokens }: { readonly tokens?: readonly number[] }) => tokens;
  dispose = () => Promise.resolve();

  render: RecordedTask['render'] = (chunk) => {
    this.painted += chunk[0].keys.length;
    const edited = grey(this.level);
    return Promise.resolve(
      chunk.map(({ keys, prompt: { instruction } }) =>
        keys.map((key) => ({
          item: { key, instruction, source: null, edited, truth: null, answer: 'painted', finished: true },
          record: {},
          caption: '',
        })),
      ),
    );
  };
}

/** Two answers in words, with the images of the first and, where there is one, of the second. */
async function recorded(second: RgbImage | null) {
  const paths = new RunPaths(newFolder(), 'run');
  const line = { ...written, source: null };
  const stored = async (image: RgbImage | null) => (image === null ? null : storeImage(paths, image));
  writeEpisodes(paths, 1, [
    { ...line, key: '1/0/0', text: '"a red cat"', answer: 'a red cat', edited: await stored(grey(7)) },
    { ...line, key: '1/0/1', text: 'a cat', answer: 'a cat', edited: await stored(second) },
  ]);
  const files = listEpisodeFiles(paths);
  const items = (task: Painting | null) =>
    recordedItems(files[0], readRecordedEpisodes(files[0].path), {
      paths,
      task,
      promptsPerIteration: 1,
      noTask: 'it is gone',
      redraws: true,
    });
  return { paths, files, items };
}

describe('recorded images that were made from words', () => {
  it('are read where they were kept, with what was written for them and the row, and not painted again', async () => {
    const { items } = await recorded(grey(9));
    const task = new Painting(1);
    const [first, second] = await items(task);
    expect(first.item).toMatchObject({
      key: '1/0/0',
      instruction: 'a cat',
      source: null,
      edited: grey(7),
      answer: 'a red cat',
      row: { level: 3 },
    });
    expect(second.item?.edited).toEqual(grey(9));
    expect(task.painted).toBe(0);
    expect((await items(null)).map(({ missing }) => missing)).toEqual([null, null]);
  });

  it('are asked for again where there was none, since the record does not say why', async () => {
    const { items } = await recorded(null);
    const task = new Painting(1);
    expect((await items(task)).map(({ item }) => item?.answer)).toEqual(['painted', 'painted']);
    expect(task.painted).toBe(2);
  });

  it('are not painted again from data that has changed since: an id may stay where the words do not', async () => {
    const { items } = await recorded(null);
    const task = new Painting(1);
    task.prompt = () => Promise.resolve({ id: 'rows:1', instruction: 'a dog', sourcePng: null });
    const [kept, lost] = await items(task);
    expect(kept.item).toMatchObject({ instruction: 'a cat', edited: grey(7) });
    expect([lost.item, lost.missing]).toEqual([
      null,
      'its artifact has to be rendered again, but the data has changed since the run',
    ]);
    expect(task.painted).toBe(0);
  });

  it('tell whether images come out as they did', async () => {
    const { paths, files } = await recorded(grey(9));
    const judge = (task: Painting) => redrawsIdentically(files, { paths, task, promptsPerIteration: 1, noTask: '' });
    expect(await judge(new Painting(7))).toBe(true);
    expect(await judge(new Painting(8))).toBe(false);
  });
});

it('asks for the prompt at the place that is recorded, else for that of the key', async () => {
  const paths = new RunPaths(newFolder(), 'run');
  writeEpisodes(paths, 3, [
    { ...written, key: '3/0/0' },
    { ...written, key: '3/1/0', place: [1, 7] },
  ]);
  const [file] = listEpisodeFiles(paths);
  const asked: unknown[] = [];
  const task = new Painting(1);
  const { prompt } = task;
  task.prompt = (...position: unknown[]) => (asked.push(...position), prompt());
  const from = { paths, task, promptsPerIteration: 1, noTask: 'it is gone', redraws: true };
  await recordedItems(file, readRecordedEpisodes(file.path), from);
  expect(asked).toEqual([2, { source: 1, index: 7 }]);
});

describe('images that were given beside the edited one', () => {
  /** An answer whose images were kept, and which was given so many further ones. */
  async function given(beside: object) {
    const paths = new RunPaths(newFolder(), 'run');
    const [source, edited] = [await storeImage(paths, grey(4)), await storeImage(paths, grey(7))];
    writeEpisodes(paths, 1, [{ ...written, key: '1/0/0', source, edited, ...beside }]);
    const [file] = listEpisodeFiles(paths);
    return async (task: Painting | null) => {
      const from = { paths, task, promptsPerIteration: 1, noTask: 'it is gone', redraws: true };
      return (await recordedItems(file, readRecordedEpisodes(file.path), from))[0];
    };
  }
  const having = (...beside: RgbImage[]): Painting =>
    Object.assign(new Painting(1), { labels: () => Promise.resolve({ truth: null, beside }) });

  it('are those of the data, and an answer without them is none', async () => {
    const found = await given({ beside: 2 });
    expect((await found(having(grey(5), grey(6)))).item).toMatchObject({
      source: grey(4),
      edited: grey(7),
      beside: [grey(5), grey(6)],
    });
    expect((await found(null)).missing).toBe('its other images have to be read again, but it is gone');
    expect((await found(having(grey(5)))).missing).toBe(
      'its other images have to be read again, but the data has changed since the run',
    );
  });
});

describe('words that answer to an image', () => {
  it('are read again as the words that they were, without the image', async () => {
    const paths = new RunPaths(newFolder(), 'run');
    const source = await storeImage(paths, grey(4));
    writeEpisodes(paths, 1, [{ ...written, key: '1/0/0', text: 'it is a cat', source, edited: null }]);
    const [file] = listEpisodeFiles(paths);
    const task = new Painting(1);
    const from = { paths, task, promptsPerIteration: 1, noTask: 'it is gone', redraws: true };
    const [{ item }] = await recordedItems(file, readRecordedEpisodes(file.path), from);
    expect(task.painted).toBe(1);
    expect(item).toMatchObject({ source: null, answer: 'painted' });
  });
});
