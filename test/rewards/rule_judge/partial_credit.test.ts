import { describe, expect, it } from 'vitest';
import type { RgbImage } from '../../../src/core/images/image.js';
import { drawScene } from '../../../src/data/tiny/draw.js';
import { parseInstruction, planEdit } from '../../../src/data/tiny/edits.js';
import { judgeConsistency } from '../../../src/rewards/rule_judge/consistency.js';
import { readScene, resample } from '../../../src/rewards/rule_judge/read_scene.js';
import { scoreGround } from '../../../src/rewards/rule_judge/ground.js';
import {
  ALL_OBJECTS,
  cellNames,
  COLOURS,
  DEFAULT_GEOMETRY as grid,
  SHAPES,
  type CellContent,
  type Scene,
} from '../../../src/data/tiny/world.js';
import { example, noisy, uniformNoise } from '../../data/tiny/scene_pictures.js';

/** A scene from `b3: red circle`; later entries replace earlier ones, `nothing` empties a cell. */
function scene(...contents: readonly Record<string, string>[]): Scene {
  const cells: CellContent[] = new Array<CellContent>(16).fill(null);
  for (const [name, words] of contents.flatMap((part) => Object.entries(part))) {
    const [colourWord, shapeWord] = words.split(' ');
    const colour = COLOURS.find((word) => word === colourWord);
    const shape = SHAPES.find((word) => word === shapeWord);
    cells[cellNames(grid).indexOf(name)] = colour === undefined || shape === undefined ? null : { colour, shape };
  }
  return { geometry: grid, cells };
}

const source = { a1: 'red circle', b2: 'blue square', d4: 'green cross', c1: 'red square', a4: 'yellow triangle' };

interface Case {
  readonly instruction: string;
  /** What differs from the source. */
  readonly change: Record<string, string>;
  readonly success: number;
  readonly overedit: number;
}

const nothing = 'nothing';
const cases: readonly Case[] = [
  { instruction: 'recolour the red circle as cyan', change: { a1: 'cyan circle' }, success: 10, overedit: 10 },
  { instruction: 'recolour the red circle as cyan', change: { a1: 'green circle' }, success: 2, overedit: 10 },
  { instruction: 'recolour the red circle as cyan', change: { a1: 'cyan cross' }, success: 3, overedit: 10 },
  { instruction: 'recolour the red circle as cyan', change: { a1: nothing }, success: 0, overedit: 10 },
  { instruction: 'remove the red circle', change: { a1: nothing }, success: 10, overedit: 10 },
  { instruction: 'remove the red circle', change: { c1: nothing }, success: 0, overedit: 6 },
  { instruction: 'remove the red circle', change: { a1: nothing, c1: nothing, b2: nothing }, success: 10, overedit: 3 },
  { instruction: 'add the cyan cross at b3', change: { b3: 'cyan cross' }, success: 10, overedit: 10 },
  { instruction: 'add the cyan cross at b3', change: { c3: 'cyan cross' }, success: 3, overedit: 6 },
  { instruction: 'add the cyan cross at b3', change: { b3: 'red cross' }, success: 4, overedit: 10 },
  { instruction: 'add the cyan cross at b3', change: { b3: 'red circle' }, success: 1, overedit: 10 },
  { instruction: 'move the red circle to b3', change: { a1: nothing, b3: 'red circle' }, success: 10, overedit: 10 },
  { instruction: 'move the red circle to b3', change: { b3: 'red circle' }, success: 5, overedit: 10 },
  { instruction: 'move the red circle to b3', change: { a1: nothing, b3: 'blue circle' }, success: 3, overedit: 10 },
  { instruction: 'move the red circle to b3', change: { a1: nothing }, success: 0, overedit: 10 },
  {
    instruction: 'swap the red circle with blue square',
    change: { a1: 'blue square', b2: 'red circle' },
    success: 10,
    overedit: 10,
  },
  { instruction: 'swap the red circle with blue square', change: { a1: 'blue square' }, success: 4, overedit: 10 },
  {
    instruction: 'swap the red circle with blue square',
    change: { a1: 'blue circle', b2: 'red square' },
    success: 3,
    overedit: 10,
  },
  { instruction: 'swap the red circle with red square', change: {}, success: 0, overedit: 10 },
  { instruction: 'remove the red shapes', change: { a1: nothing, c1: nothing }, success: 10, overedit: 10 },
  { instruction: 'remove the red shapes', change: { a1: nothing }, success: 5, overedit: 10 },
  {
    instruction: 'recolour the red shapes as cyan',
    change: { a1: 'cyan circle', c1: 'cyan square' },
    success: 10,
    overedit: 10,
  },
  { instruction: 'add the cyan cross right-of blue square', change: { c2: 'cyan cross' }, success: 10, overedit: 10 },
  { instruction: 'add the cyan cross right-of blue square', change: { d2: 'cyan cross' }, success: 5, overedit: 6 },
  { instruction: 'add the cyan cross right-of blue square', change: { a2: 'cyan cross' }, success: 3, overedit: 6 },
  { instruction: 'add the cyan cross right-of blue square', change: { c2: 'cyan circle' }, success: 4, overedit: 10 },
  { instruction: 'Remove the red circle.', change: { a1: nothing }, success: 10, overedit: 10 },
  { instruction: 'make it nicer', change: {}, success: 0, overedit: 10 },
  { instruction: 'remove the purple circle', change: { a1: nothing }, success: 0, overedit: 6 },
];

