/** The policy's thoughts before it answers in words. */
import { z } from 'zod';

const words = z.string().min(1);

/** The tags around it; null if thoughts are not distinguished. */
export const thinkingTags = z.strictObject({ open: words, close: words }).nullable();
export type ThinkingTags = z.output<typeof thinkingTags>;
