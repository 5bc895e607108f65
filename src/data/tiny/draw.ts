/**
 * Draws scenes as pixels. Shapes are crisp, without blending, and chosen so that any two differ in at least 12 of the 64 pixels of an 8x8 cell: a
 * reader can then tell them apart under noise far above what a vision decoder leaves.
 */
import type { RgbImage } from '../../core/images/image.js';
import {
  ALL_OBJECTS,
  contentNumber,
  type CellContent,
  type Color,
  type Geometry,
  type Scene,
  type Shape,
} from './world.js';

export type Rgb = readonly [number, number, number];

export const BACKGROUND: Rgb = [224, 224, 224];

export const PALETTE: Record<Color, Rgb> = {
  red: [220, 36, 36],
  green: [36, 164, 60],
  blue: [30, 70, 230],
  yellow: [240, 200, 24],
  purple: [160, 32, 200],
  cyan: [32, 200, 212],
};

/** Whether a shape covers the point (u, v), both in (-1, 1) from the cell's left and top edges. */
const COVERS: Record<Shape, (u: number, v: number) => boolean> = {
  circle: (u, v) => u * u + v * v < 0.66 * 0.66,
  square: (u, v) => Math.max(Math.abs(u), Math.abs(v)) < 0.75,
  triangle: (u, v) => Math.abs(v) < 0.75 && Math.abs(u) < 0.17 + 0.47 * (v + 0.75),
  cross: (u, v) => Math.min(Math.abs(u), Math.abs(v)) < 0.25 && Math.max(Math.abs(u), Math.abs(v)) < 0.9,
};

function drawCell(content: CellContent, side: number): Uint8Array {
  const pixels = new Uint8Array(side * side * 3);
  for (let y = 0; y < side; y++) {
    for (let x = 0; x < side; x++) {
      const u = ((x + 0.5) / side) * 2 - 1;
      const v = ((y + 0.5) / side) * 2 - 1;
      const colour = content !== null && COVERS[content.shape](u, v) ? PALETTE[content.colour] : BACKGROUND;
      pixels.set(colour, (y * side + x) * 3);
    }
  }
  return pixels;
}

/** The content of a cell and its pixels, axes [side, side, 3]. */
export interface Template {
  readonly content: CellContent;
  readonly pixels: Uint8Array;
}

const templatesBySide = new Map<number, readonly Template[]>();

/** All templates of a cell of this side: the empty cell first, then every object in the order of ALL_OBJECTS. */
export function templates(side: number): readonly Template[] {
  let found = templatesBySide.get(side);
  if (found === undefined) {
    found = [null, ...ALL_OBJECTS].map((content) => ({ content, pixels: drawCell(content, side) }));
    templatesBySide.set(side, found);
  }
  return found;
}

export function templateOf(content: CellContent, side: number): Template {
  return templates(side)[contentNumber(content)];
}

/** The size of an image with this geometry. */
export function imageSize(geometry: Geometry): { readonly width: number; readonly height: number } {
  return { width: geometry.columns * geometry.cell, height: geometry.rows * geometry.cell };
}

/** Draws a scene. Equal scenes give equal pixels. */
export function drawScene(scene: Scene): RgbImage {
  const { columns, cell: side } = scene.geometry;
  const { width, height } = imageSize(scene.geometry);
  const data = new Uint8Array(width * height * 3);
  scene.cells.forEach((content, cell) => {
    const { pixels } = templateOf(content, side);
    const left = (cell % columns) * side;
    const top = Math.floor(cell / columns) * side;
    for (let y = 0; y < side; y++) {
      data.set(pixels.subarray(y * side * 3, (y + 1) * side * 3), ((top + y) * width + left) * 3);
    }
  });
  return { width, height, data };
}
