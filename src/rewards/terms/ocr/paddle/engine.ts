/** PaddleOCR's two networks on onnxruntime: find the lines of text, then read each. */
import { EngineError, ConfigError } from '../../../../core/errors.js';
import type { RgbImage } from '../../../../core/images/image.js';
import { type ModelTensor, ModelFile } from '../../../../compute/onnx/model_file.js';
import { type OcrEngine, type OcrLine, type OcrReading, Turns } from '../engine.js';
import { findBoxes, scaleBox, type Box, type Size } from './boxes.js';
import { enlargement } from '../enlarge.js';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { BinaryReader } from '@bufbuild/protobuf/wire';
import { readTextFile } from '../../../../core/text.js';

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
    private readonly recognizer: ModelFile,
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

  /** Waits for readings in flight: a session that runs cannot be freed. */
  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    await Promise.allSettled(this.#reading);
    await Promise.all([this.detector.dispose(), this.recognizer.dispose()]);
  }

  async #read(image: RgbImage, signal?: AbortSignal): Promise<OcrReading> {
    const lines: OcrLine[] = [];
    for (const box of await this.#detect(image)) {
      this.#check(signal);
      const line = await this.#recognize(image, box);
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

  async #recognize(image: RgbImage, box: Box): Promise<OcrLine> {
    const { data, shape } = await runOne(this.recognizer, await lineInput(image, box));
    return decodeCtc(data, shape[2], this.characters);
  }
}

async function runOne(model: ModelFile, input: NetworkInput): Promise<ModelTensor & { readonly data: Float32Array }> {
  const { [model.outputs[0]]: output } = await model.run({ [model.inputs[0]]: input });
  if (output.data instanceof Float32Array) return { data: output.data, shape: output.shape };
  throw new EngineError('the model returns no float32 tensor', { where: model.file });
}

/**
 * Opens both networks and reads one empty line, so that a recognizer and a dictionary that do not fit together are found at once. Raises
 * ConfigError for that and for missing files, EngineError for files that are no models.
 */
export async function openPaddle({ folder, workers }: PaddleOptions): Promise<OcrEngine> {
  const files = findPaddleFiles(folder);
  const threads = { threads: workers };
  const detector = await ModelFile.open(files.detector, threads);
  const opened = [detector];
  try {
    const recognizer = await ModelFile.open(files.recognizer, threads);
    opened.push(recognizer);
    const dictionary = readDictionary(files);
    const blank: RgbImage = { width: 1, height: 1, data: new Uint8Array(3) };
    const { shape } = await runOne(recognizer, await lineInput(blank, { left: 0, top: 0, right: 1, bottom: 1 }));
    return new PaddleEngine(detector, recognizer, charactersOf(dictionary, shape[shape.length - 1]));
  } catch (error) {
    await Promise.all(opened.map((model) => model.dispose()));
    throw error;
  }
}

/**
 * Greedy CTC decoding (Graves et al., "Connectionist Temporal Classification", 2006): the most likely class at each step, repeats merged,
 * blanks (class 0) dropped. The confidence is the mean probability of the steps that gave a character, or 0.
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

/** The detector's sides are multiples of this. */
const STRIDE = 32;
/** The recognizer's height, and the width to which shorter lines are padded, in pixels. */
export const LINE_HEIGHT = 48;
const LINE_WIDTH = 320;
/** A line longer than this many times its height is not a line of text. */
const MAX_LINE_RATIO = 60;

interface Normalization {
  /** In the order blue, green, red, on the scale of 0 to 1. */
  readonly mean: readonly [number, number, number];
  readonly std: readonly [number, number, number];
}

/** ImageNet's figures in the order in which PaddleOCR applies them: blue first. */
const detectorNormalization: Normalization = { mean: [0.485, 0.456, 0.406], std: [0.229, 0.224, 0.225] };
const lineNormalization: Normalization = { mean: [0.5, 0.5, 0.5], std: [0.5, 0.5, 0.5] };

/** The size of an image for the detector: enlarged as for any reader, then rounded to multiples of 32. */
export function detectorSize({ width, height }: Size): Size {
  const scale = enlargement(width, height);
  const fit = (side: number): number => Math.max(STRIDE, Math.round((side * scale) / STRIDE) * STRIDE);
  return { width: fit(width), height: fit(height) };
}

/** The width of a line at the recognizer's height, without padding. */
export function lineWidth({ width, height }: Size): number {
  return Math.min(LINE_HEIGHT * MAX_LINE_RATIO, Math.max(1, Math.ceil((LINE_HEIGHT * width) / height)));
}

/** Converts interleaved RGB bytes to normalized planes of blue, green and red. Rows have `stride` floats, padded with 0. */
export function toPlanes(image: RgbImage, { mean, std }: Normalization, stride = image.width): Float32Array {
  const { width, height, data } = image;
  const planes = new Float32Array(3 * stride * height);
  for (let channel = 0; channel < 3; channel++) {
    const [scale, shift] = [1 / (255 * std[channel]), mean[channel] / std[channel]];
    for (let y = 0; y < height; y++) {
      const row = (channel * height + y) * stride;
      for (let x = 0; x < width; x++) planes[row + x] = data[(y * width + x) * 3 + 2 - channel] * scale - shift;
    }
  }
  return planes;
}

export interface NetworkInput {
  readonly data: Float32Array;
  readonly shape: readonly [1, 3, number, number];
}

