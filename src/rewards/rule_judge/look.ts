/** The rule judge's look at the pictures of a question, and its answer. */
import { LRUCache } from 'lru-cache';
import { createHash } from 'node:crypto';
import { DataError } from '../../core/errors.js';
import { decodeImage, type RgbImage } from '../../core/images/image.js';
import { Semaphore } from '../../core/semaphore.js';
import { badRequest } from '../../core/http/refusal.js';
import { decodedBytes } from '../server/images.js';
import { parseInstruction } from '../../data/tiny/edits.js';
import type { Geometry } from '../../data/tiny/world.js';
import { type Answer, dataUrlBytes, type Question, type QuestionKind } from './protocol.js';
import { biasedLook, isUnreadable, withBiases, type Biases } from './biases.js';
import { compareLooks, lookAt, type Look } from './compared.js';
import { scoreConsistency } from './consistency.js';
import { scoreGround } from './ground.js';
import { scoreQuality } from './quality.js';
import { readScene, type Reading } from './read_scene.js';
import { nativeSize, scoreSign } from './sign.js';

/** Number of cached readings: an iteration asks for the same source eight times and for each edited image two or three times. */
const KEPT_READINGS = 1024;

/** Largest number of pixels of an image: a picture of the tiny world has thousands, and a file of some kilobytes can decode to any number. */
const MOST_PIXELS = 2048 * 2048;
/** Bytes of all pictures decoded at once: five of the largest, or hundreds of pictures of the tiny world. */
const DECODED_BYTES = 64e6;

/** Reads pictures from data URLs and caches the latest by content. */
class PictureReader<T extends object> {
  readonly #kept = new LRUCache<string, T>({ max: KEPT_READINGS });

  constructor(
    private readonly decoded: Semaphore,
    private readonly see: (image: RgbImage) => T,
  ) {}

  async read(url: string): Promise<T> {
    const key = createHash('sha1').update(url).digest('base64');
    const known = this.#kept.get(key);
    if (known !== undefined) return known;
    const read = async (): Promise<T> => this.see(await decode(dataUrlBytes(url)));
    const reading = await this.decoded.run(read, await decodedBytes(url, MOST_PIXELS));
    this.#kept.set(key, reading);
    return reading;
  }
}

/** What pictures are read with. */
export interface Sight {
  readonly geometry: Geometry;
  readonly scenes: PictureReader<Reading>;
  /** Pictures as they came. */
  readonly plain: PictureReader<RgbImage>;
  /** Reads signs at the size at which they were drawn. */
  readonly signs: PictureReader<RgbImage>;
}

export function openSight(geometry: Geometry): Sight {
  const decoded = new Semaphore(DECODED_BYTES);
  const scenes = new PictureReader(decoded, (image) => readScene(image, geometry));
  const plain = new PictureReader(decoded, (image) => image);
  return { geometry, scenes, plain, signs: new PictureReader(decoded, nativeSize) };
}

async function decode(bytes: Uint8Array): Promise<RgbImage> {
  try {
    return await decodeImage(bytes, 'image_url', MOST_PIXELS);
  } catch (cause) {
    if (cause instanceof DataError) throw badRequest(`Failed to load image: ${cause.message}`, 'image_url');
    throw cause;
  }
}

const GRADED: Record<
  Exclude<QuestionKind, 'sign' | 'answer' | 'pair'>,
  (images: readonly Reading[], instruction: string) => Answer
> = {
  consistency: ([source, edited], instruction) => {
    const { success, overedit, reasoning } = scoreConsistency(source, instruction, edited);
    return { form: 'list', scores: [success, overedit], reasoning };
  },
  quality: ([image]) => {
    const { naturalness, artifacts, reasoning } = scoreQuality(image);
    return { form: 'list', scores: [naturalness, artifacts], reasoning };
  },
  ground: ([truth, predicted], instruction) => {
    const { score, reasoning } = scoreGround(truth, instruction, predicted);
    return { form: 'tag', scores: [score], reasoning };
  },
  alignment: ([source, edited], instruction) => {
    const { success, overedit, reasoning } = scoreConsistency(source, instruction, edited);
    const { naturalness, artifacts } = scoreQuality(edited);
    return { form: 'list', scores: [Math.min(success, overedit), Math.min(naturalness, artifacts)], reasoning };
  },
  digit: ([source, edited], instruction) => {
    const { success, overedit, reasoning } = scoreConsistency(source, instruction, edited);
    return { form: 'list', scores: [Math.min(success, overedit)], reasoning };
  },
};

