/** Datasets. */
import { z } from 'zod';
import { count, operation, positive, positiveInteger, result, section } from './mark.js';

const source = z.strictObject({
  path: result('The datalist (JSON with a `path_list`).', z.string().min(1), { relativeTo: 'data.dir' }),
  coefficient: result(
    '>= 1 repeats the source and samples the remainder, < 1 samples that share of it; null (for all sources) upsamples each to the largest.',
    positive.nullable().default(null),
  ),
});
export type DataSource = z.output<typeof source>;

const tiny = section(
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

/** What edit data and image data have in common. */
const places = {
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
    tiny: tinyWorld,
  }),
);

const rowSource = z.strictObject({
  path: result(
    "JSON lines (.jsonl), a parquet file of Hugging Face's datasets, or a folder of such files.",
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

const column = z.string().min(1);

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
