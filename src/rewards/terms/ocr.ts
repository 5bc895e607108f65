/** How well the text in an image agrees with the text that its instruction quotes. The formulas are in ../ocr/similarity.ts. */
import { z } from 'zod';
import { operation, positiveInteger, result } from '../../core/schema/mark.js';
import type { OcrSettings } from './ocr/engine.js';
import { type TermServices, termKind } from './term.js';

/** The fields of every term that reads text. Terms with the same values share one engine. */
export const ocrFields = {
  backend: result(
    'The text reader: tesseract (needs no model), or the networks of a PaddleOCR export.',
    z.enum(['tesseract', 'paddle']).default('tesseract'),
  ),
  language: result(
    "Tesseract's language, or several joined by +. Each comes from language_data or from the package @tesseract.js-data/<language>; the package for eng is installed.",
    z
      .string()
      .regex(/^[A-Za-z0-9_]+(\+[A-Za-z0-9_]+)*$/, 'names of languages joined by +, such as eng+deu')
      .default('eng'),
  ),
  language_data: operation(
    'Folder with <language>.traineddata or .traineddata.gz for tesseract. null takes it from the package.',
    z.string().min(1).nullable().default(null),
  ),
  ocr_model: result(
    'Folder of a PaddleOCR export: det.onnx, rec.onnx and dict.txt, or the names that exports give them. A recognizer whose metadata contains its characters needs no dictionary.',
    z.string().min(1).nullable().default(null),
  ),
  workers: operation('Threads that read text.', positiveInteger.default(2)),
};

export type OcrFields = z.output<z.ZodObject<typeof ocrFields>>;

/** A field that conflicts with the chosen backend, and the message about it. Null without a conflict. */
export function ocrConflict(settings: OcrFields): { readonly field: string; readonly message: string } | null {
  const { backend, ocr_model: model, language_data: data } = settings;
  if (backend === 'paddle' && model === null) {
    return {
      field: 'ocr_model',
      message: "found null; backend 'paddle' needs the folder of an export with det.onnx, rec.onnx and dict.txt",
    };
  }
  if (backend === 'tesseract' && model !== null) {
    return {
      field: 'ocr_model',
      message: `found '${model}', but backend 'tesseract' has no such model; allowed: null`,
    };
  }
  if (backend === 'paddle' && data !== null) {
    return {
      field: 'language_data',
      message: `found '${data}', but backend 'paddle' has its own dictionary; allowed: null`,
    };
  }
  return null;
}

export function toOcrSettings(settings: OcrFields, services: TermServices): OcrSettings {
  const { backend, language, language_data: languageData, workers, ocr_model: model } = settings;
  return { backend, language, languageData, workers, model: model === null ? null : services.modelFolder(model) };
}

export const ocr = termKind({
  name: 'ocr',
  description:
    'Similarity of the text in the image to the text that the instruction puts in double quotes, times the confidence of the reading, from 0 to 1.',
  fields: ocrFields,
  reads: 'image',
  needs: { judge: false, truth: false, source: false },
  readsQuoted: () => true,
  conflict: ocrConflict,
  create: async (settings, services) => (await import('./ocr/term.js')).ocrTerm(toOcrSettings(settings, services)),
});

export const ocrConfidence = termKind({
  name: 'ocr_confidence',
  description: 'Confidence of reading any text in the image, from 0 (no text) to 1.',
  fields: ocrFields,
  reads: 'image',
  needs: { judge: false, truth: false, source: false },
  conflict: ocrConflict,
  create: async (settings, services) =>
    (await import('./ocr/term.js')).ocrConfidenceTerm(toOcrSettings(settings, services)),
});
