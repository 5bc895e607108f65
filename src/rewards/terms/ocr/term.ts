/** The common part of all terms that read text: one reading of the artifact, and the outcome if there is none. */
import { EngineError, ConfigError } from '../../../core/errors.js';
import type { Term } from '../term.js';
import type { JudgeItem, Outcome, ScoreParts } from '../../score/types.js';
import type { OcrLine, OcrSettings, OcrEngine } from './engine.js';
import { readRegion } from './enlarge.js';
import { joinLines, meanConfidence, similarity, targetOf, weightedConfidence } from './similarity.js';
import { openPaddle } from './paddle/engine.js';
import { openTesseract } from './tesseract.js';

/** A value in [0, 1] and its parts. */
export interface ReadingScore {
  readonly value: number;
  readonly parts: ScoreParts;
}

/** Prepares an item before its image is read. Returns a function that scores the lines. Raises DataError for the dataset's faults. */
type Scorer = (item: JudgeItem) => (lines: readonly OcrLine[]) => ReadingScore;

/**
 * Similarity to the quoted text of the instruction times confidence. A prompt that quotes no text is a fault of the dataset, found at its
 * first item: DataError, as for every other reward whose comparison is missing.
 */
const scoreText: Scorer = (item) => {
  const target = targetOf(item.instruction, item.key);
  return (lines) => {
    const [similar, confidence] = [similarity(target, joinLines(lines)), weightedConfidence(lines)];
    return { value: similar * confidence, parts: { 'ocr/similarity': similar, 'ocr/confidence': confidence } };
  };
};

/** The confidence of the reading, without a text to compare with. 0 if nothing is read. */
const scoreConfidence: Scorer = () => (lines) => {
  const value = meanConfidence(lines);
  return { value, parts: { 'ocr_confidence/confidence': value } };
};

async function readingTerm(name: string, settings: OcrSettings, scorer: Scorer): Promise<Term> {
  const engine = await borrowEngine(settings);

  async function score(item: JudgeItem, signal?: AbortSignal): Promise<Outcome> {
    const scoreLines = scorer(item);
    if (item.edited === null) return { kind: 'zero_by_rule', reason: 'undecodable', parts: {} };
    try {
      const { lines } = await engine.read(readRegion(item.edited, item.mask), signal);
      const { value, parts } = scoreLines(lines);
      return { kind: 'scored', value, normalised: value, parts };
    } catch (error) {
      if (signal?.aborted === true) return unscored(item, 'aborted', 'canceled while its text was read');
      if (error instanceof EngineError) return unscored(item, 'server_error', error.message);
      throw error;
    }
  }

  return { name, score, close: () => engine.close() };
}

function unscored(item: JudgeItem, reason: 'aborted' | 'server_error', detail: string): Outcome {
  return { kind: 'unscored', reason, detail: `${item.key}: ${detail}`, parts: {} };
}

/** The term `ocr`. Raises ConfigError and the EngineErrors of `borrowEngine`. */
export function ocrTerm(settings: OcrSettings): Promise<Term> {
  return readingTerm('ocr', settings, scoreText);
}

/** The term `ocr_confidence`. Raises ConfigError and the EngineErrors of `borrowEngine`. */
export function ocrConfidenceTerm(settings: OcrSettings): Promise<Term> {
  return readingTerm('ocr_confidence', settings, scoreConfidence);
}

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
 * The engine of these settings, opened for its first user and closed after its last. Raises ConfigError for settings that cannot work on
 * this machine, EngineError if the engine does not start.
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
