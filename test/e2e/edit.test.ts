import { existsSync, mkdirSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import sharp from 'sharp';
import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest';
import { Place, RL, type Ended } from './editrl.js';

let place: Place;
let image: string;
beforeAll(async () => {
  place = Place.make(inject('template'));
  mkdirSync(join(place.dir, 'mine'));
  image = join(place.dir, 'mine', 'photo.jpg');
  await sharp({ create: { width: 90, height: 60, channels: 3, background: '#c04020' } })
    .jpeg()
    .toFile(image);
});
afterAll(() => place.remove());

interface Edited {
  readonly edited: readonly (string | null)[];
  readonly grid: string | null;
}

const edit = (...args: readonly string[]): Promise<Ended> => place.call(['edit', ...args]);

async function samples(name: string, seed: number): Promise<{ readonly grid: string; readonly files: string[] }> {
  const out = join(place.dir, 'mine', `${name}.png`);
  const ended = await edit(
    RL,
    image,
    'add the red circle at a1',
    '--samples',
    '3',
    '--seed',
    `${seed}`,
    '--out',
    out,
    '--json',
  );
  expect(ended.code).toBe(0);
  const { edited, grid } = JSON.parse(ended.out) as Edited;
  return { grid: grid ?? '', files: edited.filter((file) => file !== null) };
}

describe('editrl edit', () => {
  it('writes samples and their grid, the same for the same seed, and leaves no evaluation', async () => {
    const [first, again, other] = [await samples('a', 1), await samples('b', 1), await samples('c', 2)];
    expect(first.files).toHaveLength(3);
    const bytes = ({ files }: typeof first): string[] => files.map((file) => readFileSync(file, 'base64'));
    expect(bytes(again)).toEqual(bytes(first));
    expect(bytes(other)).not.toEqual(bytes(first));
    const [{ width = 0 }, { width: wide = 0 }] = await Promise.all(
      [first.files[0], first.grid].map((file) => sharp(file).metadata()),
    );
    expect(wide).toBeGreaterThan(2 * width);
    const evaluations = join(place.run(RL), 'evaluations');
    expect(existsSync(evaluations) ? readdirSync(evaluations) : []).toEqual([]);
  });

  it('writes the most likely edit', async () => {
    const out = join(place.dir, 'mine', 'likely.png');
    expect(await edit(`${RL}@best`, image, 'add the red circle at a1', '--out', out)).toMatchObject({
      code: 0,
      out: `${out}\n`,
    });
    expect(await sharp(out).metadata()).toMatchObject({ format: 'png' });
  });

  it.each([
    ['a run that edits no images', 'tiny_vq', () => image, 2, "task 'image_tokenizer'"],
    ['a lost image', RL, () => join(place.dir, 'lost.png'), 2, 'lost.png'],
  ])('rejects %s', async (_, run, file, code, said) => {
    const ended = await edit(run, file(), 'add the red circle at a1');
    expect(ended.code).toBe(code);
    expect(ended.err).toContain(said);
  });
});
