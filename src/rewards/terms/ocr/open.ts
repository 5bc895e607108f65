/** Opens engines, shared by equal settings: threads and models are too heavy to hold twice. */
import { ConfigError } from '../../../core/errors.js';
import type { OcrEngine, OcrSettings } from './engine.js';
import { openPaddle } from './paddle/engine.js';
import { openTesseract } from './tesseract.js';

interface Shared {
  readonly engine: Promise<OcrEngine>;
  users: number;
}

const shared = new Map<string, Shared>();

const backends: Readonly<Record<OcrSettings['backend'], (settings: OcrSettings) => Promise<OcrEngine>>> = {
  tesseract: openTesseract,
  paddle: ({ model, workers }) => {
    if (model !== null) return openPaddle({ folder: model, workers });
    throw new ConfigError("backend 'paddle' needs the folder of a PaddleOCR export", {
      where: 'ocr_model',
      next: "Set ocr_model to a folder with det.onnx, rec.onnx and dict.txt, or backend to 'tesseract'.",
    });
  },
};

/**
 * The engine of these settings, opened when the first one asks; it closes when the last one that borrowed it closes. Raises ConfigError
 * for settings that cannot work on this machine, EngineError where the engine does not start.
 */
export async function borrowEngine(settings: OcrSettings): Promise<OcrEngine> {
  const { backend, language, languageData, workers, model } = settings;
  const key = JSON.stringify([backend, language, languageData, workers, model]);
  const entry = shared.get(key) ?? { engine: open(settings), users: 0 };
  shared.set(key, entry);
  entry.users++;
  let returned = false;
  const giveBack = async (): Promise<void> => {
    if (returned) return;
    returned = true;
    entry.users--;
    if (entry.users > 0) return;
    shared.delete(key);
    await (await entry.engine).close();
  };
  try {
    const engine = await entry.engine;
    return { read: (image, signal) => engine.read(image, signal), close: giveBack };
  } catch (error) {
    if (shared.get(key) === entry) shared.delete(key);
    throw error;
  }
}

async function open(settings: OcrSettings): Promise<OcrEngine> {
  return backends[settings.backend](settings);
}
