/** Encoders without weights, for the tiny world: the letters of a quoted word, and the pixels of a style image. */
import { DataError } from '../../core/errors.js';
import type { RgbImage } from '../../core/image.js';
import { toUnit } from '../../core/planes.js';
import { targetOf } from '../../rewards/terms/ocr/similarity.js';
import { LETTERS, letterWidth, STYLE_SIDE, styleWidth } from '../sign_encoding.js';

/**
 * The quoted word of a prompt as [places, letterWidth]: the letter at each place, or none, and the place's index. Raises DataError for a prompt that
 * quotes nothing, for an unknown character and for a word that is too long.
 */
export function encodeLetters(prompt: string, places: number, where: string): Float32Array {
  const word = targetOf(prompt, where).toUpperCase();
  if (word.length > places) {
    throw new DataError(`'${word}' has ${word.length} letters; the model reads ${places}`, {
      where,
      next: 'Raise policy.init.text_length where the model is made, or leave this sample out.',
    });
  }
  const width = letterWidth(places);
  const out = new Float32Array(places * width);
  for (let at = 0; at < places; at++) {
    const letter = at < word.length ? LETTERS.indexOf(word[at]) : LETTERS.length;
    if (letter < 0) {
      throw new DataError(`the prompt quotes ${JSON.stringify(word[at])}; allowed: letters and digits`, { where });
    }
    out[at * width + letter] = 1;
    out[at * width + LETTERS.length + 1 + at] = 1;
  }
  return out;
}

/** A picture averaged down to a small square, from -1 to 1: [styleWidth] in the order (y, x, channel). */
export function encodeStyle({ width, height, data }: RgbImage): Float32Array {
  const out = new Float32Array(styleWidth);
  const bounds = (at: number, size: number): readonly [number, number] => {
    const from = Math.min(size - 1, Math.floor((at * size) / STYLE_SIDE));
    return [from, Math.max(from + 1, Math.floor(((at + 1) * size) / STYLE_SIDE))];
  };
  for (let y = 0; y < STYLE_SIDE; y++) {
    const [top, bottom] = bounds(y, height);
    for (let x = 0; x < STYLE_SIDE; x++) {
      const [left, right] = bounds(x, width);
      for (let c = 0; c < 3; c++) {
        let sum = 0;
        for (let j = top; j < bottom; j++) for (let i = left; i < right; i++) sum += data[(j * width + i) * 3 + c];
        out[(y * STYLE_SIDE + x) * 3 + c] = toUnit(sum / ((bottom - top) * (right - left)));
      }
    }
  }
  return out;
}
