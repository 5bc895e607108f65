/**
 * The question about alignment and quality for a picture that is a sign: whether it says the word that the request quotes, and how clean it is. Both
 * are measured only from the pixels that were sent and the request.
 */
import type { RgbImage } from '../../core/image.js';
import { DataError } from '../../core/errors.js';
import { badRequest } from '../../http/refusal.js';
import { quotedIn } from '../../rewards/terms/ocr/similarity.js';
import { wordRows, type SignStyle } from '../world/sign_scenes.js';
import { resample } from './read_scene.js';
import { seeSign, stripStyle } from './read_sign.js';
import { hasRoom, ramp, readWord } from './sign_letters.js';
import { scoreSignQuality } from './sign_quality.js';

export interface SignScore {
  /** 0 to 10: 10 if every letter is as drawn, 0 if none resembles the requested letter more than another. */
  readonly alignment: number;
  /** 0 to 10. */
  readonly quality: number;
  readonly reasoning: string;
}

/** Ink outside the word, as a share of the word's ink, at which the penalty begins and at which nothing is left. */
const EXTRA_RANGE = [0.15, 0.75] as const;
/** Differences of the strip from the source's (root mean square, in levels of 0 to 255) at which the penalty begins and at which nothing is left. */
const STRIP_RANGE = [12, 60] as const;

/** The word that a request quotes, as signs write it. Raises Refusal for a word that no sign of this size can show. */
function wordOf(request: string, image: RgbImage): string {
  const word = (quotedIn(request) ?? '').toUpperCase();
  if (word === '') throw badRequest('The request quotes no word for the sign.', 'messages');
  try {
    if (hasRoom(image, word)) return word;
  } catch (cause) {
    if (!(cause instanceof DataError)) throw cause;
    throw badRequest(`This judge reads signs of capital letters and digits: ${cause.message}`, 'messages');
  }
  throw badRequest(`A sign of ${image.width}x${image.height} pixels has no room for '${word}'.`, 'messages');
}

/** The colours of a sign, and how well its strip agrees with the source's, 0 to 1. */
function strip(
  source: RgbImage | null,
  edited: RgbImage,
): { readonly style: SignStyle | null; readonly stayed: number } {
  if (source === null) return { style: stripStyle(edited), stayed: 1 };
  const given = resample(source, edited.width, edited.height);
  const style = stripStyle(given);
  if (style === null) throw badRequest('The source shows no sign: its strip has no two colours.', 'messages');
  let sum = 0;
  const from = wordRows(edited) * edited.width * 3;
  for (let at = from; at < edited.data.length; at++) sum += (edited.data[at] - given.data[at]) ** 2;
  return { style, stayed: 1 - ramp(Math.sqrt(sum / (edited.data.length - from)), STRIP_RANGE) };
}

/**
 * Scores a sign. The colours are those of the source's strip if there is a source, which the sign then has to keep, else of its own. A word with one
 * right letter of three gets 1, with two 4: half of a word is no word. Raises Refusal for requests that no sign can fulfil.
 * @param source at the size at which it was drawn, like `edited`; null if only the sign was sent
 */
export function scoreSign(source: RgbImage | null, request: string, edited: RgbImage): SignScore {
  const word = wordOf(request, edited);
  const { style, stayed } = strip(source, edited);
  if (style === null) return { alignment: 0, quality: 0, reasoning: 'The sign shows no two colours.' };
  const sign = seeSign(edited, style);
  const { letters, extra } = readWord(sign, word);
  const legible = letters.reduce((sum, score) => sum + score, 0) / letters.length;
  const alignment = Math.round(10 * legible ** 2 * (1 - ramp(extra, EXTRA_RANGE)) * stayed);
  const quality = scoreSignQuality(sign, letters.length);
  const percent = letters.map((score) => Math.round(100 * score)).join(', ');
  const changed = stayed < 1 ? ' The strip is not that of the source.' : '';
  return {
    alignment,
    quality: quality.score,
    reasoning: `The letters of '${word}' are there by ${percent} percent. ${quality.reasoning}${changed}`,
  };
}
