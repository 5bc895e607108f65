/** Greedy CTC decoding (Graves et al., "Connectionist Temporal Classification", 2006), as PaddleOCR's recognisers need it. */
import type { OcrLine } from '../engine.js';

/**
 * The most likely class at each step, repeats merged, blanks (class 0) dropped; the confidence is the mean probability of the steps
 * that gave a character, 0 where none did.
 * @param probabilities axes [steps, classes], each step summing to 1
 */
export function decodeCtc(probabilities: Float32Array, classes: number, characters: readonly string[]): OcrLine {
  let text = '';
  let [sum, count, previous] = [0, 0, 0];
  for (let at = 0; at < probabilities.length; at += classes) {
    let best = 0;
    for (let i = 1; i < classes; i++) if (probabilities[at + i] > probabilities[at + best]) best = i;
    if (best !== 0 && best !== previous) {
      text += characters[best];
      sum += probabilities[at + best];
      count++;
    }
    previous = best;
  }
  return { text, confidence: count === 0 ? 0 : Math.min(1, sum / count) };
}
