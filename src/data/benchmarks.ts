/**
 * Converts benchmarks of image editing to JSON lines with an image and an instruction, one file per type of edit.
 * GEdit-Bench (stepfun-ai/GEdit-Bench) and GEditBench v2 consist of parquet files that contain the images. The others are JSON with images in a
 * folder: ImgEdit (sysuyy/ImgEdit) an object of numbered edits (`basic_edit.json`, `UGE_edit.json`), RISEBench a list, and KRIS-Bench an
 * `annotation.json` beside the images of each category.
 */
import { existsSync, mkdirSync, readdirSync, renameSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { basename, dirname, extname, join, relative, resolve } from 'node:path';
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
  /** The image's bytes, or the path of its file. Several for edits of several images. */
  readonly image: BenchImage | readonly BenchImage[];
  /** Further images, by the column for their files. */
  readonly further?: Readonly<Record<string, BenchImage | null>>;
  /** Further columns. */
  readonly rest?: Readonly<Record<string, unknown>>;
}

type BenchImage = Uint8Array | string;

export interface BenchRequest {
  /** Parquet files of GEdit-Bench or GEditBench v2, or JSON lists of the others. */
  readonly lists: readonly string[];
  /** The folder of the images of ImgEdit or RISEBench. Null for the others. */
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
      const edits = extname(list) === '.parquet' ? parquetEdits(list, language) : listedEdits(list, images);
      const place = (image: BenchImage): string => {
        if (typeof image === 'string') return relative(out, resolve(image));
        const file = join('pictures', `${sha256(image).slice(0, 16)}${endingOf(image, list)}`);
        mkdirSync(join(staging, 'pictures'), { recursive: true });
        writeFileSync(join(staging, file), image);
        return file;
      };
      for await (const { key, type, instruction, image, further = {}, rest = {} } of edits) {
        const source = isSeveral(image) ? image.map(place) : place(image);
        const others = Object.entries(further).flatMap(([column, one]) => (one === null ? [] : [[column, place(one)]]));
        const line = JSON.stringify({
          source,
          instruction,
          key,
          task_type: type,
          ...Object.fromEntries(others),
          ...rest,
        });
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

function isSeveral(image: BenchEdit['image']): image is readonly BenchImage[] {
  return Array.isArray(image);
}

const image = z.object({ bytes: z.instanceof(Uint8Array) });
const geditRow = z.looseObject({
  key: z.string().min(1),
  task_type: z.string().min(1),
  instruction: z.string().min(1),
  instruction_language: z.string().optional(),
  Intersection_exist: z.boolean().nullish(),
  input_image: image.nullish(),
  input_image_raw: image.nullish(),
});
const geditV2Row = z.looseObject({
  key: z.string().min(1),
  task: z.string().min(1).nullish(),
  instruction: z.string().min(1),
  source_image: image,
});
/** Rows of a parquet file that are read at a time, since their images are held in memory. */
const ROWS = 50;

async function* parquetEdits(file: string, language: string | null): AsyncGenerator<BenchEdit> {
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
      if (Object.hasOwn(row, 'source_image')) {
        const { key, task, instruction, source_image } = parsed(geditV2Row, row, where);
        // The keys are the task and a number.
        yield { key, type: task ?? key.replace(/_\d+$/, ''), instruction, image: source_image.bytes };
        continue;
      }
      const edit = parsed(geditRow, row, where);
      const { key, task_type, instruction, instruction_language, input_image, input_image_raw } = edit;
      if (language !== null && instruction_language !== undefined && instruction_language !== language) continue;
      const image = input_image_raw ?? input_image;
      if (!image) throw new DataError('the row has neither input_image_raw nor input_image', { where });
      yield {
        key,
        type: task_type,
        instruction,
        image: image.bytes,
        // Its judge sees the smaller image.
        further: { shown_source: input_image?.bytes ?? null },
        rest: { language: instruction_language ?? 'en', intersection: edit.Intersection_exist === true },
      };
    }
  }
}

const imgEditList = z.record(
  z.string(),
  z.looseObject({ id: z.string().min(1), prompt: z.string().min(1), edit_type: z.string().min(1).default('edit') }),
);

