/** Datasets. */
import { z } from 'zod';
import { count, operation, positive, positiveInteger, result, section } from './mark.js';

export const source = z.strictObject({
  path: result('The datalist (JSON with a `path_list`).', z.string().min(1), { relativeTo: 'data.dir' }),
  coefficient: result(
    '>= 1 repeats the source and samples the remainder, < 1 samples that share of it; null (for all sources) upsamples each to the largest.',
    positive.nullable().default(null),
  ),
});
export type DataSource = z.output<typeof source>;

export const tiny = section(
  'The embedded tiny world: where the datasets below it do not exist, they are made.',
  z.strictObject({
    folder: operation(
      "The folder below data.dir that they lie in: one for each image tokenizer, since samples are written in a tokenizer's codes.",
      z
        .string()
        .regex(/^[A-Za-z0-9][A-Za-z0-9._-]*$/, { error: 'a name of letters, digits, "._-", never a path' })
        .default('tiny'),
    ),
    seed: result('Seed of the generator.', count.default(42)),
    grid: result('Cells on a side of a scene.', z.int().min(2).default(4)),
    cell: result('Side of a cell in pixels.', z.int().min(4).default(8)),
    counts: section(
      'Samples in each split.',
      z
        .strictObject({
          images: result('Images for the tokenizer.', positiveInteger.default(1500)),
          train: result('Labelled edits of each of S and C.', positiveInteger.default(400)),
          prompts: result('Prompts without answers of each of S and C.', positiveInteger.default(4096)),
          validation: result('Held-out labelled edits of each of S and C.', positiveInteger.default(320)),
          truth: result(
            'Labelled edits of each of S and C for rewards that need the answer.',
            positiveInteger.default(512),
          ),
        })
        .prefault({}),
    ),
  }),
);
export type TinyWorldSettings = z.output<typeof tiny>;

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

const tinyWords = section(
  'The embedded tiny world in words: captions that name things oddly, to be said plainly. Where the datasets below it do not exist, they are made.',
  z.strictObject({
    folder: tiny.shape.folder,
    seed: tiny.shape.seed,
    counts: section(
      'Captions in each split.',
      z
        .strictObject({
          labelled: result('Captions for supervised training.', positiveInteger.default(256)),
          train: result('Captions to learn from rewards on.', positiveInteger.default(4096)),
          validation: result('Held-out captions.', positiveInteger.default(512)),
        })
        .prefault({}),
    ),
  }),
);

export type TinyWordSettings = z.output<typeof tinyWords>;

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

const tinyCaptioned = section(
  'The embedded tiny world in pictures with captions: where the datasets below it do not exist, they are made.',
  z.strictObject({
    folder: tiny.shape.folder,
    seed: tiny.shape.seed,
    counts: section(
      'Pictures in each split.',
      z
        .strictObject({
          train: result('Pictures to learn from.', positiveInteger.default(4096)),
          validation: result('Pictures with captions that occur in no other split.', positiveInteger.default(512)),
        })
        .prefault({}),
    ),
  }),
);
export type TinyCaptionedSettings = z.output<typeof tinyCaptioned>;

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

const share = z.number().min(0).max(1);

const styleCrop = z.discriminatedUnion('kind', [
  z.strictObject({
    kind: result('The largest rectangle of the picture in which nothing is masked.', z.literal('outside_mask')),
  }),
  z
    .strictObject({
      kind: result('A rectangle by its shares of the sides of the picture.', z.literal('box')),
      left: result('Its left edge, a share of the width.', share),
      top: result('Its upper edge, a share of the height.', share),
      width: result('Its width, a share of that of the picture.', share.positive()),
      height: result('Its height, a share of that of the picture.', share.positive()),
    })
    .refine(({ left, width }) => left + width <= 1 + 1e-9, {
      path: ['width'],
      error: 'a width with which left + width is at most 1',
    })
    .refine(({ top, height }) => top + height <= 1 + 1e-9, {
      path: ['height'],
      error: 'a height with which top + height is at most 1',
    }),
  z.strictObject({
    kind: result(
      "The box around what is masked, without its last row and column and black beyond the picture's edge, as Calligrapher's loader crops it; a ref that has just the box's size is taken whole.",
      z.literal('mask'),
    ),
  }),
  z.strictObject({
    kind: result('The whole picture, what is to be painted included: the answer is then shown.', z.literal('whole')),
  }),
]);
export type StyleCrop = z.output<typeof styleCrop>;

const benchSource = z.strictObject({
  path: result(
    'A folder with self_bench.txt (a number and a prompt per line) and N_source.png, N_mask.png, N_ref.png; or that list. A line such as 50-Delia has the files test50_source.png, …',
    z.string().min(1),
    { relativeTo: 'data.dir' },
  ),
  coefficient: source.shape.coefficient,
});

/** The default letters are those that readers of small print do not confuse with others, as they do O with 0 or I with a bar. */
export const tinySigns = section(
  'The embedded tiny world of signs with words: where the datasets below it do not exist, they are made.',
  z.strictObject({
    folder: tiny.shape.folder,
    seed: tiny.shape.seed,
    width: result('Width of a sign in pixels.', z.int().min(8).default(32)),
    height: result(
      'Height of a sign in pixels. Letters are half as high, and the lowest quarter is a strip that shows the colours.',
      z.int().min(12).default(16),
    ),
    letters: result('Letters of a word.', positiveInteger.default(3)),
    alphabet: result(
      'The letters that words are made of.',
      z
        .string()
        .regex(/^[A-Z0-9]+$/, { error: 'capital letters and digits' })
        .refine((letters) => new Set(letters).size === letters.length, { error: 'each letter once' })
        .default('ABCEFHKLMNPRSTUXY'),
    ),
    labelled_ink: result(
      'Least and most strength of the ink on labelled signs, drawn evenly for each: they are worn, and what learns from them alone paints worn signs. 1 is the strength of a fresh sign, 0 paper.',
      z
        .tuple([share, share])
        .refine(([least, most]) => least <= most, { error: 'the least strength first' })
        .default([0.3, 0.9]),
    ),
    counts: section(
      'Samples in each split.',
      z
        .strictObject({
          labelled: result('Signs for the supervised warm-up.', positiveInteger.default(1024)),
          train: result('Signs to learn from rewards on.', positiveInteger.default(4096)),
          validation: result('Signs with words that occur in no other split.', positiveInteger.default(512)),
        })
        .prefault({}),
    ),
  }),
);
export type TinySignSettings = z.output<typeof tinySigns>;

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
    style_crop: section(
      "Which part of a sample's ref the policy is shown for its style.",
      styleCrop.prefault({ kind: 'outside_mask' }),
    ),
  }),
);
