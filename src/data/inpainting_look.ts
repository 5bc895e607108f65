/** A look at inpainting samples before a run, without decoding their pictures: whether they are there, their sizes, and most masks. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { DataError } from '../core/errors.js';
import { decodePlainPng } from '../core/png.js';
import { binaryMask, requireOneSize } from './inpainting.js';
import { headerSize, sizeText, type PictureSize } from './pictures.js';
import { MEMBERS, memberName, readSelfBench, type Member, type SelfBenchList } from './self_bench.js';

/** Masks are looked into until so many of their pixels were seen; `editrl data check` looks into all. */
const MOST_MASK_PIXELS = 2 ** 26;

/**
 * All that is wrong with the samples of a list as far as the headers of their files tell, and with their masks.
 * @param side both sides of every picture are to be multiples of it
 * @param resolution of the squares that pictures are brought to; null: they are taken as they are
 */
export function lookAtSamples(
  { folder, lines }: Pick<SelfBenchList, 'folder' | 'lines'>,
  side = 1,
  resolution: number | null = null,
): DataError[] {
  let pixels = 0;
  if (resolution !== null && resolution % side !== 0) {
    const next = `Set it to a multiple of ${side}.`;
    return [
      new DataError(`found ${resolution}: no whole number of patches of ${side}`, { where: 'data.resolution', next }),
    ];
  }
  return lines.flatMap(({ number, stem }) => {
    const path = (member: Member): string => join(folder, memberName(stem, member));
    const problems: DataError[] = [];
    const sizes = Object.fromEntries(
      MEMBERS.map((member) => [member, problemOr(problems, () => headerSize(path(member)))]),
    ) as Record<Member, PictureSize | null>;
    const { source, mask, ref } = sizes;
    if (resolution === null && source !== null && mask !== null && ref !== null) {
      problemOr(problems, () => requireOneSize({ source, mask, ref }, number, path('source')));
      problemOr(problems, () => requireWhole(ref, side, path('ref')));
    }
    if (mask !== null && pixels < MOST_MASK_PIXELS) {
      pixels += mask.width * mask.height;
      problemOr(problems, () => {
        const decoded = decodePlainPng(readFileSync(path('mask')), MOST_MASK_PIXELS);
        if (decoded !== null) binaryMask(decoded, path('mask'));
      });
    }
    return problems;
  });
}

/** The largest of the wanted pictures of a dataset, as far as headers tell; null where none can be read. */
export function largestPicture(path: string): PictureSize | null {
  const problems: DataError[] = [];
  const list = problemOr(problems, () => readSelfBench(path));
  const sizes = (list?.lines ?? []).flatMap(
    ({ stem }) => problemOr(problems, () => headerSize(join(list?.folder ?? '', memberName(stem, 'ref')))) ?? [],
  );
  return sizes.reduce<PictureSize | null>((most, one) => (most !== null && area(most) >= area(one) ? most : one), null);
}

const area = ({ width, height }: PictureSize): number => width * height;

function problemOr<T>(problems: DataError[], look: () => T): T | null {
  try {
    return look();
  } catch (error) {
    if (!(error instanceof DataError)) throw error;
    problems.push(error);
    return null;
  }
}

/** Raises DataError for sides that are no whole number of patches. */
export function requireWhole(size: PictureSize, side: number, where: string): void {
  if (size.width % side === 0 && size.height % side === 0) return;
  throw new DataError(`a picture of ${sizeText(size)} pixels is no whole number of patches of ${side}`, {
    where,
    next: `Bring the pictures to sides that are multiples of ${side}.`,
  });
}