const riseList = z.array(
  z.looseObject({
    index: z.string().min(1),
    category: z.string().min(1),
    instruction: z.string().min(1),
    image: z.string().min(1),
    subtask: z.string().nullish(),
    reference: z.string().nullish(),
    reference_txt: z.string().nullish(),
    reference_img: z.string().nullish(),
    reasoning_img: z.unknown().optional(),
    reasoning_wo_ins: z.unknown().optional(),
    consistency_free: z.unknown().optional(),
  }),
);

const krisList = z.record(
  z.string(),
  z.looseObject({
    ori_img: z.union([z.string().min(1), z.array(z.string().min(1)).min(1)]),
    gt_img: z.string().nullish(),
    ins_en: z.string().min(1),
    explain_en: z.string().nullish(),
  }),
);

/** The edits of a JSON list. KRIS-Bench is known by the name of its lists, and RISEBench by its form. */
function* listedEdits(file: string, images: string | null): Generator<BenchEdit> {
  if (!existsSync(file)) throw new DataError('there is no such file', { where: file });
  const value = parseJson(textOf(readWhole(file), file), file);
  if (basename(file) === 'annotation.json') yield* krisEdits(value, file);
  else if (Array.isArray(value)) yield* riseEdits(value, file, folderOf(file, images));
  else yield* imgEdits(value, file, folderOf(file, images));
}

function folderOf(file: string, images: string | null): string {
  if (images !== null) return images;
  throw new UsageError(`${file} has image paths relative to a folder, but no folder is given`, {
    next: "Give the folder: --pictures FOLDER, the one that contains 'animal' and the other types.",
  });
}

/** The path of an image that exists. Raises DataError. */
function existing(folder: string, name: string, key: string): string {
  const image = join(folder, name);
  if (existsSync(image)) return image;
  throw new DataError(`the image of edit ${key} is missing`, {
    where: image,
    next: "Name the folder to which the list's paths are relative: --pictures FOLDER.",
  });
}

function* imgEdits(value: unknown, file: string, folder: string): Generator<BenchEdit> {
  for (const [key, { id, prompt, edit_type }] of Object.entries(parsed(imgEditList, value, file))) {
    yield { key, type: edit_type, instruction: prompt, image: existing(folder, id, key) };
  }
}

function* riseEdits(value: unknown, file: string, folder: string): Generator<BenchEdit> {
  for (const edit of parsed(riseList, value, file)) {
    const { index: key, category, instruction, image, reference_img } = edit;
    yield {
      key,
      type: category,
      instruction,
      image: existing(folder, image, key),
      further: { reference_image: reference_img ? existing(folder, reference_img, key) : null },
      rest: {
        subtask: edit.subtask ?? null,
        reference: edit.reference ?? null,
        reference_text: edit.reference_txt ?? null,
        reasoning_img: edit.reasoning_img ?? null,
        reasoning_wo_ins: edit.reasoning_wo_ins ?? null,
        consistency_free: edit.consistency_free ?? null,
      },
    };
  }
}

function* krisEdits(value: unknown, file: string): Generator<BenchEdit> {
  const folder = dirname(file);
  const type = basename(resolve(folder));
  for (const [id, { ori_img, gt_img, ins_en, explain_en }] of Object.entries(parsed(krisList, value, file))) {
    const key = `${type}_${id}`;
    const place = (name: string): string => existing(folder, name, key);
    yield {
      key,
      type,
      instruction: ins_en,
      image: typeof ori_img === 'string' ? place(ori_img) : ori_img.map(place),
      // Frames are predicted without their labels, and not every category has any.
      further: { reference_image: type === 'viewpoint_change' && gt_img ? place(gt_img) : null },
      rest: { explanation: explain_en ?? '' },
    };
  }
}

function parsed<T>(schema: z.ZodType<T>, value: unknown, where: string): T {
  const found = schema.safeParse(value);
  if (found.success) return found.data;
  const [{ path, message }] = found.error.issues;
  throw new DataError(
    `not an edit of GEdit-Bench or GEditBench v2 (parquet), ImgEdit, RISEBench or KRIS-Bench (JSON): ${path.join('.')}: ${message}`,
    {
      where,
    },
  );
}

/** The ending of an image's file by its first bytes. */
function endingOf(bytes: Uint8Array, where: string): string {
  const format = imageFormat(bytes);
  if (format !== null) return `.${format}`;
  throw new DataError('an image is neither PNG, JPEG nor WebP', { where });
}
