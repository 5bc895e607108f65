/**
 * A question that any judge can answer: small images and an edit that asks for nothing, or words alone, in the reply format of most
 * questions, so that a server which refuses that is found. What it answers does not matter.
 */
import type { RgbImage } from '../../core/image.js';
import type { JudgeMessage, JudgeQuery } from './judge.js';
import { JudgeImages } from './images.js';
import { twoScores } from './prompts.js';

const side = 64;

function plain(level: number): RgbImage {
  return { width: side, height: side, data: new Uint8Array(side * side * 3).fill(level) };
}

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

function looking(shown: number): JudgeQuery {
  const images = new JudgeImages(shown);
  const pictures = Array.from({ length: shown }, (_, i) => images.prepare(plain((96 + 64 * i) % 256), 'canary'));
  const words = countInWords(shown);
  const text = `This is a check of the connection. ${words[0].toUpperCase()}${words.slice(1)} images follow. Answer with one short sentence.`;
  return asking(`${text}\nInstruction: leave the image as it is`, ...pictures);
}

const made = new Map<number, JudgeQuery>();

/** The test query for a judge whose largest questions have so many images: a server may be limited to fewer per request. */
export function canaryQuery(shown: number): JudgeQuery {
  const known = made.get(shown);
  if (known !== undefined) return known;
  const query =
    shown === 0 ? asking('This is a check of the connection. Answer with one short sentence.') : looking(shown);
  made.set(shown, query);
  return query;
}

const WORDS = ['no', 'one', 'two', 'three', 'four', 'five', 'six'] as const;

/** A number of images, for messages. */
export function countInWords(images: number): string {
  return WORDS.at(images) ?? String(images);
}
