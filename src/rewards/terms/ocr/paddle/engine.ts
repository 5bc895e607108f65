/** PaddleOCR's two networks on onnxruntime: find the lines of text, then read each. */
import { EngineError } from '../../../../core/errors.js';
import type { RgbImage } from '../../../../core/image.js';
import type { ModelTensor } from '../../../../engines/onnx/model_file.js';
import { ModelFile } from '../../../../engines/onnx/model_file.js';
import type { OcrEngine, OcrLine, OcrReading } from '../engine.js';
import { Turns } from '../turns.js';
import { findBoxes, scaleBox, type Box } from './boxes.js';
import { charactersOf, findPaddleFiles, readDictionary } from './layout.js';
import { detectorInput, lineInput, type NetworkInput } from './pixels.js';

export interface PaddleOptions {
  /** A folder as layout.ts describes it. */
  readonly folder: string;
  /** Threads within the networks. onnxruntime-node runs a network while JavaScript waits, so images are read one after another. */
  readonly workers: number;
}

class PaddleEngine implements OcrEngine {
  readonly #turns = new Turns([{}]);
  readonly #reading = new Set<Promise<unknown>>();
  #closed = false;

  constructor(
    private readonly detector: ModelFile,
    private readonly recogniser: ModelFile,
    private readonly characters: readonly string[],
  ) {}

  async read(image: RgbImage, signal?: AbortSignal): Promise<OcrReading> {
    return this.#turns.take(async () => {
      if (this.#closed) throw new EngineError('paddle: the engine is closed');
      const reading = this.#read(image, signal);
      this.#reading.add(reading);
      try {
        return await reading;
      } finally {
        this.#reading.delete(reading);
      }
    }, signal);
  }

  /** Waits for what is under way: a session that runs cannot be freed. */
  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    await Promise.allSettled(this.#reading);
    await Promise.all([this.detector.dispose(), this.recogniser.dispose()]);
  }

  async #read(image: RgbImage, signal?: AbortSignal): Promise<OcrReading> {
    const lines: OcrLine[] = [];
    for (const box of await this.#detect(image)) {
      this.#check(signal);
      const line = await this.#recognise(image, box);
      if (line.text.trim() !== '') lines.push(line);
    }
    this.#check(signal);
    return { lines };
  }

  #check(signal: AbortSignal | undefined): void {
    signal?.throwIfAborted();
    if (this.#closed) throw new EngineError('paddle: the engine was closed');
  }

  async #detect(image: RgbImage): Promise<readonly Box[]> {
    const { data, shape } = await runOne(this.detector, await detectorInput(image));
    const map = { data, height: shape[shape.length - 2], width: shape[shape.length - 1] };
    return findBoxes(map).map((box) => scaleBox(box, map, image));
  }

  async #recognise(image: RgbImage, box: Box): Promise<OcrLine> {
    const { data, shape } = await runOne(this.recogniser, await lineInput(image, box));
    return decodeCtc(data, shape[2], this.characters);
  }
}

async function runOne(model: ModelFile, input: NetworkInput): Promise<ModelTensor & { readonly data: Float32Array }> {
  const { [model.outputs[0]]: output } = await model.run({ [model.inputs[0]]: input });
  if (output.data instanceof Float32Array) return { data: output.data, shape: output.shape };
  throw new EngineError('the model gives no float32 tensor', { where: model.file });
}

/**
 * Opens both networks and reads one empty line, so that a recogniser and a dictionary that do not belong together are found at once.
 * Raises ConfigError for that and for missing files, EngineError for files that are no models.
 */
export async function openPaddle({ folder, workers }: PaddleOptions): Promise<OcrEngine> {
  const files = findPaddleFiles(folder);
  const threads = { threads: workers };
  const detector = await ModelFile.open(files.detector, threads);
  const opened = [detector];
  try {
    const recogniser = await ModelFile.open(files.recogniser, threads);
    opened.push(recogniser);
    const dictionary = readDictionary(files);
    const blank: RgbImage = { width: 1, height: 1, data: new Uint8Array(3) };
    const { shape } = await runOne(recogniser, await lineInput(blank, { left: 0, top: 0, right: 1, bottom: 1 }));
    return new PaddleEngine(detector, recogniser, charactersOf(dictionary, shape[shape.length - 1]));
  } catch (error) {
    await Promise.all(opened.map((model) => model.dispose()));
    throw error;
  }
}

/**
 * Greedy CTC decoding (Graves et al., "Connectionist Temporal Classification", 2006): the most likely class at each step, repeats merged, blanks (class 0) dropped; the confidence is the mean probability of the steps
 * that gave a character, 0 where none did.
 * @param probabilities axes [steps, classes], each step summing to 1
 */
export function decodeCtc(probabilities: Float32Array, classes: number, characters: readonly string[]): OcrLine {
  let text = '';
  let [sum, count, previous] = [0, 0, 0];
  for (let at = 0; at < probabilities.length; at += classes) {
    let best = 0;
    for (let i = 1; i < classes; i++) if (probabilities[at + i] > probabilities[at + best]) best = i;
    if (best !== 0 && best !== previous) {
      text += characters[best];
      sum += probabilities[at + best];
      count++;
    }
    previous = best;
  }
  return { text, confidence: count === 0 ? 0 : Math.min(1, sum / count) };
}
