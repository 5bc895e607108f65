/** An exam on edits of the tiny world, whose quality follows from how they were made. */
import { RandomStream } from '../../core/random.js';
import { must } from '../../core/errors.js';
import type { RgbImage } from '../../core/images/image.js';
import { COPY, type ExamAnswer, type ExamCase, type ExamSet } from '../exam/cases.js';
import { blurred, cropped } from '../exam/tricks.js';
import { drawScene } from '../../data/tiny/draw.js';
import { instructionOf, withChanges, type Change, type EditKind, type Plan } from '../../data/tiny/edits.js';
import { drawOfKind } from '../../data/tiny/generate.js';
import { withOddNames } from '../../data/tiny/words.js';
import { COLOURS, DEFAULT_GEOMETRY, type Color, type Scene, type SceneObject } from '../../data/tiny/world.js';

/** Kinds of edit that can be half done. */
const KINDS: readonly EditKind[] = ['recolour', 'add', 'move', 'swap', 'remove_all', 'recolour_all', 'add_beside'];

/** The quality of an answer with each flaw. How a damaged image compares with an edit that was not made is a matter of taste. */
const TRUTH = {
  right: 1,
  half_done: 0.5,
  over_edited: 0.5,
  wrong_object: 0,
  [COPY]: 0,
  blurred: null,
  cropped: null,
} as const;

function otherColor(random: RandomStream, ...not: readonly Color[]): Color {
  return random.pick(COLOURS.filter((colour) => !not.includes(colour)));
}

/** All changes but the first. For a single change, the object in a color that was not requested. */
function halfOf({ source, changes }: Plan, random: RandomStream): readonly Change[] {
  const [{ cell, to }, ...others] = changes;
  if (others.length > 0) return others;
  const object = must(to, 'the object of an edit that can be half done');
  const before = source.cells[cell];
  const colour = otherColor(random, object.colour, ...(before === null ? [] : [before.colour]));
  return [{ cell, to: { ...object, colour } }];
}

/** Cells with objects that the edit does not concern. */
function bystanders({ source, changes }: Plan): number[] {
  const about = new Set(changes.map(({ cell }) => cell));
  return source.cells.flatMap((content, cell) => (content !== null && !about.has(cell) ? [cell] : []));
}

/** An object in another color. */
function repainted(scene: Scene, cell: number, random: RandomStream): Change {
  const object: SceneObject = must(scene.cells[cell], 'an object that is repainted');
  return { cell, to: { ...object, colour: otherColor(random, object.colour) } };
}

/** Cases whose scenes have at least two objects that the edit does not concern, drawn again until they do. */
function planAt(seed: number, index: number): { readonly plan: Plan; readonly random: RandomStream } {
  const random = new RandomStream(seed, 'exam', index);
  for (;;) {
    const plan = drawOfKind(random, KINDS[index % KINDS.length], DEFAULT_GEOMETRY);
    if (bystanders(plan).length >= 2) return { plan, random };
  }
}

async function caseAt(seed: number, index: number): Promise<ExamCase> {
  const { plan, random } = planAt(seed, index);
  const { source, expected, edit } = plan;
  const others = bystanders(plan);
  const right = drawScene(expected);
  const shown: Record<keyof typeof TRUTH, RgbImage> = {
    right,
    half_done: drawScene(withChanges(source, halfOf(plan, random))),
    over_edited: drawScene(
      withChanges(expected, [repainted(source, others[0], random), { cell: others[1], to: null }]),
    ),
    blurred: await blurred(right),
    cropped: await cropped(right),
    wrong_object: drawScene(withChanges(source, [repainted(source, others[0], random)])),
    [COPY]: drawScene(source),
  };
  const answers = Object.entries(shown).map(([name, image]): ExamAnswer => {
    return { name, truth: TRUTH[name as keyof typeof TRUTH], made: image };
  });
  const instruction = instructionOf(edit, DEFAULT_GEOMETRY);
  const reworded = withOddNames(instruction, random);
  return {
    name: String(index),
    instruction,
    reworded: `${reworded[0].toUpperCase()}${reworded.slice(1)}.`,
    source: shown[COPY],
    answers,
    tricked: { not_pay: 'wrong_object', not_move: 'half_done' },
    labelled: right,
  };
}

/** This many cases. Each is a pure function of the seed and its number. */
export function tinyExam(length: number, seed = 0): ExamSet {
  return {
    name: seed === 0 ? 'tiny' : `tiny-${seed}`,
    length,
    reads: 'image',
    labelled: true,
    at: (index) => caseAt(seed, index),
  };
}
