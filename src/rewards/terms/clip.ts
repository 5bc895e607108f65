/** How well an image fits the user's own prompt, by CLIP or SigLIP. */
import { z } from 'zod';
import { EngineError } from '../../core/errors.js';
import { result } from '../../core/schema/mark.js';
import pLimit from 'p-limit';
import { termKind } from './term.js';
import type { JudgeItem, Outcome, UnscoredReason } from '../score/types.js';

const modelReference = z.union([
  z.string().min(1),
  z.strictObject({ hub: z.string().regex(/^[\w.-]+\/[\w.-]+$/), revision: z.string().min(1).default('main') }),
  z.strictObject({ run: z.string().min(1), config: z.string().min(1) }),
]);

/** While one image is in the model, the next one is prepared. */
const AT_ONCE = 2;

function unscored(reason: UnscoredReason, detail: string): Outcome {
  return { kind: 'unscored', reason, detail, parts: {} };
}

/** The score of a cosine. `value` is on the scale's own range, `normalised` in [0, 1]. */
interface CosineScore {
  readonly value: number;
  readonly normalised: number;
  /** Whether the scale gives neighboring cosines the same score, so that it cannot distinguish them here. */
  readonly atLimit: boolean;
}

function unitScore(cosine: number): CosineScore {
  const value = Math.min(1, Math.max(cosine, 0));
  return { value, normalised: value, atLimit: cosine <= 0 };
}

/**
 * `half` is (cosine + 1) / 2, as in grpodiffimprove (https://github.com/wkdgnsgo/grpodiffimprove, `models/clip_reward.py`). `clipscore` is
 * CLIPScore, min(1, 2.5 max(cosine, 0)) (Hessel and others 2021, arXiv 2104.08718), with max(cosine, 0) as its value. `cosine` is
 * max(cosine, 0).
 */
export const clipScales = {
  half: (cosine) => ({ ...unitScore((cosine + 1) / 2), atLimit: false }),
  clipscore: (cosine) => ({
    value: Math.max(cosine, 0),
    normalised: clipScore(cosine),
    atLimit: cosine <= 0 || clipScore(cosine) === 1,
  }),
  cosine: unitScore,
} satisfies Record<string, (cosine: number) => CosineScore>;

/** CLIPScore, at most 1: real pairs lie at cosines of 0.15 to 0.40. */
export function clipScore(cosine: number): number {
  return Math.min(1, 2.5 * Math.max(cosine, 0));
}

/** The parts are `clip/cosine`, and `clip/at_limit`: 1 if the scale clipped the cosine, else 0. */
export const clip = termKind({
  name: 'clip',
  description:
    "CLIP or SigLIP similarity of the image to the user's own prompt (never to a rewritten one), by `scale`.",
  fields: {
    model: result(
      'A CLIP or SigLIP model in the Hugging Face layout: config.json, preprocessor_config.json, tokenizer.json, and weights as safetensors.',
      modelReference.default({ hub: 'openai/clip-vit-base-patch32', revision: 'main' }),
      { allowed: 'a local path, {hub, revision} or {run, config}' },
    ),
    scale: result(
      "Value of a cosine from 0 to 1: 'half' is (cosine + 1) / 2, which distinguishes all cosines; 'clipscore' is min(1, 2.5 max(cosine, 0)), which does not distinguish cosines above 0.4; 'cosine' is max(cosine, 0).",
      z.enum(['half', 'clipscore', 'cosine']).default('half'),
    ),
  },
  reads: 'image',
  needs: { judge: false, truth: false, source: false },
  nameOf: ({ scale }) => (scale === 'half' ? 'clip' : `clip_${scale}`),
  async create({ model: reference, scale }, services) {
    const { EmbeddingModel, cosine } = await import('./clip/model.js');
    const model = await EmbeddingModel.open(services.modelFolder(reference), services.session);
    const turns = pLimit(AT_ONCE);
    const inFlight = new Set<Promise<Outcome>>();
    let closing: Promise<void> | null = null;
    let wasReported = false;
    const tellOfCut = async ({ key, instruction }: JudgeItem): Promise<void> => {
      if (wasReported) return;
      const { most, unread } = await model.reads(instruction);
      // Another item may have been reported meanwhile.
      if (unread === 0 || wasReported) return;
      wasReported = true;
      services.onNote?.(
        `clip reads ${most} tokens of a prompt and ignores the rest: it ignores the last ${unread} tokens of the prompt of ${key} (reported once)`,
      );
    };

    return {
      name: 'clip',
      async score(item, signal) {
        const { edited } = item;
        if (edited === null) return { kind: 'zero_by_rule', reason: 'undecodable', parts: {} };
        const outcome = turns(async (): Promise<Outcome> => {
          if (signal?.aborted === true) return unscored('aborted', `${item.key}: called off`);
          if (closing !== null) return unscored('aborted', `${item.key}: the model is closed`);
          await tellOfCut(item);
          try {
            const text = await model.textEmbedding(item.instruction);
            const found = cosine(await model.imageEmbedding(edited), text);
            if (!Number.isFinite(found)) {
              return unscored('out_of_range', `${item.key}: the model gave no finite cosine`);
            }
            const { value, normalised, atLimit } = clipScales[scale](found);
            const parts = { 'clip/cosine': found, 'clip/at_limit': atLimit ? 1 : 0 };
            return { kind: 'scored', value, normalised, parts };
          } catch (error) {
            if (!(error instanceof EngineError)) throw error;
            return unscored('server_error', `${item.key}: ${error.message}`);
          }
        });
        inFlight.add(outcome);
        return outcome.finally(() => inFlight.delete(outcome));
      },
      close() {
        closing ??= Promise.allSettled(inFlight).then(() => model.close());
        return closing;
      },
    };
  },
});
