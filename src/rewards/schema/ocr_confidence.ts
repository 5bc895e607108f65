/** How the confidences of several lines that were read become one, for the schema; `terms/ocr/similarity.ts` computes it. */
export const CONFIDENCES = ['by_length', 'mean'] as const;
export type ConfidenceRule = (typeof CONFIDENCES)[number];
