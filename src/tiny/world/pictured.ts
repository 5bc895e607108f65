/**
 * The tiny world's edits as pictures and words, in the form of data/pictured_edits.ts:
 *
 *   <root>/pictured-<hash>/pictured/{train,prompts,validation,truth}.jsonl    {"source", "instruction", "response", "target"}
 *   <root>/pictured-<hash>/pictured/scenes.jsonl
 *   <root>/pictured-<hash>/pictured/<split>/N_source.png, N_target.png
 *
 * A response says which object is where and what becomes of it. `prompts` have neither responses nor edited pictures. `scenes` ask
 * which objects are where, three times of each picture: what a model that sees has learnt before anybody tells it of edits.
 */
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { must } from '../../core/errors.js';
import { writeFileAtomic } from '../../core/files.js';
import { encodePlainPng } from '../../core/png.js';
import { RandomStream } from '../../core/random.js';
import { drawScene } from './draw.js';
import { instructionOf, rationaleOf } from './edits.js';
import { drawExample, drawImageScene, type EditSetName } from './generate.js';
import { foundPart, makePart, type Part } from './parts.js';
import { EDIT_SPLITS, type EditSplitName } from './splits.js';
import { cellName, checkGeometry, type Geometry, type Scene, type SceneObject } from './world.js';

export interface PicturedOptions {
  readonly seed: number;
  readonly geometry: Geometry;
  readonly set: EditSetName;
  /** Edits in each split, and scenes. */
  readonly sizes: Readonly<Record<EditSplitName | 'scenes', number>>;
}

/** What is asked of a scene: all of it, a cell of it, or where one of its things is. */
const QUESTIONS: readonly ((
  scene: Scene,
  random: RandomStream,
) => { readonly asked: string; readonly said: string })[] = [
  (scene) => ({ asked: 'describe the picture', said: describeScene(scene) }),
  ({ geometry, cells }, random) => {
    const cell = random.integer(cells.length);
    const content = cells[cell];
    const said = content === null ? 'nothing' : thing(content);
    return { asked: `what is at ${cellName(geometry, cell)}`, said };
  },
  (scene, random) => {
    const cell = random.pick(scene.cells.flatMap((content, at) => (content === null ? [] : [at])));
    const { [cell]: content } = scene.cells;
    const asked = `where is the ${thing(must(content, 'a thing in its cell'))}`;
    return { asked, said: `at ${cellName(scene.geometry, cell)}` };
  },
];

/** Words of questions about scenes that no edit has. */
export const SCENE_WORDS = ['describe', 'picture', 'what', 'where', 'is', 'nothing'];

const thing = ({ colour, shape }: SceneObject): string => `${colour} ${shape}`;

/** What a scene shows, cell by cell. */
export function describeScene({ geometry, cells }: Scene): string {
  return cells
    .flatMap((content, cell) => (content === null ? [] : [`${thing(content)} at ${cellName(geometry, cell)}`]))
    .join(' ');
}

function picturedPart({ seed, geometry, set, sizes }: PicturedOptions): Part {
  return { name: 'pictured', entry: { seed, geometry: { ...geometry }, set, sizes: { ...sizes } } };
}

/** The folder of the edits with these options, which holds `pictured`; null where they are not made yet. */
export function tinyPictured(root: string, options: PicturedOptions): string | null {
  return foundPart(root, picturedPart(options));
}

/** Makes the edits; does nothing where they are there already. Raises RunError when the disk refuses, and as `checkGeometry`. */
export async function makeTinyPictured(root: string, options: PicturedOptions): Promise<void> {
  const { seed, geometry, set, sizes } = options;
  checkGeometry(geometry);
  await makePart(root, picturedPart(options), async (folder) => {
    for (const split of EDIT_SPLITS) {
      const place = join(folder, 'pictured', split);
      mkdirSync(place, { recursive: true });
      const lines = Array.from({ length: sizes[split] }, (_, i) => {
        const plan = drawExample(seed, set, split, i, geometry);
        const [source, target] = [`${i}_source.png`, `${i}_target.png`];
        writeFileSync(join(place, source), encodePlainPng(drawScene(plan.source)));
        const asked = { source: `${split}/${source}`, instruction: instructionOf(plan.edit, geometry) };
        if (split === 'prompts') return JSON.stringify(asked);
        writeFileSync(join(place, target), encodePlainPng(drawScene(plan.expected)));
        return JSON.stringify({ ...asked, response: rationaleOf(plan), target: `${split}/${target}` });
      });
      writeList(folder, split, lines);
    }
    mkdirSync(join(folder, 'pictured', 'scenes'));
    const scenes = Array.from({ length: sizes.scenes }, (_, i) => {
      const scene = drawImageScene(seed, i, geometry);
      const source = `scenes/${i}_source.png`;
      writeFileSync(join(folder, 'pictured', source), encodePlainPng(drawScene(scene)));
      const random = new RandomStream(seed, 'tiny', 'scenes', i);
      return QUESTIONS.map((question) => {
        const { asked, said } = question(scene, random);
        return JSON.stringify({ source, instruction: asked, response: said });
      });
    }).flat();
    writeList(folder, 'scenes', scenes);
  });
}

function writeList(folder: string, split: string, lines: readonly string[]): void {
  writeFileAtomic(join(folder, 'pictured', `${split}.jsonl`), `${lines.join('\n')}\n`);
}
