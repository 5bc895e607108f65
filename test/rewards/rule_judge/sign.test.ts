import { describe, expect, it } from 'vitest';
import { enlargeImage, type RgbImage } from '../../../src/core/images/image.js';
import { RandomStream } from '../../../src/core/random.js';
import { nativeSize, scoreSign, type SignScore } from '../../../src/rewards/rule_judge/sign.js';
import {
  DEFAULT_SIGN,
  drawSignScene,
  drawStyledSign,
  promptOf,
  wordRows,
  type SignGeometry,
  type SignScene,
} from '../../../src/data/tiny/sign_scenes.js';
import { mapPixels, noisy, softened } from '../../data/tiny/scene_pictures.js';

const alphabet = 'ABCEFHKLMNPRSTUXY';
const sceneOf = (index: number, geometry: SignGeometry = DEFAULT_SIGN): SignScene =>
  drawSignScene(
    { seed: 7, geometry, letters: 3, labelledInk: [1, 1], sizes: { labelled: 1, train: 1, validation: 1 } },
    'train',
    index,
  );
const scenes = Array.from({ length: 40 }, (_, i) => sceneOf(i));

const ref = ({ images }: SignScene): RgbImage => images.ref;
const score = (scene: SignScene, shown: RgbImage): SignScore => scoreSign(null, scene.prompt, shown);
const drawnAs = (scene: SignScene, word: string): RgbImage => drawStyledSign(word, scene, DEFAULT_SIGN);
const mean = (of: (scene: SignScene, index: number) => number): number =>
  scenes.reduce((sum, scene, i) => sum + of(scene, i) / scenes.length, 0);
const alignmentOf = (change: (scene: SignScene, index: number) => RgbImage): number =>
  mean((scene, i) => score(scene, change(scene, i)).alignment);
const qualityOf = (change: (scene: SignScene, index: number) => RgbImage): number =>
  mean((scene, i) => score(scene, change(scene, i)).quality);

/** `share` of one picture, and the rest of another. */
const mixed = (one: RgbImage, other: RgbImage, share: number): RgbImage =>
  mapPixels(one, (value, at) => share * value + (1 - share) * other.data[at]);
const faded = (scene: SignScene, share: number): RgbImage => mixed(ref(scene), drawnAs(scene, ''), share);
const blurred = (image: RgbImage, times: number): RgbImage =>
  Array.from({ length: times }).reduce<RgbImage>((picture) => softened(picture, 0.5), image);

/** The pixels above the strip changed: `colour` gives a pixel's new one, or null to leave it. */
function painted(image: RgbImage, colour: (x: number, y: number) => readonly number[] | null): RgbImage {
  const data = Uint8Array.from(image.data);
  for (let y = 0; y < wordRows(image); y++) {
    for (let x = 0; x < image.width; x++) data.set(colour(x, y) ?? [], (y * image.width + x) * 3);
  }
  return { ...image, data };
}

/** Every letter another one of the alphabet, or the first `count` of them. */
function otherWord(word: string, count: number, index: number): string {
  const random = new RandomStream('other', word, index);
  return [...word]
    .map((name, i) => (i < count ? random.pick([...alphabet].filter((letter) => letter !== name)) : name))
    .join('');
}

/** Moved by whole pixels above the strip. */
function moved(scene: SignScene, right: number): RgbImage {
  const { width, data } = ref(scene);
  return painted(ref(scene), (x, y) => {
    const from = x - right;
    return from < 0 || from >= width
      ? scene.paper
      : [...data.slice((y * width + from) * 3, (y * width + from) * 3 + 3)];
  });
}

