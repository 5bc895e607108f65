/** Known edits that the rule judge can read: it finds pictures of anything but the tiny world unreadable. */
import { RandomStream } from '../../core/random.js';
import type { CanarySet } from '../../rewards/gateway/canary_set.js';
import { drawScene } from '../world/draw.js';
import { instructionOf, planEdit, withChanges, type Edit } from '../world/edits.js';
import { must } from '../../core/errors.js';
import { DEFAULT_GEOMETRY, type Scene, type SceneObject } from '../world/world.js';

const square: SceneObject = { colour: 'red', shape: 'square' };
const circle: SceneObject = { colour: 'green', shape: 'circle' };
const cross: SceneObject = { colour: 'yellow', shape: 'cross' };

/** Scenes of the default grid. */
export function tinyCanaries(): CanarySet {
  const cells = Array.from({ length: DEFAULT_GEOMETRY.columns * DEFAULT_GEOMETRY.rows }, () => null);
  const empty: Scene = { geometry: DEFAULT_GEOMETRY, cells };
  const scene = withChanges(empty, [
    { cell: 2, to: square },
    { cell: 8, to: circle },
    { cell: 13, to: cross },
  ]);
  const edit: Edit<'recolour'> = { kind: 'recolour', object: square, colour: 'blue' };
  const plan = must(planEdit(scene, edit), 'the canary edit of its own scene');
  const source = drawScene(scene);
  const done = drawScene(plan.expected);
  const random = new RandomStream('canary');
  const noise = { ...source, data: source.data.map(() => random.integer(256)) };
  const base = { instruction: instructionOf(edit, DEFAULT_GEOMETRY), source };
  return {
    name: 'tiny',
    pair: ['done', 'undone'],
    canaries: [
      { ...base, name: 'done', question: 'consistency', edited: done },
      { ...base, name: 'undone', question: 'consistency', edited: source },
      {
        ...base,
        name: 'something_else',
        question: 'consistency',
        edited: drawScene(withChanges(scene, [{ cell: 8, to: null }])),
      },
      { ...base, name: 'clean', question: 'quality', edited: done },
      { ...base, name: 'noise', question: 'quality', edited: noise },
    ],
  };
}
