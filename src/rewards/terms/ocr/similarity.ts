/**
 * How well the text of a reading agrees with the text that an image should show. The similarity is that of Flow-GRPO's OCR reward (Liu et
 * al., "Flow-GRPO: Training Flow Matching Models via Online RL", 2025), with all whitespace removed and Unicode compatibility forms folded.
 */
import { editDistance } from '../../../core/nearest.js';
import { DataError } from '../../../core/errors.js';

import type { OcrLine } from './engine.js';

/** Characters that open and close a quotation: straight, curly, and low-high quotation marks. A single quote is more often an apostrophe. */
const quotation =
  /["\u201C\u201D\u201E\u201F\uFF02]([^"\u201C\u201D\u201E\u201F\uFF02]*)["\u201C\u201D\u201E\u201F\uFF02]/u;

/** A prompt as Calligrapher's loader writes it for a sample of its list (train/dataset.py of https://github.com/yuriYanZeXuan/Calligrapher). */
const statedText = /^The text is '(.+)'$/su;

/** NFKC, without whitespace, in lower case: the form in which both texts are compared. */
export function normalizeText(text: string): string {
  return text.normalize('NFKC').replace(/\s+/gu, '').toLowerCase();
}

/** Characters as Python counts them: code points, not UTF-16 units. */
export function codePoints(text: string): readonly string[] {
  return [...text];
}

/**
 * The text between an instruction's first pair of quotation marks, or between the single ones of `The text is '…'`, normalized. Null if it
 * quotes nothing.
 */
export function quotedIn(instruction: string): string | null {
  const found = quotation.exec(instruction) ?? statedText.exec(instruction);
  return found === null ? null : normalizeText(found[1]);
}

/**
 * The text that an instruction asks for, as `quotedIn` gives it. Raises DataError, naming `where`, for an instruction that quotes nothing
 * or only whitespace: there is nothing to compare the image with.
 */
export function targetOf(instruction: string, where: string): string {
  const target = quotedIn(instruction);
  const next = 'Put the text that the image should show between double quotes, or use a reward that compares no text.';
  if (target === null) {
    throw new DataError(`the prompt quotes no text: ${JSON.stringify(instruction)}`, { where, next });
  }
  if (target !== '') return target;
  throw new DataError(`the prompt's first quotation is empty: ${JSON.stringify(instruction)}`, { where, next });
}

/**
 * `r = 1 - d/len` in [0, 1]. `len` counts the target's code points. `d` is 0 if the target is part of the reading, else the edit distance
 * in code points, at most `len`. Both texts are normalized, the target not empty.
 */
export function similarity(target: string, read: string): number {
  if (read.includes(target)) return 1;
  const length = codePoints(target).length;
  // A text longer than twice the target is at least `len` edits away.
  if (codePoints(read).length >= 2 * length) return 0;
  return 1 - Math.min(editDistance(codePoints(target), codePoints(read)), length) / length;
}

/** All lines as one text, normalized: in reading order, without a separator. */
export function joinLines(lines: readonly OcrLine[]): string {
  return normalizeText(lines.map(({ text }) => text).join(''));
}

/** The mean confidence of the lines with text, in [0, 1], as Calligrapher's reward server computes it (train/rl_ip/ocr.py). 0 if there is none. */
export function meanConfidence(lines: readonly OcrLine[]): number {
  const read = lines.filter(({ text }) => normalizeText(text) !== '');
  return read.length === 0 ? 0 : read.reduce((sum, { confidence }) => sum + confidence, 0) / read.length;
}

/**
 * `sum(conf_i * len_i) / sum(len_i)` in [0, 1] over the lines. `len_i` counts the code points of a line without whitespace. 0 if nothing
 * was read.
 */
export function weightedConfidence(lines: readonly OcrLine[]): number {
  let [sum, length] = [0, 0];
  for (const { text, confidence } of lines) {
    const own = codePoints(normalizeText(text)).length;
    sum += confidence * own;
    length += own;
  }
  return length === 0 ? 0 : sum / length;
}
