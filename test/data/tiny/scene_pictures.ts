/** Pictures that tests show to the judge. */
import type { RgbImage } from '../../../src/core/images/image.js';
import { RandomStream } from '../../../src/core/random.js';
import { drawScene } from '../../../src/data/tiny/draw.js';
import { EDIT_KINDS, type EditKind, type Plan } from '../../../src/data/tiny/edits.js';
import { drawOfKind } from '../../../src/data/tiny/generate.js';
import { COLOURS, DEFAULT_GEOMETRY, type Scene } from '../../../src/data/tiny/world.js';

/** Example i, kinds of edit in turn. */
export function example(i: number, kind: EditKind = EDIT_KINDS[i % EDIT_KINDS.length]): Plan {
  return drawOfKind(new RandomStream('test', kind, i), kind, DEFAULT_GEOMETRY);
}

export function mapPixels(image: RgbImage, change: (value: number, at: number) => number): RgbImage {
  const data = image.data.map((value, at) => Math.min(255, Math.max(0, Math.round(change(value, at)))));
  return { ...image, data };
}

/** Adds normal noise of this standard deviation to every channel. */
export function noisy(image: RgbImage, deviation: number, seed: number): RgbImage {
  const random = new RandomStream('noise', seed);
  return mapPixels(image, (value) => value + deviation * random.normal());
}

/** Mixes every pixel with the mean of its neighbours, as a decoder that is not quite sharp does. */
export function softened(image: RgbImage, share: number): RgbImage {
  const { width, height, data } = image;
  return mapPixels(image, (value, at) => {
    const channel = at % 3;
    const x = ((at - channel) / 3) % width;
    const y = Math.floor((at - channel) / 3 / width);
    let sum = 0;
    for (let v = -1; v <= 1; v++) {
      for (let u = -1; u <= 1; u++) {
        const nearX = Math.min(width - 1, Math.max(0, x + u));
        const nearY = Math.min(height - 1, Math.max(0, y + v));
        sum += data[(nearY * width + nearX) * 3 + channel];
      }
    }
    return (1 - share) * value + (share * sum) / 9;
  });
}

export function uniformNoise(seed: number): RgbImage {
  const random = new RandomStream('garbage', seed);
  return mapPixels(blank(0), () => random.integer(256));
}

export function blank(level: number): RgbImage {
  return { width: 32, height: 32, data: new Uint8Array(32 * 32 * 3).fill(level) };
}

/** Every object in the next colour of the table. */
export function repainted(scene: Scene): Scene {
  const cells = scene.cells.map((content) =>
    content === null ? null : { ...content, colour: COLOURS[(COLOURS.indexOf(content.colour) + 1) % COLOURS.length] },
  );
  return { ...scene, cells };
}

/** The scene with one cell replaced. */
export function withCell(scene: Scene, cell: number, content: Scene['cells'][number]): Scene {
  return { ...scene, cells: scene.cells.map((old, at) => (at === cell ? content : old)) };
}

export const sourceOf = (plan: Plan): RgbImage => drawScene(plan.source);
export const truthOf = (plan: Plan): RgbImage => drawScene(plan.expected);
