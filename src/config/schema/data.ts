/** Datasets. */
import { z } from 'zod';
import { tiny, tinyCaptioned, tinySigns, tinyWords } from '../../data/tiny/settings.js';
import { operation, positive, positiveInteger, result, section } from '../../core/schema/mark.js';

export const source = z.strictObject({
  path: result('The datalist (JSON with a `path_list`).', z.string().min(1), { relativeTo: 'data.dir' }),
  coefficient: result(
    'A number >= 1 repeats the source and samples the fraction. A number < 1 samples that share of it. null for all sources upsamples each to the largest.',
    positive.nullable().default(null),
  ),
});
export type DataSource = z.output<typeof source>;

/** Fields that datasets have in common. */
export const places = {
  dir: operation(
    'The folder of the datasets. It may move: paths below it count relative to it.',
    z.string().min(1).default('data'),
  ),
  train: section('Training sources.', z.array(source)),
  validation: section('Held-out sources.', z.array(source)),
};

const tinyWorld = section('The embedded tiny world. null means your own data.', tiny.nullable().default(null));

export const data = section(
  'Training and held-out data.',
  z.strictObject({
    ...places,
    format: result('Format of the datalists and samples.', z.enum(['earl']).default('earl')),
    subset: result(
      "When the fraction of a coefficient is sampled from its source: 'once' for the whole run, as in EARL, or in 'each_epoch'.",
      z.enum(['once', 'each_epoch']).default('once'),
      { idle: (settings) => !takesPart(settings('data.train')) },
    ),
    tiny: tinyWorld,
  }),
);

/** Whether a coefficient has a fraction, so that part of a source is sampled. */
function takesPart(train: unknown): boolean {
  const sources = Array.isArray(train) ? (train as { readonly coefficient?: number | null }[]) : [];
  return sources.some(({ coefficient }) => !Number.isInteger(coefficient ?? 1));
}

const rowSource = z.strictObject({
  path: result(
    "JSON lines (.jsonl), a parquet file of Hugging Face's datasets, a text file with one prompt per line (.txt), or a folder of such files.",
    z.string().min(1),
    { relativeTo: 'data.dir' },
  ),
  coefficient: source.shape.coefficient,
});

export const column = z.string().min(1);

export const rowData = section(
  'Training and held-out text prompts.',
  z.strictObject({
    dir: places.dir,
    train: section('Training sources.', z.array(rowSource)),
    validation: section('Held-out sources.', z.array(rowSource)),
    columns: section(
      'The columns of a row that are read.',
      z
        .strictObject({
          prompt: result(
            "The prompt: text, or a conversation, a list of {role, content} whose last turn is the user's or the labeled answer.",
            column.default('prompt'),
          ),
          expected: result(
            'The labeled answer, for rewards that compare with one and for supervised training: text, a number, or a conversation that ends with it, such as the one in columns.prompt. null if there is none.',
            column.nullable().default(null),
          ),
        })
        .prefault({}),
    ),
    tiny: section('The embedded tiny world as text. null means your own data.', tinyWords.nullable().default(null)),
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
  'Training and held-out images with captions.',
  z.strictObject({
    dir: places.dir,
    train: section('Training sources.', z.array(captionedSource)),
    validation: section('Held-out sources.', z.array(captionedSource)),
    tiny: section(
      'The embedded tiny world as images with captions. null means your own data.',
      tinyCaptioned.nullable().default(null),
    ),
  }),
);

export const imageData = section(
  'Training and held-out images.',
  z.strictObject({
    ...places,
    format: result(
      'Format of the datalists: a JSON file whose `path_list` names image files.',
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
    'A folder with self_bench.txt (a number and a prompt per line) and N_source.png, N_mask.png, N_ref.png, or the path of that list. A line such as 50-Delia has the files test50_source.png, …',
    z.string().min(1),
    { relativeTo: 'data.dir' },
  ),
  coefficient: source.shape.coefficient,
});

const benchPlaces = {
  dir: places.dir,
  train: section('Training sources.', z.array(benchSource)),
  validation: section('Held-out sources.', z.array(benchSource)),
  format: result('Format of the datasets.', z.enum(['self_bench']).default('self_bench')),
  tiny: section('The embedded tiny world of signs. null means your own data.', tinySigns.nullable().default(null)),
};

/** For models that learn only from the images of inpainting samples. */
export const benchImages = section('Training and held-out images.', z.strictObject(benchPlaces));

export const inpaintData = section(
  'Training and held-out inpainting samples.',
  z.strictObject({
    ...benchPlaces,
    resolution: result(
      'The side in pixels of the squares that all images become: the shorter side is scaled to it, and the center is cropped. null keeps images as they are. All images of a sample then need one size.',
      positiveInteger.nullable().default(null),
    ),
    style_crop: result(
      "The part of a sample's ref that shows the policy its style. 'outside_mask': the largest rectangle outside the mask. 'mask': the box around the mask without its last row and column, as Calligrapher's loader crops it (a ref of the size of the box is used whole). 'whole': the whole ref, which contains the answer.",
      z.enum(STYLE_CROPS).default('outside_mask'),
    ),
  }),
);
