/** Rows that show pictures or videos: in a column of their own, or by a placeholder in the words. */
import { inBrief } from '../core/text.js';
import type { Row } from './types.js';

/** Columns of datasets about pictures, as ms-swift, verl, LLaVA, VLM-R1 and Hugging Face's image folders call them. */
const COLUMNS: ReadonlySet<string> = new Set(['image', 'images', 'video', 'videos', 'audio', 'audios']);

/** A placeholder at the beginning or the end of a line, or a token of Qwen's: within a line, `<image>` may be a word about HTML. */
const PLACEHOLDER =
  /^\s*<(?:image|video|audio)>|<(?:image|video|audio)>\s*$|<\|(?:vision_start|image_pad|video_pad|image|audio_pad)\|>/m;

/** What a row shows besides words, for a message; null if it shows nothing else. */
export function shownBeside(row: Row, words: string): string | null {
  const column = Object.entries(row).find(
    ([name, value]) => holdsPictures(value) || (COLUMNS.has(name) && namesFiles(value)),
  );
  if (column !== undefined) return `pictures or videos in column '${column[0]}' (${inBrief(column[1])})`;
  const placeholder = PLACEHOLDER.exec(words)?.[0].trim();
  return placeholder === undefined ? null : `a place for a picture or a video, ${placeholder}`;
}

/** Whether a value is a picture as Hugging Face's datasets write it, {bytes, path}, or a list of them. */
export function holdsPictures(value: unknown): boolean {
  if (Array.isArray(value)) return value.length > 0 && value.every(holdsPictures);
  if (value instanceof Uint8Array) return true;
  return typeof value === 'object' && value !== null && 'bytes' in value && value.bytes !== null;
}

/** Whether a value can become words: it holds neither bytes nor a number that is not finite, such as the NaN that pandas writes for a missing one. */
export function isSayable(value: unknown): boolean {
  if (typeof value === 'number') return Number.isFinite(value);
  if (value instanceof Uint8Array) return false;
  return typeof value !== 'object' || value === null || Object.values(value).every(isSayable);
}

function namesFiles(value: unknown): boolean {
  if (Array.isArray(value)) return value.some(namesFiles);
  return (typeof value === 'string' && value !== '') || (typeof value === 'object' && value !== null);
}
