/**
 * Finds held-out samples that are also in the training data: the same words and, if a sample has an image, the same
 * pixels.
 */
import { setImmediate } from 'node:timers/promises';
import { decodeImage, sha256 } from '../core/images/image.js';

/** A sample, reduced to the data that identify it. */
export interface ComparedSample {
  readonly id: string;
  /** The words. Empty for a lone image. */
  readonly words: string;
  /** A digest of the image, requested only if the words are the same. Null without an image. */
  readonly image: (() => Promise<string>) | null;
}

/** A dataset whose samples are compared. */
export interface ComparedSet {
  readonly name: string;
  /** Number of compared samples, from the first one. */
  readonly length: number;
  /** Raises DataError for a sample that cannot be read. */
  at(index: number): ComparedSample;
}

/** The limits of the comparison. */
export interface OverlapLimits {
  /** Maximum number of training samples, evenly spread. */
  readonly samples: number;
  /** Maximum number of training images. */
  readonly images: number;
}

export interface Overlap {
  /** For each held-out set, the number of its samples that are also in the training data. */
  readonly found: readonly number[];
  /** One such sample and the equal training sample. Null if there is none. */
  readonly example: { readonly heldOut: string; readonly training: string } | null;
  /** Numbers of compared and of all training samples. */
  readonly samples: { readonly compared: number; readonly all: number };
  /** Training images that were not compared, because there were too many. */
  readonly imagesLeft: number;
}

interface HeldOutSample extends ComparedSample {
  readonly set: number;
  found: boolean;
  digest: Promise<string> | null;
}

/** Other work gets its turn after this number of samples. */
const TURN = 64;

/** Raises DataError for a sample or an image that cannot be read. */
export async function findOverlap(
  heldOut: readonly ComparedSet[],
  training: readonly ComparedSet[],
  limits: OverlapLimits,
): Promise<Overlap> {
  const byWords = new Map<string, HeldOutSample[]>();
  for (const [set, source] of heldOut.entries()) {
    for (let index = 0; index < source.length; index++) {
      const sample: HeldOutSample = { ...source.at(index), set, found: false, digest: null };
      const key = sample.words.trim();
      const known = byWords.get(key);
      if (known === undefined) byWords.set(key, [sample]);
      else known.push(sample);
      if (index % TURN === 0) await setImmediate();
    }
  }
  const all = training.reduce((sum, { length }) => sum + length, 0);
  const compared = byWords.size === 0 ? 0 : Math.min(all, limits.samples);
  let [images, imagesLeft, example] = [0, 0, null as Overlap['example']];
  for (let i = 0; i < compared; i++) {
    if (i % TURN === 0) await setImmediate();
    const { source, index } = placeOf(training, Math.floor((i * all) / compared));
    const sample = source.at(index);
    const like = (byWords.get(sample.words.trim()) ?? []).filter(
      ({ found, image }) => !found && (image === null) === (sample.image === null),
    );
    if (like.length === 0) continue;
    if (sample.image !== null && images === limits.images) {
      imagesLeft += 1;
      continue;
    }
    if (sample.image !== null) images += 1;
    const shown = (await sample.image?.()) ?? null;
    for (const one of like) {
      if (shown !== null && (await (one.digest ??= one.image?.() ?? null)) !== shown) continue;
      one.found = true;
      example ??= { heldOut: `${one.id} of ${heldOut[one.set].name}`, training: `${sample.id} of ${source.name}` };
    }
  }
  const samples = [...byWords.values()].flat();
  const found = heldOut.map((_, set) => samples.filter((one) => one.set === set && one.found).length);
  return { found, example, samples: { compared, all }, imagesLeft };
}

/** The set of the sample with this number over all sets, and its number there. */
function placeOf(
  sets: readonly ComparedSet[],
  number: number,
): { readonly source: ComparedSet; readonly index: number } {
  let index = number;
  let at = 0;
  while (index >= sets[at].length) index -= sets[at++].length;
  return { source: sets[at], index };
}

/**
 * A digest of an image's pixels, independent of the format of its file. Raises DataError, naming `where`, for bytes
 * that are not an image.
 */
export async function pixelDigest(bytes: Uint8Array, where: string): Promise<string> {
  const { width, height, data } = await decodeImage(bytes, where);
  return sha256(`${width}x${height} ${sha256(data)}`);
}

/** A run's message about the found samples, as one sentence. Null without any. */
export function describeOverlap({ found, example, samples, imagesLeft }: Overlap, heldOut: number): string | null {
  const count = found.reduce((sum, one) => sum + one, 0);
  const cut = [
    ...(samples.compared < samples.all
      ? [`${samples.compared} of ${samples.all} training samples were compared, spread evenly`]
      : []),
    ...(imagesLeft > 0 ? [`${imagesLeft} training images with the same words were not compared`] : []),
  ].join('; ');
  if (example === null) {
    return cut === '' || heldOut === 0
      ? null
      : `no held-out sample was found in the training data, but the comparison is incomplete: ${cut}`;
  }
  return `${count} of ${heldOut} held-out samples are also in the training data, so held-out scores overestimate generalization: ${example.heldOut} is ${example.training}${cut === '' ? '' : ` (${cut})`}`;
}
