/**
 * The tiny world's edits as images and words, in the form of data/image_edits.ts:
 *
 *   <root>/pictured-<hash>/pictured/{train,prompts,validation,truth}.jsonl    {"source", "instruction", "response", "target"}
 *   <root>/pictured-<hash>/pictured/<split>/N_source.png, N_target.png
 *
 * A response names each changed thing and its change. `prompts` have neither responses nor edited images.
 */
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { writeFileAtomic } from '../../core/files.js';
import { encodePlainPng } from '../../core/images/png.js';
import { RandomStream } from '../../core/random.js';
import type { TinyImageEditSettings } from './settings.js';
import { tinyDataset } from './build.js';
import { drawScene } from './draw.js';
import { instructionOf, rationaleOf, tinyVocabulary, type Plan } from './edits.js';
import { drawExample, EDIT_SPLITS, type EditSetName, type EditSplitName } from './generate.js';
import { anyOddNames, oddNames, withOddNames } from './words.js';
import { checkGeometry, type Geometry } from './world.js';

/** The names of colors and shapes in instructions. */
export type EditNames = 'plain' | 'odd';

/**
 * With odd names, the image model (split `truth`) still learns only plain ones. Every second edit is requested with
 * arbitrary odd names, so only the response identifies it.
 */
function askedOf(plan: Plan, { seed, geometry, names }: ImageEditOptions, split: EditSplitName, i: number): string {
  const plain = instructionOf(plan.edit, geometry);
  if (names === 'plain' || (split === 'truth' && i % 2 === 0)) return plain;
  const random = new RandomStream(seed, 'tiny', 'pictured', split, i);
  return split === 'truth' ? anyOddNames(plain, random) : withOddNames(plain, random);
}

/** Every word of instructions and responses. */
export function imageEditVocabulary(geometry: Geometry, names: EditNames): string[] {
  const plain = tinyVocabulary(geometry);
  return names === 'plain' ? [...plain] : [...new Set([...plain, ...oddNames()])];
}

export interface ImageEditOptions {
  readonly seed: number;
  readonly geometry: Geometry;
  readonly set: EditSetName;
  readonly names: EditNames;
  /** Edits in each split. */
  readonly sizes: Readonly<Record<EditSplitName, number>>;
}

/** The expected description of an edit: its rationale without positions, which the image model sees in the image. */
export function responseOf(plan: Plan): string {
  const rationale = rationaleOf(plan);
  return plan.edit.kind === 'recolour' || plan.edit.kind === 'remove' ? rationale.replace(/ at \S+/, '') : rationale;
}

/** The edits of each split. */
export const imageEditData = tinyDataset<TinyImageEditSettings, ImageEditOptions>({
  things: 'pictured edits',
  name: 'pictured',
  optionsOf: ({ seed, grid, cell, set, names, counts }) => ({
    seed,
    geometry: { columns: grid, rows: grid, cell },
    set,
    names,
    sizes: counts,
  }),
  entryOf: ({ seed, geometry, set, names, sizes }) => {
    const odd = names === 'plain' ? {} : { names };
    return { seed, geometry: { ...geometry }, set, ...odd, sizes: { ...sizes } };
  },
  check: ({ geometry }) => checkGeometry(geometry),
  write: async (folder, options) => {
    const { seed, geometry, set, sizes } = options;
    for (const split of EDIT_SPLITS) {
      const place = join(folder, 'pictured', split);
      mkdirSync(place, { recursive: true });
      const lines = Array.from({ length: sizes[split] }, (_, i) => {
        const plan = drawExample(seed, set, split, i, geometry);
        const [source, target] = [`${i}_source.png`, `${i}_target.png`];
        writeFileSync(join(place, source), encodePlainPng(drawScene(plan.source)));
        const row = { source: `${split}/${source}`, instruction: askedOf(plan, options, split, i) };
        if (split === 'prompts') return JSON.stringify(row);
        writeFileSync(join(place, target), encodePlainPng(drawScene(plan.expected)));
        return JSON.stringify({ ...row, response: responseOf(plan), target: `${split}/${target}` });
      });
      writeFileAtomic(join(folder, 'pictured', `${split}.jsonl`), `${lines.join('\n')}\n`);
    }
  },
});