/** The whole image for the detector. */
export async function detectorInput(image: RgbImage): Promise<NetworkInput> {
  const { width, height } = detectorSize(image);
  const resized = await resize(image, { left: 0, top: 0, right: image.width, bottom: image.height }, width, height);
  return { data: toPlanes(resized, detectorNormalization), shape: [1, 3, height, width] };
}

/** One box of the image for the recognizer. */
export async function lineInput(image: RgbImage, box: Box): Promise<NetworkInput> {
  const width = lineWidth({ width: box.right - box.left, height: box.bottom - box.top });
  const stride = Math.max(LINE_WIDTH, width);
  const line = await resize(image, box, width, LINE_HEIGHT);
  return { data: toPlanes(line, lineNormalization, stride), shape: [1, 3, LINE_HEIGHT, stride] };
}

async function resize(image: RgbImage, box: Box, width: number, height: number): Promise<RgbImage> {
  const { default: sharp } = await import('sharp');
  const { data } = await sharp(image.data, { raw: { width: image.width, height: image.height, channels: 3 } })
    .extract({ left: box.left, top: box.top, width: box.right - box.left, height: box.bottom - box.top })
    .resize(width, height, { fit: 'fill', kernel: 'linear' })
    .raw()
    .toBuffer({ resolveWithObject: true });
  return { width, height, data: new Uint8Array(data.buffer, data.byteOffset, data.length) };
}

export interface PaddleFiles {
  readonly detector: string;
  readonly recognizer: string;
  /** Null if there is none. */
  readonly dictionary: string | null;
}

interface Part {
  readonly plain: string;
  readonly pattern: RegExp;
  readonly what: string;
}

const parts: Readonly<Record<keyof PaddleFiles, Part>> = {
  detector: { plain: 'det.onnx', pattern: /(^|[^a-z])det([^a-z].*)?\.onnx$/i, what: 'a text detector' },
  recognizer: { plain: 'rec.onnx', pattern: /(^|[^a-z])rec([^a-z].*)?\.onnx$/i, what: 'a text recognizer' },
  dictionary: { plain: 'dict.txt', pattern: /(dict|keys).*\.txt$/i, what: "the recognizer's characters" },
};

/** The files of an export. Raises ConfigError for a part that is missing or exists more than once. */
export function findPaddleFiles(folder: string): PaddleFiles {
  if (!existsSync(folder)) {
    throw new ConfigError(`the folder of the PaddleOCR export does not exist`, {
      where: folder,
      next: 'Correct the path.',
    });
  }
  const names = readdirSync(folder).sort();
  const find = ({ plain, pattern, what }: Part): string | null => {
    if (names.includes(plain)) return join(folder, plain);
    const found = names.filter((name) => pattern.test(name));
    if (found.length <= 1) return found.length === 0 ? null : join(folder, found[0]);
    throw missing(folder, `holds several (${found.join(', ')}): ${what}`, plain);
  };
  const need = (part: Part): string => {
    const found = find(part);
    if (found === null) throw missing(folder, `holds no ${part.plain}: ${part.what}`, part.plain);
    return found;
  };
  return { detector: need(parts.detector), recognizer: need(parts.recognizer), dictionary: find(parts.dictionary) };
}

function missing(folder: string, problem: string, plain: string): ConfigError {
  return new ConfigError(`the PaddleOCR export ${problem}`, { where: folder, next: `Put one there as ${plain}.` });
}

/** The dictionary of an export as text: its file, or the recognizer's metadata. Raises ConfigError if neither exists. */
export function readDictionary({ dictionary, recognizer }: PaddleFiles): {
  readonly text: string;
  readonly where: string;
} {
  if (dictionary !== null) return { text: readTextFile(dictionary, ConfigError), where: dictionary };
  const text = onnxMetadata(readFileSync(recognizer)).get('character');
  if (text !== undefined) return { text, where: recognizer };
  const problem = `has no dict.txt, and no characters in the metadata of its recognizer: ${parts.dictionary.what}`;
  throw missing(dirname(recognizer), problem, parts.dictionary.plain);
}

/** The metadata of an ONNX file: ModelProto's field 14, entries of a key (1) and a value (2). onnxruntime-node does not expose it. */
export function onnxMetadata(bytes: Uint8Array): ReadonlyMap<string, string> {
  const metadata = new Map<string, string>();
  const reader = new BinaryReader(bytes);
  while (reader.pos < reader.len) {
    const [field, wire] = reader.tag();
    if (field !== 14) {
      reader.skip(wire, field);
      continue;
    }
    const entry = new BinaryReader(reader.bytes());
    const said: Record<number, string> = {};
    while (entry.pos < entry.len) said[entry.tag()[0]] = entry.string();
    metadata.set(said[1] ?? '', said[2] ?? '');
  }
  return metadata;
}

/**
 * The recognizer's classes, the first of which is CTC's blank: the dictionary's lines, then a space if the model has one class more. Raises
 * ConfigError if the numbers do not fit together.
 */
export function charactersOf({ text, where }: ReturnType<typeof readDictionary>, classes: number): readonly string[] {
  const lines = text.replace(/\r/g, '').split('\n');
  // A last line may end with the file. An empty line in between is a missing character, which the count reveals.
  if (lines.at(-1) === '') lines.pop();
  const characters = ['', ...lines];
  if (characters.length + 1 === classes) characters.push(' ');
  if (characters.length === classes) return characters;
  throw new ConfigError(`the dictionary has ${lines.length} characters, but the recognizer has ${classes} classes`, {
    where,
    next: `Take the dictionary with which the recognizer was exported; it has ${classes - 2} or ${classes - 1} lines.`,
  });
}
