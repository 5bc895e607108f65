/**
 * Which split a scene belongs to. Only a hash of the scene decides, and an example is accepted only if both its source and its result belong to the
 * split: no scene of one split can then occur in another, whatever seeds and sizes are chosen.
 */
import { contentNumber, type Scene } from './world.js';

/** Shares of all scenes, in the order of their hash ranges. */
export const SPLIT_SHARES = {
  /** Labelled edits. */
  train: 0.15,
  /** Edits without an answer. */
  prompts: 0.4,
  /** Held-out labelled edits. */
  validation: 0.15,
  /** Edits with the answer's pixels, for rewards that compare with them. */
  truth: 0.15,
  /** Single scenes for the image tokenizer. */
  images: 0.15,
} as const;

export type SplitName = keyof typeof SPLIT_SHARES;
export type EditSplitName = Exclude<SplitName, 'images'>;
export const EDIT_SPLITS: readonly EditSplitName[] = ['train', 'prompts', 'validation', 'truth'];

/** A scene's place in [0, 1): a multiplicative hash of its cells, with the finalizer of MurmurHash3 (Appleby, 2011). */
function hashPlace(scene: Scene): number {
  let h = Math.imul(scene.geometry.columns, 0x9e3779b1) ^ scene.geometry.rows;
  for (const content of scene.cells) {
    h = Math.imul(h ^ contentNumber(content), 0x9e3779b1);
    h ^= h >>> 15;
  }
  h = Math.imul(h ^ (h >>> 16), 0x85ebca6b);
  h = Math.imul(h ^ (h >>> 13), 0xc2b2ae35);
  return ((h ^ (h >>> 16)) >>> 0) / 2 ** 32;
}

/** The only split that a scene belongs to. */
export function splitOf(scene: Scene): SplitName {
  const place = hashPlace(scene);
  let edge = 0;
  for (const name of Object.keys(SPLIT_SHARES) as SplitName[]) {
    edge += SPLIT_SHARES[name];
    if (place < edge) return name;
  }
  // Rounding of the running sum may leave a small gap below 1.
  return 'images';
}
