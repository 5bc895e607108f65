/** A vision-language model whose weights were all trained on text alone, as it is exported. */
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { exportMerged } from '../../../src/models/adapters/export.js';
import { type TokenFormat, unrestricted } from '../../../src/models/tokenizer/format.js';
import { loadPolicy } from '../../../src/train/policies/tokens/load.js';
import { writeCheckpoint } from '../../support/checkpoint.js';
import { lesson, tokenPolicy } from './small_lesson.js';

export const nets = join(import.meta.dirname, '../../compute/nets');
export const format: TokenFormat = {
  ...{ size: 61, secondPart: null, ends: new Set<number>(), tokenizerFiles: {} },
  start: () => unrestricted,
};

/** Small models that read images, by their folders below `nets`. */
export const visionModels = [
  'vision/fixtures/qwen2_5_vl',
  'vision/fixtures/qwen3_vl',
  'vision/fixtures/smolvlm',
  'decoder/fixtures/gemma3_whole',
  'decoder/fixtures/mistral3',
] as const;

/** Trains all weights of the text model of `base` by one step, and exports the model. Returns its folders. */
export async function exportedTextRun(base: string, folder: string): Promise<{ checkpoint: string; out: string }> {
  const policy = tokenPolicy(loadPolicy(base, format), { keepReference: false });
  await policy.learn([lesson], { policy: 'reinforce', kl: null });
  await policy.step(0.05);
  const checkpoint = writeCheckpoint(join(folder, 'checkpoint'), await policy.files());
  await policy.dispose();
  const out = join(folder, 'merged');
  mkdirSync(out);
  exportMerged(checkpoint, out, { dtype: 'float32' });
  return { checkpoint, out };
}
