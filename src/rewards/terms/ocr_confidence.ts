/** How legible the text in an image is, whatever it says. The formula is in ../ocr/similarity.ts. */
import { termKind } from './term.js';
import { confidenceField, ocrConflict, ocrFields, toOcrSettings } from './ocr.js';

export const ocrConfidence = termKind({
  name: 'ocr_confidence',
  description: 'Confidence with which text is read from the image, whatever it says; from 0 (nothing is read) to 1.',
  fields: { ...ocrFields, ...confidenceField('mean') },
  reads: 'image',
  needs: { judge: false, truth: false, source: false },
  conflict: ocrConflict,
  create: async (settings, services) =>
    (await import('./ocr/term.js')).ocrConfidenceTerm(toOcrSettings(settings, services), settings.confidence),
});
