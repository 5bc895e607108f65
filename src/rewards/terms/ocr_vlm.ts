/**
 * Legible text and a good picture at once: `ocr_weight * ocr_confidence + vlm_weight * vlm_score`. Either alone is easily hacked: text
 * without a picture, or a picture without text.
 */
import { ConfigError } from '../../core/errors.js';
import { nonNegative, result } from '../../schema/mark.js';
import type { Term } from './term.js';
import { termKind } from './term.js';
import type { JudgeItem, Outcome, ScoreOptions } from '../score/types.js';
import { alignQuality } from './align_quality.js';
import { confidenceField, ocrConflict, ocrFields, toOcrSettings } from './ocr.js';

/** Both outcomes as one. Zero by rule goes before unscored: no answer of the judge could change it. */
function combine(ocr: Outcome, vlm: Outcome, ocrWeight: number, vlmWeight: number): Outcome {
  const zero = [ocr, vlm].find(({ kind }) => kind === 'zero_by_rule');
  if (zero !== undefined) return { ...zero, parts: {} };
  const parts = {
    ...(ocr.kind === 'scored' ? { 'ocr_vlm/ocr_confidence': ocr.normalised } : {}),
    ...(vlm.kind === 'scored' ? { 'ocr_vlm/vlm_score': vlm.normalised } : {}),
  };
  if (ocr.kind !== 'scored') return { ...ocr, parts };
  if (vlm.kind !== 'scored') return { ...vlm, parts };
  // Weights add up to 1 but for their last digits.
  const value = Math.min(1, ocrWeight * ocr.normalised + vlmWeight * vlm.normalised);
  return { kind: 'scored', value, normalised: value, parts: { ...parts, 'ocr_vlm/combined_score': value } };
}

function weightProblem(ocrWeight: number, vlmWeight: number): string | null {
  if (Math.abs(ocrWeight + vlmWeight - 1) <= 1e-6) return null;
  return `found ${vlmWeight} with ocr_weight ${ocrWeight}; allowed: two weights that add up to 1`;
}

export const ocrVlm = termKind({
  name: 'ocr_vlm',
  description:
    "Weighted sum of the confidence with which text is read (ocr_confidence) and of a VLM's grade for alignment and quality (as align_quality, from 0 to 1).",
  fields: {
    ...ocrFields,
    ...confidenceField('mean'),
    ocr_weight: result('Weight of ocr_confidence; it and vlm_weight add up to 1.', nonNegative.default(0.5)),
    vlm_weight: result("Weight of the VLM's score.", nonNegative.default(0.5)),
    ...alignQuality.fields,
  },
  reads: 'image',
  needs: { judge: true, truth: false, source: false },
  judgesSeveral: true,
  ownJudge: (settings) => alignQuality.ownJudge?.(settings) ?? false,
  conflict(settings) {
    const message = weightProblem(settings.ocr_weight, settings.vlm_weight);
    if (message !== null) return { field: 'vlm_weight', message };
    return ocrConflict(settings) ?? alignQuality.conflict?.(settings) ?? null;
  },
  async create(settings, services): Promise<Term> {
    const { ocr_weight: ocrWeight, vlm_weight: vlmWeight } = settings;
    const problem = weightProblem(ocrWeight, vlmWeight);
    if (problem !== null) throw new ConfigError(problem, { where: 'reward.terms, ocr_vlm.vlm_weight' });
    const { ocrConfidenceTerm } = await import('./ocr/term.js');
    const vlm = await alignQuality.create(settings, services);
    const ocr = await ocrConfidenceTerm(toOcrSettings(settings, services), settings.confidence).catch(
      async (error: unknown) => {
        await vlm.close();
        throw error;
      },
    );

    async function score(item: JudgeItem, signal?: AbortSignal, options?: ScoreOptions): Promise<Outcome> {
      const [read, judged] = await Promise.all([ocr.score(item, signal, options), vlm.score(item, signal, options)]);
      return combine(read, judged, ocrWeight, vlmWeight);
    }

    return {
      name: 'ocr_vlm',
      score,
      ...(vlm.untilReady === undefined ? {} : { untilReady: vlm.untilReady }),
      ...(vlm.canary === undefined ? {} : { canary: vlm.canary }),
      close: async () => {
        await Promise.all([ocr.close(), vlm.close()]);
      },
    };
  },
});