describe('a sign as it is drawn', () => {
  it('gets full marks, with its source and without', () => {
    for (const scene of scenes) {
      expect(score(scene, ref(scene))).toMatchObject({ alignment: 10, quality: 10 });
      expect(scoreSign(scene.images.source, scene.prompt, ref(scene))).toMatchObject({ alignment: 10, quality: 10 });
    }
  });

  it.each([
    { width: 48, height: 24 },
    { width: 40, height: 20 },
    { width: 64, height: 32 },
  ])('gets them at $width x $height', (geometry) => {
    for (let i = 0; i < 10; i++) {
      const { word, ink, paper } = sceneOf(i);
      const short = word.slice(0, 2);
      const { alignment, quality } = scoreSign(null, promptOf(short), drawStyledSign(short, { ink, paper }, geometry));
      expect([alignment, quality >= 9]).toEqual([10, true]);
    }
  });

  it('is brought back to its size where each pixel was enlarged to a square', () => {
    for (const scene of scenes.slice(0, 10)) {
      const soft = noisy(softened(ref(scene), 0.3), 10, 1);
      for (const factor of [2, 3]) {
        expect(nativeSize(enlargeImage(soft, factor))).toEqual(soft);
        expect(nativeSize(enlargeImage(ref(scene), factor))).toEqual(ref(scene));
      }
      expect(nativeSize(soft)).toEqual(soft);
    }
  });

  it('may stand a pixel beside its place, and no farther', () => {
    expect(alignmentOf((scene) => moved(scene, 1))).toBeGreaterThan(9);
    expect(alignmentOf((scene) => moved(scene, -1))).toBeGreaterThan(9);
    expect(alignmentOf((scene) => moved(scene, 3))).toBeLessThan(1);
  });
});

describe('what earns nothing', () => {
  it.each<readonly [string, (scene: SignScene, index: number) => RgbImage]>([
    ['a blank sign', (scene) => drawnAs(scene, '')],
    ['the source', ({ images }) => images.source],
    ['a sign full of ink', (scene) => painted(ref(scene), () => scene.ink)],
    [
      'specks of ink',
      (scene) => painted(drawnAs(scene, ''), (x, y) => (x % 16 === 3 && y % 6 === 2 ? scene.ink : null)),
    ],
    [
      'noise in place of the word',
      (scene, i) => {
        const random = new RandomStream('noise', i);
        return painted(ref(scene), () => [random.integer(256), random.integer(256), random.integer(256)]);
      },
    ],
    ['a picture of one colour', (scene) => mapPixels(ref(scene), () => 200)],
    ['very faint letters', (scene) => faded(scene, 0.15)],
  ])('%s', (_name, change) => {
    for (const [i, scene] of scenes.entries()) {
      const shown = change(scene, i);
      expect(score(scene, shown)).toMatchObject({ alignment: 0, quality: 0 });
      expect(scoreSign(scene.images.source, scene.prompt, shown)).toMatchObject({ alignment: 0, quality: 0 });
    }
  });
});

describe('the alignment of a sign', () => {
  it('is nothing for a wrong word, however clean, and little for one that is wrong in part', () => {
    const wrong = (count: number) => (scene: SignScene, i: number) => drawnAs(scene, otherWord(scene.word, count, i));
    expect(alignmentOf(wrong(3))).toBe(0);
    expect(qualityOf(wrong(3))).toBe(10);
    const [two, one] = [alignmentOf(wrong(2)), alignmentOf(wrong(1))];
    expect(two).toBeLessThan(one);
    expect(one).toBeGreaterThan(1);
    for (const [i, scene] of scenes.entries()) {
      expect(score(scene, wrong(1)(scene, i)).alignment).toBeLessThanOrEqual(5);
    }
  });

  it('is little for two words on top of each other', () => {
    const both = (scene: SignScene, i: number): RgbImage => {
      const other = drawnAs(scene, otherWord(scene.word, 3, i));
      return mapPixels(ref(scene), (value, at) =>
        (scene.ink[at % 3] < scene.paper[at % 3] ? Math.min : Math.max)(value, other.data[at]),
      );
    };
    expect(alignmentOf(both)).toBeLessThan(3);
  });

  it('falls with ink beside the word', () => {
    const lined = (rows: number) => (scene: SignScene) => painted(ref(scene), (_x, y) => (y < rows ? scene.ink : null));
    expect(alignmentOf(lined(2))).toBeLessThan(3);
    expect(alignmentOf(lined(1))).toBeLessThan(9.5);
  });

  it('is nothing for a word that hides among other letters', () => {
    for (const scene of scenes.slice(0, 5)) {
      const says = (word: string): SignScore => scoreSign(null, promptOf('AT'), drawnAs(scene, word));
      // Both words stand in the middle, so that the letters of AT are where they should be.
      expect(says('EATE')).toMatchObject({ alignment: 0 });
      expect(says('AT')).toMatchObject({ alignment: 10 });
    }
  });

  it('falls with a strip that is not that of the source', () => {
    const other = (scene: SignScene) =>
      drawStyledSign(scene.word, { ink: [255, 0, 0], paper: [0, 0, 255] }, DEFAULT_SIGN);
    for (const scene of scenes.slice(0, 10)) {
      expect(score(scene, other(scene)).alignment).toBe(10);
      const judged = scoreSign(scene.images.source, scene.prompt, other(scene));
      expect(judged.alignment).toBeLessThanOrEqual(2);
      expect(judged.reasoning).toContain('strip');
    }
  });
});

