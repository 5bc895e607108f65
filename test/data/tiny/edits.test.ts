import { describe, expect, it } from 'vitest';
import {
  EDIT_KINDS,
  instructionOf,
  parseInstruction,
  planEdit,
  rationaleOf,
  sameScene,
  MAX_INSTRUCTION_WORDS,
  MAX_RATIONALE_WORDS,
  tinyVocabulary,
  type EditKind,
} from '../../../src/data/tiny/edits.js';
import { drawExample, EDIT_MIXTURES, EDIT_SETS } from '../../../src/data/tiny/generate.js';
import { COLOURS, DEFAULT_GEOMETRY, sameContent, SHAPES, type SceneObject } from '../../../src/data/tiny/world.js';
import { example } from './scene_pictures.js';

const examples = Array.from({ length: 800 }, (_, i) => example(i));

describe('edits', () => {
  it('are read back from their sentences', () => {
    for (const plan of examples) {
      const sentence = instructionOf(plan.edit, DEFAULT_GEOMETRY);
      expect(parseInstruction(sentence, DEFAULT_GEOMETRY)).toEqual(plan.edit);
      expect(parseInstruction(` ${sentence.toUpperCase()}. `, DEFAULT_GEOMETRY)).toEqual(plan.edit);
    }
  });

  it('keep their words at fixed positions', () => {
    for (const plan of examples) {
      const [verb, article, colour, shape] = instructionOf(plan.edit, DEFAULT_GEOMETRY).split(' ');
      expect(['recolour', 'remove', 'add', 'move', 'swap']).toContain(verb);
      expect(article).toBe('the');
      expect(COLOURS).toContain(colour);
      expect([...SHAPES, 'shapes']).toContain(shape);
    }
  });

  it('change a scene, and only in the cells that they name', () => {
    for (const { source, expected, changes } of examples) {
      expect(sameScene(source, expected)).toBe(false);
      const cells = new Set(changes.map(({ cell }) => cell));
      source.cells.forEach((content, cell) => {
        if (!cells.has(cell)) expect(expected.cells[cell]).toEqual(content);
      });
    }
  });

  it('start from scenes of 3 to 6 objects that differ by color or shape', () => {
    for (const { source, edit } of examples) {
      const objects = source.cells.filter((content) => content !== null).map((o) => `${o.colour} ${o.shape}`);
      expect(objects.length).toBeGreaterThanOrEqual(3);
      expect(objects.length).toBeLessThanOrEqual(6);
      if (!edit.kind.endsWith('_all')) expect(new Set(objects).size).toBe(objects.length);
    }
  });

  it('are not possible if their object is missing or their cell is taken', () => {
    const everything = COLOURS.flatMap((colour) => SHAPES.map((shape) => ({ colour, shape })));
    for (const { source } of examples.filter(({ edit }) => !edit.kind.endsWith('_all')).slice(0, 40)) {
      const taken = source.cells.flatMap((content, cell) => (content === null ? [] : [{ content, cell }]));
      const free = source.cells.indexOf(null);
      const [first, second] = taken;
      const absent = everything.find((one) => !taken.some(({ content }) => sameContent(content, one)));
      if (absent === undefined) throw new Error('every object there is stands in the scene');
      const colour = COLOURS.find((other) => other !== absent.colour && other !== first.content.colour) ?? 'red';
      const possible = (object: SceneObject): boolean[] => [
        planEdit(source, { kind: 'remove', object }) !== null,
        planEdit(source, { kind: 'recolour', object, colour }) !== null,
        planEdit(source, { kind: 'move', object, cell: free }) !== null,
        planEdit(source, { kind: 'swap', object, other: second.content }) !== null,
      ];
      expect(possible(first.content)).toEqual([true, true, true, true]);
      expect(possible(absent)).toEqual([false, false, false, false]);
      expect(planEdit(source, { kind: 'move', object: first.content, cell: second.cell })).toBeNull();
      expect(planEdit(source, { kind: 'add', object: absent, cell: second.cell })).toBeNull();
      expect(planEdit(source, { kind: 'add', object: absent, cell: free })).not.toBeNull();
      expect(planEdit(source, { kind: 'swap', object: first.content, other: first.content })).toBeNull();
    }
  });
});

describe('words', () => {
  const vocabulary = tinyVocabulary();

  it('of all instructions and rationales are in the vocabulary, once', () => {
    expect(new Set(vocabulary).size).toBe(vocabulary.length);
    const known = new Set(vocabulary);
    const used = new Set<string>();
    for (const plan of examples) {
      const instruction = instructionOf(plan.edit, DEFAULT_GEOMETRY).split(' ');
      const rationale = rationaleOf(plan).split(' ');
      expect(instruction.length).toBeLessThanOrEqual(MAX_INSTRUCTION_WORDS);
      expect(rationale.length).toBeLessThanOrEqual(MAX_RATIONALE_WORDS);
      for (const word of [...instruction, ...rationale]) used.add(word);
    }
    expect([...used].filter((word) => !known.has(word))).toEqual([]);
    expect(vocabulary.filter((word) => !used.has(word))).toEqual([]);
  });
});

describe('examples', () => {
  it('are a pure function of seed, set, split and index', () => {
    const draw = (seed: number, index: number) => drawExample(seed, 'c', 'train', index, DEFAULT_GEOMETRY);
    expect(draw(1, 5)).toEqual(draw(1, 5));
    expect(draw(1, 5)).not.toEqual(draw(1, 6));
    expect(draw(1, 5)).not.toEqual(draw(2, 5));
  });

  it.each(EDIT_SETS)('of %s follow their mixture', (set) => {
    const counts = new Map<EditKind, number>();
    const draws = 1500;
    for (let i = 0; i < draws; i++) {
      const { kind } = drawExample(7, set, 'prompts', i, DEFAULT_GEOMETRY).edit;
      counts.set(kind, (counts.get(kind) ?? 0) + 1);
    }
    const mixture = EDIT_MIXTURES[set];
    const total = Object.values(mixture).reduce((sum, weight) => sum + weight, 0);
    for (const kind of EDIT_KINDS) {
      expect((counts.get(kind) ?? 0) / draws).toBeCloseTo((mixture[kind] ?? 0) / total, 1);
      if (mixture[kind] === undefined) expect(counts.has(kind)).toBe(false);
    }
  });
});