function judge(instruction: string, edited: RgbImage) {
  const { success, overedit } = judgeConsistency(drawScene(scene(source)), instruction, edited, grid);
  return { success, overedit };
}

describe('semantic consistency', () => {
  it.each(cases)('$instruction, with $change: $success and $overedit', ({ instruction, change, ...marks }) => {
    expect(judge(instruction, drawScene(scene(source, change)))).toEqual(marks);
  });

  it('falls with every object that is destroyed beside the edit, and is lowest when none is left', () => {
    const order = ['b2', 'd4', 'c1', 'a4'];
    const marks = order.map((_, i) => {
      const lost = Object.fromEntries(order.slice(0, i + 1).map((name) => [name, nothing]));
      return judge('remove the red circle', drawScene(scene(source, { a1: nothing }, lost))).overedit;
    });
    expect(marks).toEqual([6, 3, 1, 0]);
  });

  it('counts an unreadable cell as changed, also where the edit is', () => {
    const image = drawScene(scene(source, { a1: nothing }));
    const noise = uniformNoise(3);
    for (let y = 0; y < 8; y++) image.data.set(noise.data.subarray(y * 96, y * 96 + 24), y * 96);
    expect(judge('remove the red circle', image)).toEqual({ success: 0, overedit: 6 });
  });
});

describe('ground score', () => {
  it('marks like the judge that sees the source, wherever the truth is sufficient', () => {
    for (const { instruction, change, success, overedit } of cases) {
      const plan = planEdit(
        scene(source),
        parseInstruction(instruction, grid) ?? { kind: 'remove', object: ALL_OBJECTS[23] },
      );
      if (plan === null) continue;
      const [truth, seen] = [plan.expected, scene(source, change)].map((s) => readScene(drawScene(s), grid));
      const { score } = scoreGround(truth, instruction, seen);
      const what = `${instruction} ${JSON.stringify(change)}`;
      if (success === 10 && overedit === 10) expect(score, what).toBe(10);
      else if (Math.min(success, overedit) === 0) expect(score, what).toBe(0);
      else expect(score, what).toBeLessThanOrEqual(7);
    }
  });
});

describe('reading images', () => {
  it('read every drawn object in every cell with full confidence', () => {
    for (let i = 0; i < 64; i++) {
      const plan = example(i);
      const reading = readScene(drawScene(plan.source), grid);
      expect(reading.cells.map(({ content }) => content)).toEqual(plan.source.cells);
      expect(reading.cells.every(({ deviation, confidence }) => deviation === 0 && confidence === 1)).toBe(true);
    }
  });

  it('lose confidence with noise, and read nothing into noise alone', () => {
    const image = drawScene(example(1).source);
    const confidences = [0, 6, 12, 18].map(
      (level) => readScene(noisy(image, level, 5), grid).cells.reduce((sum, cell) => sum + cell.confidence, 0) / 16,
    );
    expect(confidences).toEqual([...confidences].sort((a, b) => b - a));
    expect(new Set(confidences).size).toBe(4);
    const noise = readScene(uniformNoise(9), grid);
    expect(noise.cells.every(({ content }) => content === 'unreadable')).toBe(true);
  });

  it('read images of other sizes', () => {
    const plan = example(2);
    const image = drawScene(plan.source);
    const larger = resample(image, 128, 128);
    expect(readScene(larger, grid).cells.map(({ content }) => content)).toEqual(plan.source.cells);
    expect(readScene({ width: 1, height: 1, data: new Uint8Array([0, 0, 0]) }, grid).cells).toHaveLength(16);
  });
});
