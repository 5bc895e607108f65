/** Loads image tokenizers from folders: those that editrl trains, and Emu3's. */
import { join } from 'node:path';
import { CheckpointError } from '../../core/errors.js';
import { checkWeights, CONFIG_FILE, readConfig, readWeights, tensorFiles } from '../../models/files.js';
import { imageTokenizerParameters, type ImageTokenizerConfig } from '../../compute/nets/image_tokenizer.js';
import { emu3VisionTypes } from '../../compute/nets/emu3_vision/config.js';
import type { SessionOptions } from '../../compute/onnx/session.js';
import { describeEmu3Vision, Emu3VisionTokenizer } from './emu3_vision_tokens.js';
import { TrainedVisionTokenizer } from './trained_vision_tokens.js';
import type { VisionTokenizer, VisionTokenizerConfig } from './vision_tokenizer.js';

type Json = Readonly<Record<string, unknown>>;

/** A kind of image tokenizer in a folder, by the `model_type` of its config.json. */
interface Kind {
  readonly describe: (folder: string, json: Json) => VisionTokenizerConfig;
  readonly load: (folder: string, json: Json, session: SessionOptions) => VisionTokenizer;
}

/** Image tokenizers that editrl trains have no `model_type`. */
const trained: Kind = {
  describe(folder, json) {
    const own = json as unknown as ImageTokenizerConfig;
    checkWeights(tensorFiles(folder), imageTokenizerParameters(own));
    return own;
  },
  load(folder, json, session) {
    const own = json as unknown as ImageTokenizerConfig;
    return new TrainedVisionTokenizer(own, readWeights(tensorFiles(folder), imageTokenizerParameters(own)), session);
  },
};
const emu3: Kind = {
  describe: describeEmu3Vision,
  load: (folder, json, session) => Emu3VisionTokenizer.open(folder, json, session),
};
const kinds: ReadonlyMap<unknown, Kind> = new Map<unknown, Kind>([
  [undefined, trained],
  ...emu3VisionTypes.map((type): [string, Kind] => [type, emu3]),
]);

/** The `model_type` names of image tokenizers of other programs. */
export const visionTokenizerTypes: readonly string[] = [...kinds.keys()].filter((type) => typeof type === 'string');

/** Checks a folder without computing or reading weights. Raises the errors of `loadVisionTokenizer`. */
export function describeVisionTokenizer(folder: string): VisionTokenizerConfig {
  const [kind, json] = readKnown(folder);
  return kind.describe(folder, json);
}

/** Raises CheckpointError for files that are missing or do not fit. */
export function loadVisionTokenizer(folder: string, session: SessionOptions): VisionTokenizer {
  const [kind, json] = readKnown(folder);
  return kind.load(folder, json, session);
}

/** Reads the config.json of a supported kind. */
function readKnown(folder: string): readonly [kind: Kind, json: Json] {
  const json = readConfig<Json>(folder);
  const type = json['model_type'];
  const kind = kinds.get(type);
  if (kind !== undefined) return [kind, json];
  throw new CheckpointError(
    `the image tokenizer is a ${JSON.stringify(type)}; allowed: ${visionTokenizerTypes.join(', ')}, and those trained by editrl`,
    {
      where: join(folder, CONFIG_FILE),
      next: 'Name the folder of BAAI/Emu3-VisionTokenizer, or of an Emu3 saved by transformers.',
    },
  );
}
