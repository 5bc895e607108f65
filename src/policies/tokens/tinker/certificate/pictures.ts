/** What a training server makes of pictures: how many tokens, whether they change anything, and whether its sampler sees them as its trainer does. */
import { LengthError, TinkerError } from '../../../../engines/tinker/errors.js';
import type { RgbImage } from '../../../../core/png.js';
import { tokensOf, type Picture } from '../../../../models/pictures/picture.js';
import type { Sequence, Sight } from '../prompts.js';
import { lag, type ByPosition } from './compare.js';
import { finding, measuredFinding, unmeasuredFinding, type Finding } from './findings.js';
import { isWritten, type DrawnAnswer, type Scratch } from './scratch.js';

const ANSWERS = 4;
const LENGTH = 16;
/** Sides of the pictures, in pixels, before they are shown in the sizes of the settings. */
const SIDE = 112;
/** Less than this on average tells nothing of a sampler that does not see. */
const LEAST_WAY = 0.01;

export interface PicturesOptions {
  readonly sight: Sight;
  /** Words of the server's own, which stand behind a picture. */
  readonly openings: readonly (readonly number[])[];
  readonly stop: readonly number[];
  /** Whose log-probabilities the run reads, and are as the trainer's without pictures. */
  readonly reads: { readonly sampler: boolean; readonly base: boolean };
}

export interface PicturesLook {
  readonly findings: readonly Finding[];
  /** Answers to prompts with pictures, and what the trainer tells of all their tokens; empty where it does not see as it has to. */
  readonly answers: readonly DrawnAnswer[];
  readonly trained: readonly ByPosition[];
}

/** Its requests raise EndpointError where the server stays away, or says that it does not carry pictures. */
export async function findingsOfPictures(scratch: Scratch, options: PicturesOptions): Promise<PicturesLook> {
  const { sight, openings, stop, reads } = options;
  const [one, other] = await sight.processor.stills([drawn(redAndBlue), drawn(greenStripes)], 'a drawn picture');
  const shown = openings.map((words) => promptOf(words, one, sight));
  const asked = { count: ANSWERS, maxTokens: LENGTH, stop };
  const found = await unlessMiscounted(async () => {
    const answers = (await scratch.draw(shown, asked)).filter(isWritten);
    return { answers, withOne: await scratch.logProbs(answers) };
  });
  if (found instanceof Error) return miscounted(found, one, sight);
  const { answers, withOne } = found;
  const counted = measuredFinding('picture_tokens', 0, `${countOf(one, sight)} tokens`);
  const withOther = await scratch.logProbs(answers.map((each) => ({ ...each, pictures: [other] })));
  const bare = answers.map((each) => ({ ...each, prompt: withoutPicture(each.prompt, sight), pictures: [] }));
  const without = await scratch.logProbs(bare);
  const [seen, changed, unseen] = [withOne, withOther, without].map((all) =>
    all.map((row, i) => ofAnswer(row, answers[i])),
  );
  const change = Math.min(difference(seen, unseen), difference(seen, changed));
  const effect = measuredFinding('pictures', change, `${answers.length} answers`);
  if (effect.state === 'failed') {
    const rest = unmeasuredFinding('pictures_sampled', 'no picture changes what the trainer tells');
    return { findings: [counted, effect, rest], answers: [], trained: [] };
  }
  const base = reads.base ? await scratch.promptLogProbs(answers) : null;
  const told = {
    sampler: reads.sampler ? answers.map(({ logProbs }) => logProbs) : null,
    'base model': base?.map((row, i) => (row === null ? null : ofAnswer(row, answers[i]))) ?? null,
  };
  const lags = Object.entries(told).flatMap(([who, rows]) => {
    if (rows === null || rows.some((row) => row === null)) return [];
    const places = rows.map((row, i) => ({ found: row ?? [], before: unseen[i], after: seen[i] }));
    const missing = lag(places, LEAST_WAY);
    return missing === null ? [] : [{ who, missing }];
  });
  const [worst] = lags.sort((x, y) => y.missing - x.missing);
  const sampled =
    worst === undefined
      ? unmeasuredFinding('pictures_sampled', 'without pictures, nothing that samples tells what the trainer does')
      : measuredFinding('pictures_sampled', worst.missing, worst.who);
  const sees = sampled.state === 'passed';
  return { findings: [counted, effect, sampled], answers: sees ? answers : [], trained: sees ? withOne : [] };
}

/** What the work comes to, or the error where a picture has another number of tokens. */
async function unlessMiscounted<T>(work: () => Promise<T>): Promise<T | LengthError | TinkerError> {
  try {
    return await work();
  } catch (error) {
    if (error instanceof LengthError || (error instanceof TinkerError && error.kind === 'picture_tokens')) return error;
    throw error;
  }
}

function miscounted(error: LengthError | TinkerError, picture: Picture, sight: Sight): PicturesLook {
  const ours = countOf(picture, sight);
  const more = error instanceof LengthError ? error.found - error.wanted : null;
  const none = { answers: [], trained: [] };
  const sampled = unmeasuredFinding('pictures_sampled', 'the trainer does not see pictures as they are sent');
  if (more === -ours) {
    const counted = unmeasuredFinding('picture_tokens', 'the server makes no tokens of pictures');
    return { findings: [counted, finding('pictures', false, 0, DROPPED), sampled], ...none };
  }
  const counted = finding('picture_tokens', false, more === null ? null : Math.abs(more), error.message);
  return { findings: [counted, unmeasuredFinding('pictures', counted.found), sampled], ...none };
}

const DROPPED = 'the server drops pictures without a word';

function countOf({ grid }: Picture, { processor }: Sight): number {
  return tokensOf(grid, processor.settings.sizes);
}

/** The picture between its marks, and words behind it. */
function promptOf(words: readonly number[], picture: Picture, sight: Sight): { ids: number[]; pictures: Picture[] } {
  const { image_token_id, video_token_id, vision_start_token_id: start, vision_end_token_id: end } = sight.tokens;
  const special = new Set([image_token_id, video_token_id, start, end]);
  const places = Array.from({ length: countOf(picture, sight) }, () => image_token_id);
  // What a random model writes may hold places of its own.
  return { ids: [start, ...places, end, ...words.filter((id) => !special.has(id))], pictures: [picture] };
}

function withoutPicture(prompt: readonly number[], { tokens }: Sight): number[] {
  return prompt.filter((id) => id !== tokens.image_token_id);
}

/** Those at an answer's tokens, of those at all but the first. */
function ofAnswer(row: ByPosition, { answer }: Sequence): number[] {
  return Array.from(row).slice(-answer.length);
}

function difference(rows: readonly (readonly number[])[], others: readonly (readonly number[])[]): number {
  const all = rows.flatMap((row, i) => row.map((one, t) => Math.abs(one - others[i][t])));
  return all.length === 0 ? 0 : all.reduce((sum, one) => sum + one, 0) / all.length;
}

type Colour = readonly [red: number, green: number, blue: number];

function drawn(colourAt: (x: number, y: number) => Colour): RgbImage {
  const data = new Uint8Array(3 * SIDE ** 2);
  for (let y = 0; y < SIDE; y++) for (let x = 0; x < SIDE; x++) data.set(colourAt(x, y), 3 * (y * SIDE + x));
  return { width: SIDE, height: SIDE, data };
}

function redAndBlue(x: number): Colour {
  return x < SIDE / 2 ? [220, 30, 30] : [30, 30, 220];
}

function greenStripes(_x: number, y: number): Colour {
  return Math.floor(y / 14) % 2 === 0 ? [20, 200, 60] : [255, 255, 255];
}
