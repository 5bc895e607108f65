/** Pictures in prompts of bare words, without a chat template. */
import type { Part } from '../data/conversations.js';
import type { WorldWords } from './open_vocabulary.js';

/** Tokens around a picture, and in its place, as in Qwen's vocabularies. */
export const VISION = {
  start: '<|vision_start|>',
  end: '<|vision_end|>',
  image: '<|image_pad|>',
  video: '<|video_pad|>',
} as const;

/** The parts as one text. */
export function bareWords(parts: readonly Part[]): string {
  return parts
    .map((part) => (part.type === 'text' ? part.text : `${VISION.start}${VISION[part.type]}${VISION.end}`))
    .join('');
}

/** Words of the tiny world, for a model with random weights that sees. */
export function seenWords(
  words: readonly string[],
  { policy }: { readonly policy: { readonly assistant_prefill: string } },
): WorldWords {
  return { words, texts: [policy.assistant_prefill], special: Object.values(VISION) };
}
