/** The rule judge: reads the images of a question and answers it. */
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
import { biasedAssessment, isUnreadable, withBiases, type Biases } from './biases.js';
import { compareAssessments, assess, type Assessment } from './assessment.js';
import { scoreConsistency } from './consistency.js';
import { scoreGround } from './ground.js';
import { scoreQuality } from './quality.js';
import { readScene, type Reading } from './read_scene.js';
import { nativeSize, scoreSign } from './sign.js';

/** Number of cached readings: an iteration asks for the same source eight times and for each edited image two or three times. */
const KEPT_READINGS = 1024;

/** Largest number of pixels of an image: an image of the tiny world has thousands, and a file of some kilobytes can decode to any number. */
const MAX_PIXELS = 2048 * 2048;
/** Bytes of all images decoded at once: five of the largest, or hundreds of images of the tiny world. */
const DECODED_BYTES = 64e6;

/** Reads images from data URLs and caches the latest by content. */
class ImageReader<T extends object> {
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
    const reading = await this.decoded.run(read, await decodedBytes(url, MAX_PIXELS));
    this.#kept.set(key, reading);
    return reading;
  }
}

/** Functions that recognize the contents of images. */
export interface ImageReaders {
  readonly geometry: Geometry;
  readonly scenes: ImageReader<Reading>;
  /** Images in their sent size. */
  readonly plain: ImageReader<RgbImage>;
  /** Reads signs at the size at which they were drawn. */
  readonly signs: ImageReader<RgbImage>;
}

export function createReaders(geometry: Geometry): ImageReaders {
  const decoded = new Semaphore(DECODED_BYTES);
  const scenes = new ImageReader(decoded, (image) => readScene(image, geometry));
  const plain = new ImageReader(decoded, (image) => image);
  return { geometry, scenes, plain, signs: new ImageReader(decoded, nativeSize) };
}

async function decode(bytes: Uint8Array): Promise<RgbImage> {
  try {
    return await decodeImage(bytes, 'image_url', MAX_PIXELS);
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

/** Whether an answer to a question of this kind follows from the rules of its instruction. */
const NEEDS_EDIT: Readonly<Record<QuestionKind, boolean>> = {
  consistency: true,
  quality: false,
  ground: true,
  alignment: true,
  // These have their own rules for readable content.
  sign: false,
  answer: false,
  digit: true,
  pair: true,
};

/** An answer without a score: the image is not at fault for an instruction that its judge does not know. */
export const NOT_READ: Answer = {
  form: 'list',
  scores: [],
  reasoning: 'The instruction cannot be read: this judge grades edits of the tiny world alone.',
};

function isRead({ kind, instruction }: Question, { geometry }: ImageReaders): boolean {
  return !NEEDS_EDIT[kind] || parseInstruction(instruction, geometry) !== null;
}

async function readAll<T extends object>({ images }: Question, reader: ImageReader<T>): Promise<T[]> {
  const found: T[] = [];
  for (const url of images) found.push(await reader.read(url));
  return found;
}

/** Answers by the assessment of each of two edits, which `impression` may change. */
function comparePair(
  { instruction }: Question,
  [source, ...edits]: readonly Reading[],
  impression: (assessment: Assessment, edit: number) => Assessment = (found) => found,
): Answer {
  return compareAssessments(edits.map((edited, i) => impression(assess(source, instruction, edited), i)));
}

/** The answer of a sound judge, without scores if it cannot read the instruction. Null if there is none. Raises Refusal. */
export async function answerQuestion(question: Question, readers: ImageReaders): Promise<Answer | null> {
  const { kind, instruction } = question;
  const { scenes, signs } = readers;
  if (!isRead(question, readers)) {
    // Rejects images that cannot be decoded all the same.
    await readAll(question, readers.plain);
    return NOT_READ;
  }
  switch (kind) {
    case 'sign': {
      const images = await readAll(question, signs);
      const { alignment, quality, reasoning } = scoreSign(
        images.at(-2) ?? null,
        instruction,
        images[images.length - 1],
      );
      return { form: 'list', scores: [alignment, quality], reasoning };
    }
    case 'answer':
      return gradeWords(question);
    case 'pair':
      return comparePair(question, await readAll(question, scenes));
    case 'consistency':
    case 'quality':
    case 'ground':
    case 'alignment':
    case 'digit':
      return GRADED[kind](await readAll(question, scenes), instruction);
  }
}

/** The answer of a biased judge. */
export async function answerWithBiases(
  question: Question,
  readers: ImageReaders,
  biases: Biases,
): Promise<Answer | null> {
  const { kind } = question;
  const images = await readAll(question, readers.plain);
  if (!isRead(question, readers)) return NOT_READ;
  if (kind !== 'pair') {
    const answer = await answerQuestion(question, readers);
    return answer === null ? null : withBiases(answer, { question, images }, biases);
  }
  if (isUnreadable({ question, images }, biases)) return null;
  const [source, ...edits] = images;
  return comparePair(question, await readAll(question, readers.scenes), (found, i) =>
    biasedAssessment(found, { question, images: [source, edits[i]] }, i, biases),
  );
}

const MAX_SCORE = 10;
const WHAT = 'This judge looks at images, and grades answers to questions that end in a list, beside a reference.';
const WORD = /[\p{L}\p{N}]+/gu;

const wordsOf = (text: string): Set<string> => new Set(text.toLowerCase().match(WORD) ?? []);

/**
 * Grades an answer to a question that ends in a list, such as `which of these are even: 12, 15, 18?`, with a reference. The grade is ten
 * times a share: of the things in the list that answer or reference name, those that both name. An empty answer gets a reply without a
 * score. Raises Refusal for any other question.
 */
export function gradeWords({ instruction, graded }: Pick<Question, 'instruction' | 'graded'>): Answer {
  if (graded === null) return { form: 'list', scores: [], reasoning: WHAT };
  const [, list] = /:([^:?]+)\??\s*$/.exec(instruction) ?? [];
  if (list === undefined || graded.reference === '') {
    throw badRequest(WHAT, 'messages');
  }
  const things = [...wordsOf(list)];
  // An answer that repeats the question has named nothing.
  const words = wordsOf(graded.answer.replaceAll(instruction.trim(), ' '));
  const right = wordsOf(graded.reference);
  const either = things.filter((thing) => words.has(thing) || right.has(thing));
  const both = either.filter((thing) => words.has(thing) && right.has(thing));
  const score = either.length === 0 ? 0 : (MAX_SCORE * both.length) / either.length;
  const named = things.filter((thing) => words.has(thing)).length;
  return { form: 'list', scores: [score], reasoning: `It names ${named} of them, ${both.length} as it should.` };
}
