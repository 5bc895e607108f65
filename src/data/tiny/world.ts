/** The contents of the tiny world: a grid of cells, each empty or with one colored shape. Pure values, no pixels. */
import { DataError } from '../../core/errors.js';

export const SHAPES = ['circle', 'square', 'triangle', 'cross'] as const;
export type Shape = (typeof SHAPES)[number];

export const COLOURS = ['red', 'green', 'blue', 'yellow', 'purple', 'cyan'] as const;
export type Color = (typeof COLOURS)[number];

/** Number of a scene's cells, and the side of a cell in pixels. */
export interface Geometry {
  readonly columns: number;
  readonly rows: number;
  /** Pixels per cell side. */
  readonly cell: number;
}

export const DEFAULT_GEOMETRY: Geometry = { columns: 4, rows: 4, cell: 8 };

export interface SceneObject {
  readonly colour: Color;
  readonly shape: Shape;
}

/** Content of a cell. Null for an empty cell. */
export type CellContent = SceneObject | null;

/** Cells row by row from the top left, `rows * columns` of them. */
export interface Scene {
  readonly geometry: Geometry;
  readonly cells: readonly CellContent[];
}

/** Every object that can exist, in a fixed order. */
export const ALL_OBJECTS: readonly SceneObject[] = COLOURS.flatMap((colour) =>
  SHAPES.map((shape) => ({ colour, shape })),
);

/** 0 for an empty cell, then every object in the order of ALL_OBJECTS. */
export function contentNumber(content: CellContent): number {
  if (content === null) return 0;
  return 1 + COLOURS.indexOf(content.colour) * SHAPES.length + SHAPES.indexOf(content.shape);
}

export function sameContent(a: CellContent, b: CellContent): boolean {
  if (a === null || b === null) return a === b;
  return a.colour === b.colour && a.shape === b.shape;
}

/** `b3`: the column's letter, then the row's number from 1. */
export function cellName(geometry: Geometry, cell: number): string {
  const column = cell % geometry.columns;
  return `${String.fromCharCode(97 + column)}${Math.floor(cell / geometry.columns) + 1}`;
}

/** The names of all cells, in cell order. */
export function cellNames(geometry: Geometry): string[] {
  return Array.from({ length: geometry.columns * geometry.rows }, (_, cell) => cellName(geometry, cell));
}

/** Checks that cells can be named and shapes can be told apart at this size. Raises DataError otherwise. */
export function checkGeometry(geometry: Geometry): void {
  const { columns, rows, cell } = geometry;
  const whole = [columns, rows, cell].every((n) => Number.isInteger(n));
  if (!whole || columns < 3 || columns > 26 || rows < 3 || rows > 99 || cell < 8 || cell > 64) {
    throw new DataError(
      `a tiny world of ${columns}x${rows} cells of ${cell} pixels is not possible: columns 3 to 26, rows 3 to 99, cells 8 to 64`,
    );
  }
}

/** A text that is the same for equal scenes and differs for others. */
export function sceneKey(scene: Scene): string {
  const { columns, rows } = scene.geometry;
  const cells = scene.cells.map((content) => (content === null ? '.' : `${content.colour}-${content.shape}`));
  return `${columns}x${rows}:${cells.join(',')}`;
}

/** The first cell in reading order that holds this object, or null. */
export function findObject(scene: Scene, object: SceneObject): number | null {
  const cell = scene.cells.findIndex((content) => sameContent(content, object));
  return cell < 0 ? null : cell;
}

export const RELATIONS = ['left-of', 'right-of', 'above', 'below'] as const;
export type Relation = (typeof RELATIONS)[number];

const STEPS: Record<Relation, readonly [number, number]> = {
  'left-of': [-1, 0],
  'right-of': [1, 0],
  above: [0, -1],
  below: [0, 1],
};

/** The cells on one side of a cell in its row or column, nearest first. The first is "the" cell that is left of it, and so on. */
export function cellsOnSide(geometry: Geometry, cell: number, relation: Relation): number[] {
  const [dx, dy] = STEPS[relation];
  const cells: number[] = [];
  let x = (cell % geometry.columns) + dx;
  let y = Math.floor(cell / geometry.columns) + dy;
  while (x >= 0 && x < geometry.columns && y >= 0 && y < geometry.rows) {
    cells.push(y * geometry.columns + x);
    x += dx;
    y += dy;
  }
  return cells;
}
