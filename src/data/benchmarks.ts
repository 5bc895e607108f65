/**
 * Converts benchmarks of image editing to JSON lines with an image and an instruction, one file per type of edit.
 * GEdit-Bench (stepfun-ai/GEdit-Bench) consists of parquet files that contain the images. ImgEdit (sysuyy/ImgEdit) is a
 * JSON object of numbered edits (`basic_edit.json`, `UGE_edit.json`) with its images in a folder.
 */
import { existsSync, mkdirSync, readdirSync, renameSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { dirname, extname, join, relative, resolve } from 'node:path';
import { z } from 'zod';
import { DataError, EditrlError, UsageError } from '../core/errors.js';
import { imageFormat, sha256 } from '../core/images/image.js';
import { diskError, stagingFolder, sweepStaging } from '../core/files.js';
import { parseJson, textOf } from '../core/text.js';
import { readWhole } from './large_texts.js';
import { parquetError, STRICT_TEXTS } from './parquet_rows.js';

/** An edit of a benchmark. */
interface BenchEdit {
  /** Its name in the benchmark. */
  readonly key: string;
  readonly type: string;
  readonly instruction: string;
  /** The image's bytes, or the path of its file. */
  readonly image: Uint8Array | string;
}

export interface BenchRequest {
  /** Parquet files of GEdit-Bench, or one list of ImgEdit. */
  readonly lists: readonly string[];
  /** The folder of ImgEdit's images. Null for GEdit-Bench. */
  readonly images: string | null;
  /** The language of GEdit-Bench's instructions: `en` or `cn`. Null for all. */
  readonly language: string | null;
  /** The output folder, which must be empty or missing. */
  readonly out: string;
}

/** The number of edits in each file, by their type (the name without its ending). */
export type BenchReport = Readonly<Record<string, number>>;

const STAGING = '.bench-';

/**
 * Writes the lists. Raises UsageError for a folder that is not empty, DataError for a list of another form, RunError if
 * the disk fails.
 */
export async function writeBenchmark({ lists, images, language, out: given }: BenchRequest): Promise<BenchReport> {
  const out = resolve(given);
  if (existsSync(out) && (!statSync(out).isDirectory() || readdirSync(out).length > 0)) {
    throw new UsageError(`--out: ${given} is not empty`, { next: 'Name another folder, or remove this one.' });
  }
  const staging = stagingFolder(dirname(out), STAGING);
  try {
    sweepStaging(dirname(out), STAGING);
    mkdirSync(staging, { recursive: true });
    const lines = new Map<string, string[]>();
    for (const list of lists) {
      const edits = extname(list) === '.parquet' ? geditEdits(list, language) : imgEdits(list, images);
      for await (const { key, type, instruction, image } of edits) {
        const source =
          typeof image === 'string'
            ? relative(out, resolve(image))
            : join('pictures', `${sha256(image).slice(0, 16)}${endingOf(image, list)}`);
        if (typeof image !== 'string') {
          mkdirSync(join(staging, 'pictures'), { recursive: true });
          writeFileSync(join(staging, source), image);
        }
        const line = JSON.stringify({ source, instruction, key, task_type: type });
        // Types with the same file name share the file: each line has its type.
        const name = fileName(type);
        const known = lines.get(name);
        if (known === undefined) lines.set(name, [line]);
        else known.push(line);
      }
    }
    for (const [name, of] of lines) writeFileSync(join(staging, `${name}.jsonl`), `${of.join('\n')}\n`);
    if (existsSync(out)) rmSync(out, { recursive: true });
    renameSync(staging, out);
    return Object.fromEntries([...lines].map(([name, of]) => [name, of.length]));
  } catch (cause) {
    throw cause instanceof EditrlError ? cause : diskError(out, cause);
  } finally {
    rmSync(staging, { recursive: true, force: true });
  }
}

const fileName = (type: string): string => type.replaceAll(/[^\w-]+/g, '_');

const image = z.object({ bytes: z.instanceof(Uint8Array) });
const geditRow = z.looseObject({
  key: z.string().min(1),
  task_type: z.string().min(1),
  instruction: z.string().min(1),
  instruction_language: z.string().optional(),
  input_image: image.nullish(),
  input_image_raw: image.nullish(),
});
/** Rows of a parquet file that are read at a time, since their images are held in memory. */
const ROWS = 50;

async function* geditEdits(file: string, language: string | null): AsyncGenerator<BenchEdit> {
  const [{ asyncBufferFromFile, parquetMetadataAsync, parquetReadObjects }, { compressors }] = await Promise.all([
    import('hyparquet'),
    import('hyparquet-compressors'),
  ]);
  if (!existsSync(file)) throw new DataError('there is no such file', { where: file });
  const buffer = await asyncBufferFromFile(file);
  const read = async <T>(what: () => Promise<T>): Promise<T> => {
    try {
      return await what();
    } catch (cause) {
      throw parquetError(cause, file);
    }
  };
  const metadata = await read(() => parquetMetadataAsync(buffer));
  const count = Number(metadata.num_rows);
  for (let rowStart = 0; rowStart < count; rowStart += ROWS) {
    const rowEnd = Math.min(count, rowStart + ROWS);
    // Bytes stay bytes: only columns marked as text are text.
    const rows = await read(() =>
      parquetReadObjects({ file: buffer, metadata, compressors, utf8: false, parsers: STRICT_TEXTS, rowStart, rowEnd }),
    );
    for (const [i, row] of rows.entries()) {
      const where = `${file}:${rowStart + i + 1}`;
      const { key, task_type, instruction, instruction_language, input_image, input_image_raw } = parsed(
        geditRow,
        row,
        where,
      );
      if (language !== null && instruction_language !== undefined && instruction_language !== language) continue;
      const image = input_image_raw ?? input_image;
      if (!image) throw new DataError('the row has neither input_image_raw nor input_image', { where });
      yield { key, type: task_type, instruction, image: image.bytes };
    }
  }
}

const imgEditList = z.record(
  z.string(),
  z.looseObject({ id: z.string().min(1), prompt: z.string().min(1), edit_type: z.string().min(1).default('edit') }),
);

async function* imgEdits(file: string, images: string | null): AsyncGenerator<BenchEdit> {
  if (images === null) {
    throw new UsageError(`${file} has image paths relative to a folder, but no folder is given`, {
      next: "Give the folder: --pictures FOLDER, the one that contains 'animal' and the other types.",
    });
  }
  if (!existsSync(file)) throw new DataError('there is no such file', { where: file });
  const value = parseJson(textOf(readWhole(file), file), file);
  for (const [key, { id, prompt, edit_type }] of Object.entries(parsed(imgEditList, value, file))) {
    const image = join(images, id);
    if (!existsSync(image)) {
      throw new DataError(`the image of edit ${key} is missing`, {
        where: image,
        next: "Name the folder to which 'id' is relative: --pictures FOLDER.",
      });
    }
    yield { key, type: edit_type, instruction: prompt, image };
  }
}

function parsed<T>(schema: z.ZodType<T>, value: unknown, where: string): T {
  const found = schema.safeParse(value);
  if (found.success) return found.data;
  const [{ path, message }] = found.error.issues;
  throw new DataError(`not an edit of GEdit-Bench (parquet) or ImgEdit (JSON): ${path.join('.')}: ${message}`, {
    where,
  });
}

/** The ending of an image's file by its first bytes. */
function endingOf(bytes: Uint8Array, where: string): string {
  const format = imageFormat(bytes);
  if (format !== null) return `.${format}`;
  throw new DataError('an image is neither PNG, JPEG nor WebP', { where });
}
