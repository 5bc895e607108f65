import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { decodePlainPng } from '../../../src/core/png.js';
import { openPicturedEdits } from '../../../src/data/pictured_edits.js';
import { readScene, sceneOf } from '../../../src/tiny/judge/eyes.js';
import { parseInstruction, planEdit, rationaleOf, sameScene } from '../../../src/tiny/world/edits.js';
import { describeScene, makeTinyPictured, tinyPictured } from '../../../src/tiny/world/pictured.js';
import { cellNames, DEFAULT_GEOMETRY, type Scene } from '../../../src/tiny/world/world.js';
import { testFolders } from '../../support/folder.js';

const options = {
  seed: 3,
  geometry: DEFAULT_GEOMETRY,
  set: 's',
  sizes: { train: 12, prompts: 5, validation: 4, truth: 6, scenes: 7 },
} as const;
const columns = { source: 'source', instruction: 'instruction', response: 'response', target: 'target' };
const seen = (path: string): Scene => sceneOf(readScene(decodePlainPng(readFileSync(path))!, DEFAULT_GEOMETRY));

describe('pictured edits of the tiny world', () => {
  const folder = testFolders('pictured');

  it('show what their words say, before and after', async () => {
    const root = join(folder(), 'tiny');
    expect(tinyPictured(root, options)).toBeNull();
    await makeTinyPictured(root, options);
    const made = join(tinyPictured(root, options)!, 'pictured');
    for (const split of ['train', 'prompts', 'validation', 'truth'] as const) {
      const edits = await openPicturedEdits(join(made, `${split}.jsonl`), null, columns);
      expect([split, edits.length]).toEqual([split, options.sizes[split]]);
      for (let i = 0; i < edits.length; i++) {
        const { source, instruction, response, target } = edits.read(i);
        const plan = planEdit(seen(source), parseInstruction(instruction, DEFAULT_GEOMETRY)!)!;
        expect([response === null, target === null]).toEqual([split === 'prompts', split === 'prompts']);
        if (target === null) continue;
        expect(response).toBe(rationaleOf(plan));
        expect(sameScene(seen(target), plan.expected)).toBe(true);
      }
    }
    const scenes = await openPicturedEdits(join(made, 'scenes.jsonl'), null, columns);
    expect(scenes.length).toBe(3 * 7);
    const { source, instruction, response } = scenes.read(6);
    expect([instruction, response]).toEqual(['describe the picture', describeScene(seen(source))]);
    const said = (index: number): string[] => [scenes.read(index).instruction, scenes.read(index).response!];
    const scene = seen(source);
    const [what, thing] = said(7);
    const cell = cellNames(DEFAULT_GEOMETRY).indexOf(what.replace('what is at ', ''));
    const content = scene.cells[cell];
    expect(thing).toBe(content === null ? 'nothing' : `${content.colour} ${content.shape}`);
    const [where, place] = said(8);
    const [colour, shape] = where.replace('where is the ', '').split(' ');
    const named = cellNames(DEFAULT_GEOMETRY).indexOf(place.replace('at ', ''));
    expect(scene.cells[named]).toEqual({ colour, shape });
  });

  it('describe a scene cell by cell', () => {
    const cells = Array<Scene['cells'][number]>(16).fill(null);
    cells[1] = { colour: 'red', shape: 'circle' };
    cells[14] = { colour: 'cyan', shape: 'cross' };
    expect(describeScene({ geometry: DEFAULT_GEOMETRY, cells })).toBe('red circle at b1 cyan cross at c4');
  });
});