/** Whether an answer to a question of this kind follows from the rules that its instruction names. */
const NEEDS_EDIT: Readonly<Record<QuestionKind, boolean>> = {
  consistency: true,
  quality: false,
  ground: true,
  alignment: true,
  // These have rules of their own for what they can read.
  sign: false,
  answer: false,
  digit: true,
  pair: true,
};

/** Says so, without a score: a picture is not at fault for an instruction that its judge does not know. */
export const NOT_READ: Answer = {
  form: 'list',
  scores: [],
  reasoning: 'The instruction is none that can be read: this judge grades edits of the tiny world alone.',
};

function isRead({ kind, instruction }: Question, { geometry }: Sight): boolean {
  return !NEEDS_EDIT[kind] || parseInstruction(instruction, geometry) !== null;
}

async function seen<T extends object>({ images }: Question, reader: PictureReader<T>): Promise<T[]> {
  const pictures: T[] = [];
  for (const url of images) pictures.push(await reader.read(url));
  return pictures;
}

/** Answers by how each of two edits looks to it: `impression` may change that. */
function comparePair(
  { instruction }: Question,
  [source, ...edits]: readonly Reading[],
  impression: (look: Look, edit: number) => Look = (found) => found,
): Answer {
  return compareLooks(edits.map((edited, i) => impression(lookAt(source, instruction, edited), i)));
}

/** The answer of a sound judge, without scores where it cannot read the instruction; null where it comes to none. Raises Refusal. */
export async function look(question: Question, sight: Sight): Promise<Answer | null> {
  const { kind, instruction } = question;
  const { scenes, signs } = sight;
  if (!isRead(question, sight)) {
    // Pictures that cannot be decoded are refused all the same.
    await seen(question, sight.plain);
    return NOT_READ;
  }
  switch (kind) {
    case 'sign': {
      const pictures = await seen(question, signs);
      const { alignment, quality, reasoning } = scoreSign(
        pictures.at(-2) ?? null,
        instruction,
        pictures[pictures.length - 1],
      );
      return { form: 'list', scores: [alignment, quality], reasoning };
    }
    case 'answer':
      return gradeWords(question);
    case 'pair':
      return comparePair(question, await seen(question, scenes));
    case 'consistency':
    case 'quality':
    case 'ground':
    case 'alignment':
    case 'digit':
      return GRADED[kind](await seen(question, scenes), instruction);
  }
}

/** The same by a biased one. */
export async function lookBiased(question: Question, sight: Sight, biases: Biases): Promise<Answer | null> {
  const { kind } = question;
  const pictures = await seen(question, sight.plain);
  if (!isRead(question, sight)) return NOT_READ;
  if (kind !== 'pair') {
    const answer = await look(question, sight);
    return answer === null ? null : withBiases(answer, { question, pictures }, biases);
  }
  if (isUnreadable({ question, pictures }, biases)) return null;
  const [source, ...edits] = pictures;
  return comparePair(question, await seen(question, sight.scenes), (found, i) =>
    biasedLook(found, { question, pictures: [source, edits[i]] }, i, biases),
  );
}

const MOST = 10;
const WHAT = 'This judge looks at pictures, and grades answers to questions that end in a list, beside a reference.';
const WORD = /[\p{L}\p{N}]+/gu;

const wordsOf = (text: string): Set<string> => new Set(text.toLowerCase().match(WORD) ?? []);

/**
 * Grades an answer to a question that ends in a list, as `which of these are even: 12, 15, 18?`, beside a reference: of the things in the list that answer
 * and reference name together, the share that both name, times ten. Where nothing is to be graded, it says what it grades. Raises Refusal for any other question.
 */
export function gradeWords({ instruction, graded }: Pick<Question, 'instruction' | 'graded'>): Answer {
  if (graded === null) return { form: 'list', scores: [], reasoning: WHAT };
  const [, list] = /:([^:?]+)\??\s*$/.exec(instruction) ?? [];
  if (list === undefined || graded.reference === '') {
    throw badRequest(WHAT, 'messages');
  }
  const things = [...wordsOf(list)];
  // Who repeats the question has named nothing.
  const said = wordsOf(graded.answer.replaceAll(instruction.trim(), ' '));
  const right = wordsOf(graded.reference);
  const either = things.filter((thing) => said.has(thing) || right.has(thing));
  const both = either.filter((thing) => said.has(thing) && right.has(thing));
  const score = either.length === 0 ? 0 : (MOST * both.length) / either.length;
  const named = things.filter((thing) => said.has(thing)).length;
  return { form: 'list', scores: [score], reasoning: `It names ${named} of them, ${both.length} as it should.` };
}
