import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { decodePlainPng } from '../../../src/core/images/png.js';
import { RandomStream } from '../../../src/core/random.js';
import { openImageEdits } from '../../../src/data/image_edits.js';
import { readScene, sceneOf } from '../../../src/rewards/rule_judge/read_scene.js';
import { parseInstruction, planEdit, sameScene } from '../../../src/data/tiny/edits.js';
import { drawOfKind } from '../../../src/data/tiny/generate.js';
import { imageEditData, imageEditVocabulary, responseOf } from '../../../src/data/tiny/image_edits.js';
import { COLOURS, DEFAULT_GEOMETRY, SHAPES, type Scene } from '../../../src/data/tiny/world.js';
import { testFolders } from '../../support/folder.js';

const options = {
  seed: 3,
  geometry: DEFAULT_GEOMETRY,
  set: 's',
  names: 'plain',
  sizes: { train: 12, prompts: 5, validation: 4, truth: 6 },
} as const;
const columns = { source: 'source', instruction: 'instruction', response: 'response', target: 'target' };
/** A name that is no odd one. */
const PLAIN = new RegExp(`\\b(${[...COLOURS, ...SHAPES].join('|')})\\b`);
const seen = (path: string): Scene => sceneOf(readScene(decodePlainPng(readFileSync(path))!, DEFAULT_GEOMETRY));

describe('pictured edits of the tiny world', () => {
  const folder = testFolders('pictured');

  it('show what their words say, before and after', async () => {
    const root = join(folder(), 'tiny');
    expect(imageEditData.find(root, options)).toBeNull();
    await imageEditData.makeIn(root, options);
    const made = join(imageEditData.find(root, options)!, 'pictured');
    for (const split of ['train', 'prompts', 'validation', 'truth'] as const) {
      const edits = await openImageEdits(join(made, `${split}.jsonl`), null, columns);
      expect([split, edits.length]).toEqual([split, options.sizes[split]]);
      for (let i = 0; i < edits.length; i++) {
        const { source, instruction, response, target } = edits.read(i);
        const plan = planEdit(seen(source), parseInstruction(instruction, DEFAULT_GEOMETRY)!)!;
        expect([response === null, target === null]).toEqual([split === 'prompts', split === 'prompts']);
        if (target === null) continue;
        expect(response).toBe(responseOf(plan));
        expect(sameScene(seen(target), plan.expected)).toBe(true);
      }
    }
  });

  it('are asked for by odd names, which whoever draws learns to pass over', async () => {
    const root = join(folder(), 'tiny');
    const odd = { ...options, names: 'odd' } as const;
    await imageEditData.makeIn(root, options);
    await imageEditData.makeIn(root, odd);
    const [plainly, oddly] = [options, odd].map((of) => join(imageEditData.find(root, of)!, 'pictured'));
    expect(oddly).not.toBe(plainly);
    const known = new Set(imageEditVocabulary(DEFAULT_GEOMETRY, 'odd'));
    for (const split of ['train', 'prompts', 'validation', 'truth'] as const) {
      const [plain, said] = await Promise.all(
        [plainly, oddly].map((made) => openImageEdits(join(made, `${split}.jsonl`), null, columns)),
      );
      for (let i = 0; i < plain.length; i++) {
        const [first, second] = [plain.read(i), said.read(i)];
        expect(second.response).toBe(first.response);
        expect(second.instruction.split(' ').filter((word) => !known.has(word))).toEqual([]);
        const [meant, told] = [first, second].map(({ instruction }) => parseInstruction(instruction, DEFAULT_GEOMETRY));
        if (split !== 'truth') {
          expect(told).toEqual(meant);
          expect(second.instruction).not.toMatch(PLAIN);
        } else if (i % 2 === 0) {
          expect(second.instruction).toBe(first.instruction);
        } else {
          expect(told?.kind).toBe(meant?.kind);
          expect(second.instruction).not.toMatch(PLAIN);
        }
      }
      const others = Array.from({ length: plain.length }, (_, i) => [plain, said].map((edits) => edits.read(i)));
      const meansAnother = others.filter(
        ([first, second]) =>
          JSON.stringify(parseInstruction(first.instruction, DEFAULT_GEOMETRY)) !==
          JSON.stringify(parseInstruction(second.instruction, DEFAULT_GEOMETRY)),
      );
      expect(meansAnother.length > 0).toBe(split === 'truth');
    }
  });

  it.each([
    ['s', 'recolour', /^\w+ \w+ becomes \w+ \w+$/],
    ['s', 'remove', /^\w+ \w+ goes away$/],
    ['s', 'add', /^\w+ \w+ appears at \w\d$/],
    ['c', 'move', /^\w+ \w+ at \w\d moves to \w\d$/],
  ] as const)('say what becomes of which thing: %s %s', (_set, kind, form) => {
    expect(responseOf(drawOfKind(new RandomStream('pictured'), kind, DEFAULT_GEOMETRY))).toMatch(form);
  });
});