describe('what gets better step by step', () => {
  const levels = (values: readonly number[]): void => {
    for (let i = 1; i < values.length; i++) expect(values[i]).toBeLessThan(values[i - 1]);
  };

  it('noise', () => {
    const steps = [0, 16, 32, 48, 64, 96].map((sd) => (scene: SignScene, i: number) => noisy(ref(scene), sd, i));
    levels(steps.map(alignmentOf));
    levels(steps.slice(0, 5).map(qualityOf));
    expect(alignmentOf(steps[2])).toBeGreaterThan(4);
  });

  it('blur', () => {
    const steps = [0, 1, 2, 3, 5].map((times) => (scene: SignScene) => blurred(ref(scene), times));
    levels(steps.slice(0, 4).map(alignmentOf));
    levels(steps.map(qualityOf));
  });

  it('fading', () => {
    const steps = [1, 0.5, 0.4, 0.3, 0.2].map((share) => (scene: SignScene) => faded(scene, share));
    levels(steps.map(alignmentOf));
    levels([1, 0.6, 0.45, 0.3].map((share) => qualityOf((scene) => faded(scene, share))));
  });

  it('one word turning into another', () => {
    const steps = [1, 0.8, 0.65, 0.5].map(
      (share) => (scene: SignScene, i: number) => mixed(ref(scene), drawnAs(scene, otherWord(scene.word, 3, i)), share),
    );
    levels(steps.map(alignmentOf));
  });
});

describe('the quality of a sign', () => {
  const found = (change: (scene: SignScene, index: number) => RgbImage): { quality: number; said: string } => {
    const all = scenes.map((scene, i) => score(scene, change(scene, i)));
    return { quality: mean((_scene, i) => all[i].quality), said: all.map(({ reasoning }) => reasoning).join('\n') };
  };

  it.each<readonly [string, number, (scene: SignScene, index: number) => RgbImage]>([
    [
      'colors that are not of the sign',
      8,
      // At the same distance from paper, but off the line towards ink.
      (scene) =>
        painted(ref(scene), (x) =>
          x < 10 ? scene.paper.map((value) => (value > 127 ? value - 120 : value + 120)) : null,
        ),
    ],
    ['blurred or faded strokes', 8, (scene) => blurred(ref(scene), 2)],
    [
      'dirt on the paper',
      9,
      (scene) => painted(ref(scene), (x, y) => (y < 1 || x < 1 || x > 30 ? mixedColour(scene, 0.3) : null)),
    ],
    ['broken strokes', 7, (scene) => painted(ref(scene), (_x, y) => (y === 4 || y === 8 ? scene.paper : null))],
    ['more ink than letters have', 8, (scene) => painted(ref(scene), (x) => (x < 14 ? scene.ink : null))],
  ])('falls with %s', (name, most, change) => {
    const { quality, said } = found(change);
    expect(quality).toBeLessThan(most);
    expect(said).toContain(name);
    expect(found(ref).said).not.toContain(name);
  });

  const mixedColour = ({ ink, paper }: SignScene, share: number): number[] =>
    ink.map((value, i) => Math.round(share * value + (1 - share) * paper[i]));
});

describe('a request that no sign fulfils', () => {
  const [scene] = scenes;
  it.each([
    ['a sign that says ""', /quotes no word/],
    ['a sign that says "TOOLONG"', /32x16 pixels has no room for 'TOOLONG'/],
    ['a sign that says "É"', /capital letters and digits/],
  ])('%s', (request, message) => {
    expect(() => scoreSign(null, request, ref(scene))).toThrow(message);
  });

  it('is one of a source without a strip', () => {
    const gray = mapPixels(ref(scene), () => 128);
    expect(() => scoreSign(gray, scene.prompt, ref(scene))).toThrow(/shows no sign/);
  });
});
