/** From two embeddings to CLIP's score. */
import { InternalError } from '../../../core/errors.js';

/** The cosine of the angle between two vectors of the same length; NaN where one has no length or holds a NaN. */
export function cosine(a: Float32Array, b: Float32Array): number {
  if (a.length !== b.length) throw new InternalError(`embeddings of ${a.length} and ${b.length} numbers`);
  let [dot, ofA, ofB] = [0, 0, 0];
  for (let i = 0; i < a.length; i++) {
    dot += a[i] * b[i];
    ofA += a[i] * a[i];
    ofB += b[i] * b[i];
  }
  return dot / Math.sqrt(ofA * ofB);
}

/** CLIPScore, `2.5 max(cosine, 0)` (Hessel and others 2021, arXiv 2104.08718), at most 1: real pairs lie at cosines of 0.15 to 0.40. */
export function clipScore(cosine: number): number {
  return Math.min(1, 2.5 * Math.max(cosine, 0));
}
