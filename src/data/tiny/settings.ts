/** Settings of the tiny world's datasets. */
import { z } from 'zod';
import { count, operation, positiveInteger, result, section } from '../../core/schema/mark.js';

export const tiny = section(
  'The embedded tiny world: missing datasets below it are created.',
  z.strictObject({
    folder: operation(
      "The folder of the datasets below data.dir: one for each image tokenizer, since samples are written in a tokenizer's codes.",
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
          train: result('Labeled edits of each of S and C.', positiveInteger.default(400)),
          prompts: result('Prompts without answers of each of S and C.', positiveInteger.default(4096)),
          validation: result('Held-out labeled edits of each of S and C.', positiveInteger.default(320)),
          truth: result(
            'Labeled edits of each of S and C for rewards that need the answer.',
            positiveInteger.default(512),
          ),
        })
        .prefault({}),
    ),
  }),
);
export type TinyWorldSettings = z.output<typeof tiny>;

export const tinyWords = section(
  'The embedded tiny world in words: captions with odd names, and their plain versions. Missing datasets below it are created.',
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

export const tinyCaptioned = section(
  'The embedded tiny world in images with captions: missing datasets below it are created.',
  z.strictObject({
    folder: tiny.shape.folder,
    seed: tiny.shape.seed,
    counts: section(
      'Images in each split.',
      z
        .strictObject({
          train: result('Training images.', positiveInteger.default(4096)),
          validation: result('Images with captions that occur in no other split.', positiveInteger.default(512)),
        })
        .prefault({}),
    ),
  }),
);
export type TinyCaptionedSettings = z.output<typeof tinyCaptioned>;

export const tinySigns = section(
  'The embedded tiny world of signs with words: missing datasets below it are created.',
  z.strictObject({
    folder: tiny.shape.folder,
    seed: tiny.shape.seed,
    width: result('Width of a sign in pixels.', z.int().min(8).default(32)),
    height: result(
      'Height of a sign in pixels. Letters are half as high, and the lowest quarter is a strip that shows the colors.',
      z.int().min(12).default(16),
    ),
    letters: result('Letters of a word.', positiveInteger.default(3)),
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

export const tinyClips = section(
  'The embedded tiny world in motion: parts are attached, and the question asks which ones. Missing datasets below it are created (by ffmpeg).',
  z.strictObject({
    folder: tiny.shape.folder,
    seed: tiny.shape.seed,
    counts: section(
      'Clips in each split.',
      z
        .strictObject({
          described: result('Clips described in other words than an answer uses.', count.default(0)),
          labelled: result('Clips for supervised training.', positiveInteger.default(256)),
          train: result('Clips to learn from rewards on.', positiveInteger.default(512)),
          validation: result('Held-out clips.', positiveInteger.default(256)),
        })
        .prefault({}),
    ),
    lists: result(
      'Questions about each described clip and each clip for reinforcement learning, each with its own order of the list.',
      positiveInteger.default(1),
    ),
  }),
);
export type TinyClipSettings = z.output<typeof tinyClips>;

export const tinyImageEdits = section(
  'The embedded tiny world in images before and after an edit, with words: missing datasets below it are created.',
  z.strictObject({
    folder: tiny.shape.folder,
    seed: tiny.shape.seed,
    grid: tiny.shape.grid,
    cell: tiny.shape.cell,
    set: result("Simple edits ('s': recolor, remove, add) or complex ones ('c').", z.enum(['s', 'c']).default('s')),
    names: result(
      "The names of colors and shapes in instructions: 'plain', as in responses, or 'odd' (an azure disc), which the image model does not know.",
      z.enum(['plain', 'odd']).default('plain'),
    ),
    counts: section(
      'Edits in each split.',
      z
        .strictObject({
          train: result('Labeled edits for the policy.', positiveInteger.default(96)),
          prompts: result('Prompts without labels.', positiveInteger.default(4096)),
          validation: result('Held-out labeled edits.', positiveInteger.default(320)),
          truth: result('Labeled edits for the model that draws.', positiveInteger.default(4096)),
        })
        .prefault({}),
    ),
  }),
);
export type TinyImageEditSettings = z.output<typeof tinyImageEdits>;
