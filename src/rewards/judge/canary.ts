/**
 * A question that any judge can answer: two small images and an edit that asks for nothing, or words alone, in the reply format of most
 * questions, so that a server which refuses that is found. What it answers does not matter.
 */
import type { RgbImage } from '../../core/image.js';
import { imagesShown, type JudgeMessage, type JudgeQuery, type JudgeInput } from './judge.js';
import { JudgeImages } from './images.js';
import { twoScores } from './prompts.js';

const side = 64;

function plain(level: number): RgbImage {
  return { width: side, height: side, data: new Uint8Array(side * side * 3).fill(level) };
}

const images = new JudgeImages(imagesShown.pairs);

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

const looking = (shown: 'images' | 'pairs', words: string): JudgeQuery => {
  const pictures = Array.from({ length: imagesShown[shown] }, (_, i) => images.prepare(plain(96 + 64 * i), 'canary'));
  const text = `This is a check of the connection. ${words} images follow. Answer with one short sentence.`;
  return asking(`${text}\nInstruction: leave the image as it is`, ...pictures);
};

/**
 * Test queries by what the judge is otherwise shown, with as many images as its largest questions have: a server may be limited to fewer per
 * request.
 */
export const canaryQueries: Readonly<Record<JudgeInput, JudgeQuery>> = {
  images: looking('images', 'Two'),
  pairs: looking('pairs', 'Three'),
  words: asking('This is a check of the connection. Answer with one short sentence.'),
};
