/** Datasets. */
import { z } from 'zod';
import { tiny, tinyCaptioned, tinySigns, tinyWords } from '../../data/tiny/settings.js';
import { operation, positive, positiveInteger, result, section } from '../../core/schema/mark.js';

export const source = z.strictObject({
  path: result('The datalist (JSON with a `path_list`).', z.string().min(1), { relativeTo: 'data.dir' }),
  coefficient: result(
    '>= 1 repeats the source and samples the remainder, < 1 samples that share of it; null (for all sources) upsamples each to the largest.',
    positive.nullable().default(null),
  ),
});
export type DataSource = z.output<typeof source>;

/** Fields that datasets have in common. */
export const places = {
  dir: operation(
    'The folder that datasets lie in; paths below it may move with it.',
    z.string().min(1).default('data'),
  ),
  train: section('Training sources.', z.array(source)),
  validation: section('Held-out sources.', z.array(source)),
};

const tinyWorld = section(
  'The embedded tiny world; null means that the data is brought along.',
  tiny.nullable().default(null),
);

export const data = section(
  'Training and held-out data.',
  z.strictObject({
    ...places,
    format: result('Form of the datalists and samples.', z.enum(['earl']).default('earl')),
    subset: result(
      "When the part is drawn that a coefficient's fraction takes of a source: 'once' for the whole run, as EARL does, or anew in 'each_epoch'.",
      z.enum(['once', 'each_epoch']).default('once'),
      { idle: (settings) => !takesPart(settings('data.train')) },
    ),
    tiny: tinyWorld,
  }),
);

/** Whether a source's coefficient has a fraction: only then is a part of it drawn. */
function takesPart(train: unknown): boolean {
  const sources = Array.isArray(train) ? (train as { readonly coefficient?: number | null }[]) : [];
  return sources.some(({ coefficient }) => !Number.isInteger(coefficient ?? 1));
}

const rowSource = z.strictObject({
  path: result(
    "JSON lines (.jsonl), a parquet file of Hugging Face's datasets, a text with a prompt on each line (.txt), or a folder of such files.",
    z.string().min(1),
    { relativeTo: 'data.dir' },
  ),
  coefficient: source.shape.coefficient,
});

export const column = z.string().min(1);

export const rowData = section(
  'Training and held-out prompts in words.',
  z.strictObject({
    dir: places.dir,
    train: section('Training sources.', z.array(rowSource)),
    validation: section('Held-out sources.', z.array(rowSource)),
    columns: section(
      'Which columns of a row are read.',
      z
        .strictObject({
          prompt: result(
            "What is asked: words, or a conversation, a list of {role, content}, whose last turn is the user's or the labelled answer.",
            column.default('prompt'),
          ),
          expected: result(
            'The labelled answer, for rewards that compare with one and for supervised training: words, a number, or a conversation that ends with it (that of columns.prompt, say); null where there is none.',
            column.nullable().default(null),
          ),
        })
        .prefault({}),
    ),
    tiny: section(
      'The embedded tiny world in words; null means that the data is brought along.',
      tinyWords.nullable().default(null),
    ),
  }),
);

const captionedSource = z.strictObject({
  path: result(
    "JSON lines (.jsonl) or a parquet file with the columns file_name and text, as Hugging Face's image folders have them, or a folder of such files.",
    z.string().min(1),
    { relativeTo: 'data.dir' },
  ),
  coefficient: source.shape.coefficient,
});

export const captionedData = section(
  'Training and held-out pictures with captions.',
  z.strictObject({
    dir: places.dir,
    train: section('Training sources.', z.array(captionedSource)),
    validation: section('Held-out sources.', z.array(captionedSource)),
    tiny: section(
      'The embedded tiny world in pictures with captions; null means that the data is brought along.',
      tinyCaptioned.nullable().default(null),
    ),
  }),
);

export const imageData = section(
  'Training and held-out images.',
  z.strictObject({
    ...places,
    format: result(
      'Form of the datalists: a JSON file whose `path_list` names image files.',
      z.enum(['images']).default('images'),
    ),
    tiny: tinyWorld,
  }),
);

/** The parts of a ref that show its style. */
const STYLE_CROPS = ['outside_mask', 'mask', 'whole'] as const;
export type StyleCrop = (typeof STYLE_CROPS)[number];

const benchSource = z.strictObject({
  path: result(
    'A folder with self_bench.txt (a number and a prompt per line) and N_source.png, N_mask.png, N_ref.png; or that list. A line such as 50-Delia has the files test50_source.png, …',
    z.string().min(1),
    { relativeTo: 'data.dir' },
  ),
  coefficient: source.shape.coefficient,
});

const benchPlaces = {
  dir: places.dir,
  train: section('Training sources.', z.array(benchSource)),
  validation: section('Held-out sources.', z.array(benchSource)),
  format: result('Form of the datasets.', z.enum(['self_bench']).default('self_bench')),
  tiny: section(
    'The embedded tiny world of signs; null means that the data is brought along.',
    tinySigns.nullable().default(null),
  ),
};

/** For models that learn only from the pictures of inpainting samples. */
export const benchPictures = section('Training and held-out pictures.', z.strictObject(benchPlaces));

export const inpaintData = section(
  'Training and held-out inpainting samples.',
  z.strictObject({
    ...benchPlaces,
    resolution: result(
      'Bring every picture to a square of so many pixels: the shorter side is scaled to it, and the middle is cut out; null takes pictures as they are, all of a sample in one size.',
      positiveInteger.nullable().default(null),
    ),
    style_crop: result(
      "The part of a sample's ref that shows the policy its style: the largest rectangle 'outside_mask'; the box around the 'mask', without its last row and column, as Calligrapher's loader crops it (a ref of the size of the box is taken whole); or the 'whole' ref, which shows the answer.",
      z.enum(STYLE_CROPS).default('outside_mask'),
    ),
  }),
);
