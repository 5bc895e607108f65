/** What the judge must hold to over many scenes: it gives the true edit high marks and nothing that merely looks like work. */
import { describe, expect, it } from 'vitest';
import type { RgbImage } from '../../../src/core/images/image.js';
import { RandomStream } from '../../../src/core/random.js';
import { drawScene } from '../../../src/data/tiny/draw.js';
import { instructionOf, type EditKind, type Plan } from '../../../src/data/tiny/edits.js';
import { scoreConsistency } from '../../../src/rewards/rule_judge/consistency.js';
import { readScene, type Reading } from '../../../src/rewards/rule_judge/read_scene.js';
import { scoreGround } from '../../../src/rewards/rule_judge/ground.js';
import { scoreQuality } from '../../../src/rewards/rule_judge/quality.js';
import { ALL_OBJECTS, DEFAULT_GEOMETRY, type Scene } from '../../../src/data/tiny/world.js';
import {
  blank,
  example,
  noisy,
  repainted,
  softened,
  sourceOf,
  truthOf,
  uniformNoise,
} from '../../data/tiny/scene_pictures.js';

const scenes = 50;

/** An example with what the judge sees of it, read once for all tests. */
interface Shown {
  readonly plan: Plan;
  readonly instruction: string;
  readonly source: Reading;
  readonly truth: Reading;
}

const look = (image: RgbImage): Reading => readScene(image, DEFAULT_GEOMETRY);

function show(plan: Plan): Shown {
  const instruction = instructionOf(plan.edit, DEFAULT_GEOMETRY);
  return { plan, instruction, source: look(sourceOf(plan)), truth: look(truthOf(plan)) };
}

function consistency({ source, instruction }: Shown, edited: Reading) {
  const { success, overedit } = scoreConsistency(source, instruction, edited);
  return { success, overedit, semantic: Math.min(success, overedit) };
}

function ground({ truth, instruction }: Shown, predicted: Reading): number {
  return scoreGround(truth, instruction, predicted).score;
}

function fillRandomly(scene: Scene, seed: number): Scene {
  const random = new RandomStream('fill', seed);
  return { ...scene, cells: scene.cells.map(() => random.pick(ALL_OBJECTS)) };
}

const gone = (plan: Plan): RgbImage => {
  const cells = [...plan.source.cells];
  for (const { cell } of plan.changes) cells[cell] = null;
  return drawScene({ ...plan.source, cells });
};

const cheats: Record<string, (plan: Plan, i: number) => RgbImage> = {
  'copying the source': (plan) => sourceOf(plan),
  'copying the source with noise': (plan, i) => noisy(sourceOf(plan), 8, i),
  'repainting every object': (plan) => drawScene(repainted(plan.source)),
  'repainting every object of the result': (plan) => drawScene(repainted(plan.expected)),
  'filling every cell': (plan, i) => drawScene(fillRandomly(plan.source, i)),
  noise: (_plan, i) => uniformNoise(i),
  'an empty scene': () => blank(224),
  'a white image': () => blank(255),
  'a black image': () => blank(0),
  'a gray image': () => blank(128),
};

const examples = Array.from({ length: scenes }, (_, i) => show(example(i)));

describe('what is no edit', () => {
  for (const [name, make] of Object.entries(cheats)) {
    it(`${name} gets at most 2 for consistency and for agreement with the truth`, () => {
      const paid = examples.flatMap((shown, i) => {
        const seen = look(make(shown.plan, i));
        const scores = { semantic: consistency(shown, seen).semantic, ground: ground(shown, seen) };
        return Math.max(scores.semantic, scores.ground) > 2 ? [{ instruction: shown.instruction, ...scores }] : [];
      });
      expect(paid).toEqual([]);
    });
  }

  it.each<EditKind>(['move', 'swap'])('deleting what a %s is about is no success at all', (kind) => {
    for (let i = 0; i < scenes; i++) {
      const shown = show(example(i, kind));
      const { source, changes } = shown.plan;
      const nothingLeft = look(gone(shown.plan));
      expect(consistency(shown, nothingLeft).success).toBe(0);
      expect(ground(shown, nothingLeft)).toBe(0);
      // Nor is it to delete one of a swap's two objects.
      for (const { cell } of changes) {
        const cells = source.cells.map((content, at) => (at === cell ? null : content));
        expect(consistency(shown, look(drawScene({ ...source, cells }))).success).toBe(0);
      }
    }
  });
});

describe('the true edit', () => {
  const versions: Record<string, (image: RgbImage, i: number) => RgbImage> = {
    drawn: (image) => image,
    'with noise of 8 levels': (image, i) => noisy(image, 8, i),
    'slightly soft, with noise of 4 levels': (image, i) => noisy(softened(image, 0.1), 4, i),
  };
  for (const [name, make] of Object.entries(versions)) {
    it(`${name} gets 9 or more for everything`, () => {
      const underpaid = examples.flatMap((shown, i) => {
        const seen = look(make(truthOf(shown.plan), i));
        const { success, overedit } = consistency(shown, seen);
        const { naturalness, artifacts } = scoreQuality(seen);
        const scores = { success, overedit, naturalness, artifacts, ground: ground(shown, seen) };
        return Math.min(...Object.values(scores)) < 9 ? [{ instruction: shown.instruction, ...scores }] : [];
      });
      expect(underpaid).toEqual([]);
    });
  }
});

describe('quality', () => {
  it('is nothing for noise and falls with the number of broken cells', () => {
    const reading = readScene(uniformNoise(1), DEFAULT_GEOMETRY);
    expect(scoreQuality(reading)).toMatchObject({ naturalness: 0, artifacts: 0 });
    const image = truthOf(example(0));
    const noise = uniformNoise(2);
    const scores = [0, 1, 2, 4, 8].map((cells) => {
      const data = image.data.slice();
      for (let cell = 0; cell < cells; cell++) {
        for (let y = 0; y < 8; y++) {
          const from = ((Math.floor(cell / 4) * 8 + y) * 32 + (cell % 4) * 8) * 3;
          data.set(noise.data.subarray(from, from + 24), from);
        }
      }
      return scoreQuality(readScene({ ...image, data }, DEFAULT_GEOMETRY));
    });
    const artifacts = scores.map((score) => score.artifacts);
    const naturalness = scores.map((score) => score.naturalness);
    expect(artifacts[0]).toBe(10);
    expect(naturalness[0]).toBe(10);
    for (const marks of [artifacts, naturalness]) {
      expect(marks).toEqual([...marks].sort((a, b) => b - a));
      expect(marks[1]).toBeLessThan(8);
      expect(marks[4]).toBeLessThanOrEqual(2);
    }
  });

  it('counts seams between cells that are readable one by one', () => {
    const image = drawScene({ geometry: DEFAULT_GEOMETRY, cells: new Array<null>(16).fill(null) });
    const data = image.data.map((value, at) => {
      const pixel = Math.floor(at / 3);
      const cell = Math.floor((pixel % 32) / 8) + Math.floor(pixel / 256);
      return cell % 2 === 0 ? value - 16 : value + 16;
    });
    const even = image.data.map((value) => value - 16);
    const chequered = scoreQuality(readScene({ ...image, data }, DEFAULT_GEOMETRY));
    const flat = scoreQuality(readScene({ ...image, data: even }, DEFAULT_GEOMETRY));
    expect(chequered.artifacts).toBeLessThan(flat.artifacts);
  });
});
