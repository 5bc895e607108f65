import { expect, it, vi } from 'vitest';
import { z } from 'zod';
import type { OcrEngine } from '../../../src/rewards/terms/ocr/engine.js';
import * as tesseract from '../../../src/rewards/terms/ocr/tesseract.js';
import { ocrVlm } from '../../../src/rewards/terms/ocr_vlm.js';
import { testServices } from './term_services.js';

vi.mock('../../../src/rewards/terms/ocr/tesseract.js', { spy: true });

it('ocr_vlm waits for the judge of its own, as align_quality does', async () => {
  const engine: OcrEngine = { read: async () => ({ lines: [] }), close: async () => undefined };
  vi.spyOn(tesseract, 'openTesseract').mockResolvedValue(engine);
  const fields = { endpoint: 'http://127.0.0.1:9', model: 'm' };
  const term = await ocrVlm.create(z.strictObject(ocrVlm.fields).parse(fields), testServices());
  try {
    await expect(term.untilReady?.({ maxWaitS: 0 })).rejects.toThrow(/the judge of align_quality is not ready/);
  } finally {
    await term.close();
  }
});
