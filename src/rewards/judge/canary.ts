/**
 * A question that any judge can answer: two small images and an edit that asks for nothing, or words alone, in the reply format of most
 * questions, so that a server which refuses that is found. What it answers does not matter.
 */
import type { RgbImage } from '../../core/image.js';
import type { JudgeMessage, JudgeQuery, JudgeInput } from './judge.js';
import { JudgeImages } from './images.js';
import { twoScores } from './prompts.js';

const side = 64;

function plain(level: number): RgbImage {
  return { width: side, height: side, data: new Uint8Array(side * side * 3).fill(level) };
}

const images = new JudgeImages(2);

function asking(...parts: JudgeMessage['parts']): JudgeQuery {
  return { ...question, messages: [{ role: 'user', parts }] };
}

const question: Omit<JudgeQuery, 'messages'> = {
  key: 'canary',
  format: twoScores,
  temperature: 0,
  maxCompletionTokens: 16,
  parse: () => ({ ok: true, scores: [] }),
};

/**
 * Test queries by what the judge is otherwise shown. The image query sends two images, as most queries do: a server may be limited to one per
 * request.
 */
export const canaryQueries: Readonly<Record<JudgeInput, JudgeQuery>> = {
  images: asking(
    'This is a check of the connection. Two images follow. Answer with one short sentence.\nInstruction: leave the image as it is',
    images.prepare(plain(96), 'canary'),
    images.prepare(plain(160), 'canary'),
  ),
  words: asking('This is a check of the connection. Answer with one short sentence.'),
};
