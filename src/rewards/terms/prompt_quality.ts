/** Five signs that a prompt contains more detail than its original, as a number for records, not for training. */
import { termKind } from './term.js';
import { wordsOf } from './word_overlap.js';
import type { Outcome } from '../score/types.js';

/** Words that people add to prompts for good images. Some are matched as whole phrases. */
const QUALITY = [
  'high quality',
  'best quality',
  'detailed',
  'sharp',
  'realistic',
  'photorealistic',
  'professional',
  'masterpiece',
  'cinematic',
  'beautiful',
  'stunning',
  'lighting',
  'resolution',
  '4k',
  '8k',
  'hd',
];

/** Words that carry no keyword of a prompt. */
const FILLING = new Set([
  ...['a', 'an', 'the', 'of', 'in', 'on', 'at', 'with', 'and', 'or', 'to', 'for', 'from', 'by', 'as'],
  ...['is', 'are', 'its', 'that', 'this', 'down', 'up'],
]);

const NEW_WORDS = 5;
const MIN_WORDS = 5;

/** The five numbers, each from 0 to 1. */
export interface PromptQuality {
  readonly longer: number;
  readonly keeps: number;
  readonly adds: number;
  readonly quality: number;
  readonly form: number;
}

/**
 * Longer than the original (half a point if as long), the share of the original's keywords that it keeps, how many of five words it adds,
 * whether it mentions quality, and how many of five words it has.
 */
export function promptQuality(original: string, rewrite: string): PromptQuality {
  const [before, after] = [new Set(wordsOf(original)), new Set(wordsOf(rewrite))];
  const keywords = [...before].filter((word) => !FILLING.has(word));
  const kept = keywords.filter((word) => after.has(word)).length;
  const added = [...after].filter((word) => !before.has(word)).length;
  const [was, is] = [original.trim().length, rewrite.trim().length];
  const spoken = ` ${[...(rewrite.toLowerCase().match(/[\p{L}\p{N}]+/gu) ?? [])].join(' ')} `;
  return {
    longer: is > was ? 1 : is === was ? 0.5 : 0,
    keeps: keywords.length === 0 ? 1 : kept / keywords.length,
    adds: Math.min(1, added / NEW_WORDS),
    quality: QUALITY.some((words) => spoken.includes(` ${words} `)) ? 1 : 0,
    form: Math.min(1, after.size / MIN_WORDS),
  };
}

export const promptQualityTerm = termKind({
  name: 'prompt_quality',
  description:
    'Five points of a rewritten prompt: it is longer than the original, keeps its keywords, adds at least five words, mentions quality, and has at least five words. Only for also_compute: it is recorded and never used for training.',
  fields: {},
  most: 5,
  reads: 'words',
  recordedOnly: true,
  needs: { judge: false, truth: false, source: false },
  create: async () => ({
    name: 'prompt_quality',
    async score({ instruction, answer = '' }): Promise<Outcome> {
      const points = promptQuality(instruction, answer);
      const named = Object.entries(points) as [keyof PromptQuality, number][];
      const value = named.reduce((sum, [, point]) => sum + point, 0);
      const parts: Record<string, number> = { 'prompt_quality/points': value };
      for (const [name, point] of named) parts[`prompt_quality/${name}`] = point;
      return { kind: 'scored', value, normalised: value / named.length, parts };
    },
    close: async () => {},
  }),
});
