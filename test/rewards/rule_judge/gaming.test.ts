import { describe, expect, it } from 'vitest';
import { drawScene } from '../../../src/data/tiny/draw.js';
import { readScene } from '../../../src/rewards/rule_judge/read_scene.js';
import { scoreQuality } from '../../../src/rewards/rule_judge/quality.js';
import { DEFAULT_GEOMETRY } from '../../../src/data/tiny/world.js';
import { example, truthOf, uniformNoise } from '../../tiny/pictures.js';
import { nothingGamesTheJudge } from './gaming_cases.js';

nothingGamesTheJudge(50);

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
