/** How well an image fits the user's own prompt, by CLIP. */
import { z } from 'zod';
import { ConfigError, EngineError } from '../../core/errors.js';
import { result } from '../../schema/mark.js';
import pLimit from 'p-limit';
import { termKind, type TermServices } from './term.js';
import type { JudgeItem, Outcome, UnscoredReason } from '../score/types.js';

const modelReference = z.union([
  z.string().min(1),
  z.strictObject({ hub: z.string().regex(/^[\w.-]+\/[\w.-]+$/), revision: z.string().min(1).default('main') }),
  z.strictObject({ run: z.string().min(1), config: z.string().min(1) }),
]);
type ModelReference = z.output<typeof modelReference>;

/** While one image is in the model, the next is made ready. */
const AT_ONCE = 2;

function folderOf(reference: ModelReference, services: TermServices): string {
  try {
    return services.modelFolder(reference);
  } catch (cause) {
    if (typeof reference === 'string' || !('hub' in reference)) throw cause;
    throw new ConfigError(`term clip needs an ONNX export of ${reference.hub} in a local folder`, {
      where: 'reward.terms',
      next: `Run \`optimum-cli export onnx --model ${reference.hub} FOLDER\` (or copy an export from the Hub, such as Xenova/clip-vit-base-patch32), and set the term's model to 'FOLDER'.`,
      cause,
    });
  }
}

function unscored(reason: UnscoredReason, detail: string): Outcome {
  return { kind: 'unscored', reason, detail, parts: {} };
}

/**
 * The value is `max(cosine, 0)` of the two projections, whose cosine is the part `clip/cosine`; normalised it is CLIPScore,
 * `min(1, 2.5 max(cosine, 0))`.
 */
export const clip = termKind({
  name: 'clip',
  description:
    "CLIP similarity of the image to the user's own prompt (never to a rewritten one): min(1, 2.5 max(cosine, 0)).",
  fields: {
    model: result(
      'Folder of a CLIP model in ONNX, in the Hugging Face layout: config.json, preprocessor_config.json, tokenizer.json, and onnx/model.onnx or text_model.onnx with vision_model.onnx.',
      modelReference.default({ hub: 'openai/clip-vit-base-patch32', revision: 'main' }),
      { allowed: 'a local path, {hub, revision} or {run, config}' },
    ),
  },
  reads: 'image',
  needs: { judge: false, truth: false, source: false },
  async create({ model: reference }, services) {
    const folder = folderOf(reference, services);
    const { ClipModel, cosine, clipScore } = await import('./clip/model.js');
    const model = await ClipModel.open(folder, services.session);
    const turns = pLimit(AT_ONCE);
    const underWay = new Set<Promise<Outcome>>();
    let closing: Promise<void> | null = null;
    let told = false;
    const tellOfCut = ({ key, instruction }: JudgeItem): void => {
      if (told) return;
      const { most, unread } = model.reads(instruction);
      if (unread === 0) return;
      told = true;
      services.onNote?.(
        `clip reads ${most} tokens of a prompt, and compares pictures with nothing beyond them: the last ${unread} tokens of the prompt of ${key} are left out (said once)`,
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
          tellOfCut(item);
          try {
            const text = await model.textEmbedding(item.instruction);
            const found = cosine(await model.imageEmbedding(edited), text);
            if (!Number.isFinite(found)) {
              return unscored('out_of_range', `${item.key}: the model gave no finite cosine`);
            }
            const value = Math.max(found, 0);
            return { kind: 'scored', value, normalised: clipScore(found), parts: { 'clip/cosine': found } };
          } catch (error) {
            if (!(error instanceof EngineError)) throw error;
            return unscored('server_error', `${item.key}: ${error.message}`);
          }
        });
        underWay.add(outcome);
        return outcome.finally(() => underWay.delete(outcome));
      },
      close() {
        closing ??= Promise.allSettled(underWay).then(() => model.close());
        return closing;
      },
    };
  },
});
