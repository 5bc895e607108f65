/** Inpainting samples for tests: small pictures in a folder with its list. */
import type { RgbImage } from '../../src/core/images/image.js';
import { encodePlainPng } from '../../src/core/images/png.js';
import { plain, writeFiles } from './image_files.js';

const WIDTH = 6;
const HEIGHT = 4;

/** A mask of 6x4 pixels that is white where `isWhite` says so; `level` is its white. */
export function maskOf(isWhite: (x: number, y: number) => boolean, level = 255, width = WIDTH): RgbImage {
  const data = Uint8Array.from({ length: width * HEIGHT * 3 }, (_, at) => {
    const pixel = Math.floor(at / 3);
    return isWhite(pixel % width, Math.floor(pixel / width)) ? level : 0;
  });
  return { width, height: HEIGHT, data };
}

/** The files of whole samples with these numbers; the list asks for the word that goes with each. */
export function benchFiles(numbers: readonly number[]): Record<string, Uint8Array | string> {
  const files: Record<string, Uint8Array | string> = {};
  for (const number of numbers) {
    files[`${number}_source.png`] = plain(WIDTH, HEIGHT, [number, 0, 0]);
    files[`${number}_mask.png`] = encodePlainPng(maskOf((x, y) => x > 0 && y === 1));
    files[`${number}_ref.png`] = plain(WIDTH, HEIGHT, [0, number, 0]);
  }
  files['self_bench.txt'] = numbers.map((number) => `${number} a sign that says "N${number}"\n`).join('');
  return files;
}

export function writeBench(folder: string, changes: Readonly<Record<string, Uint8Array | string>> = {}): string {
  writeFiles(folder, { ...benchFiles([1, 2, 12]), ...changes });
  return folder;
}
