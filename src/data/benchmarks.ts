/**
 * Benchmarks of image editing as JSON lines that name a picture and say what is asked, a file for each type of edit. GEdit-Bench
 * (stepfun-ai/GEdit-Bench) is parquet files with the pictures in them; ImgEdit (sysuyy/ImgEdit) is a JSON object of edits by their numbers
 * (`basic_edit.json`, `UGE_edit.json`), whose pictures lie below a folder.
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
  /** The picture's bytes, or where its file lies. */
  readonly picture: Uint8Array | string;
}

export interface BenchRequest {
  /** Parquet files of GEdit-Bench, or one list of ImgEdit. */
  readonly lists: readonly string[];
  /** The folder that ImgEdit's pictures are named below; null for GEdit-Bench. */
  readonly pictures: string | null;
  /** Which of GEdit-Bench's instructions are taken: `en` or `cn`; null for all. */
  readonly language: string | null;
  /** The folder to write, which must not hold anything. */
  readonly out: string;
}

/** How many edits each file has, by its name without the ending: that of their type. */
export type BenchReport = Readonly<Record<string, number>>;

const STAGING = '.bench-';

/** Writes the lists. Raises UsageError for a folder that holds something, DataError for a list of another form, RunError where the disk refuses. */
export async function writeBenchmark({ lists, pictures, language, out: given }: BenchRequest): Promise<BenchReport> {
  const out = resolve(given);
  if (existsSync(out) && (!statSync(out).isDirectory() || readdirSync(out).length > 0)) {
    throw new UsageError(`--out: ${given} holds something`, { next: 'Name another folder, or remove this one.' });
  }
  const staging = stagingFolder(dirname(out), STAGING);
  try {
    sweepStaging(dirname(out), STAGING);
    mkdirSync(staging, { recursive: true });
    const lines = new Map<string, string[]>();
    for (const list of lists) {
      const edits = extname(list) === '.parquet' ? geditEdits(list, language) : imgEdits(list, pictures);
      for await (const { key, type, instruction, picture } of edits) {
        const source =
          typeof picture === 'string'
            ? relative(out, resolve(picture))
            : join('pictures', `${sha256(picture).slice(0, 16)}${endingOf(picture, list)}`);
        if (typeof picture !== 'string') {
          mkdirSync(join(staging, 'pictures'), { recursive: true });
          writeFileSync(join(staging, source), picture);
        }
        const line = JSON.stringify({ source, instruction, key, task_type: type });
        // Types whose files would have one name share it: each line says its type.
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
/** Rows of a parquet file that are read at a time: their pictures are held in memory. */
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
    // Bytes stay bytes: only columns that say that they are text are words.
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
      const picture = input_image_raw ?? input_image;
      if (!picture) throw new DataError('the row has neither input_image_raw nor input_image', { where });
      yield { key, type: task_type, instruction, picture: picture.bytes };
    }
  }
}

const imgEditList = z.record(
  z.string(),
  z.looseObject({ id: z.string().min(1), prompt: z.string().min(1), edit_type: z.string().min(1).default('edit') }),
);

async function* imgEdits(file: string, pictures: string | null): AsyncGenerator<BenchEdit> {
  if (pictures === null) {
    throw new UsageError(`${file} names pictures below a folder, and none is said`, {
      next: "Say which: --pictures FOLDER, the one that holds 'animal' and its like.",
    });
  }
  if (!existsSync(file)) throw new DataError('there is no such file', { where: file });
  const value = parseJson(textOf(readWhole(file), file), file);
  for (const [key, { id, prompt, edit_type }] of Object.entries(parsed(imgEditList, value, file))) {
    const picture = join(pictures, id);
    if (!existsSync(picture)) {
      throw new DataError(`the picture of edit ${key} is not there`, {
        where: picture,
        next: "Name the folder that 'id' is relative to: --pictures FOLDER.",
      });
    }
    yield { key, type: edit_type, instruction: prompt, picture };
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

/** The ending of a picture's file by its first bytes. */
function endingOf(bytes: Uint8Array, where: string): string {
  const format = imageFormat(bytes);
  if (format !== null) return `.${format}`;
  throw new DataError('a picture is neither PNG, JPEG nor WebP', { where });
}
