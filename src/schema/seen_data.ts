/** Datasets of policies that see: questions about videos, and edits of pictures in rows. */
import { z } from 'zod';
import { column, places, source, tiny } from './data.js';
import { count, operation, positive, positiveInteger, result, section } from './mark.js';

const questionSource = z.strictObject({
  path: result(
    'Questions about videos in conversations (.json: a list, .jsonl: one in a line), or a folder that holds conversations.json.',
    z.string().min(1),
    { relativeTo: 'data.dir' },
  ),
  media: operation(
    'The folder that the paths of videos and images begin at; null: that of the list.',
    z.string().min(1).nullable().default(null),
  ),
  coefficient: source.shape.coefficient,
});

export const tinyClips = section(
  'The embedded tiny world in motion: parts are attached, with the question which ones. Where the datasets below it do not exist, they are made (by ffmpeg).',
  z.strictObject({
    folder: tiny.shape.folder,
    seed: tiny.shape.seed,
    counts: section(
      'Clips in each split.',
      z
        .strictObject({
          described: result('Clips that are described in other words than an answer has.', count.default(0)),
          labelled: result('Clips for supervised training.', positiveInteger.default(256)),
          train: result('Clips to learn from rewards on.', positiveInteger.default(512)),
          validation: result('Held-out clips.', positiveInteger.default(256)),
        })
        .prefault({}),
    ),
    lists: result(
      'Questions about each clip that is described or learnt on from rewards, with their lists in orders of their own.',
      positiveInteger.default(1),
    ),
  }),
);
export type TinyClipSettings = z.output<typeof tinyClips>;

export const questionData = section(
  'Training and held-out questions about videos.',
  z.strictObject({
    dir: places.dir,
    train: section('Training sources.', z.array(questionSource)),
    validation: section('Held-out sources.', z.array(questionSource)),
    frames: section(
      'How densely videos are sampled whose own `meta` does not say; docs/video_actions.md has the rule.',
      z
        .strictObject({
          min: result('Least frames of a segment; a shorter one is an error.', positiveInteger.default(4)),
          max: result('Most frames of a segment.', positiveInteger.default(8)),
          interval: result('Seconds that one frame stands for.', positive.default(2)),
          as: result(
            "What the policy sees of a clip: 'video', its frames with their times, of which some models read two as one; or 'images', each frame as an image of its own, without times and with the tokens of one. Training servers take images alone.",
            z.enum(['video', 'images']).default('video'),
          ),
        })
        .refine(({ min, max }) => min <= max, { path: ['min'], error: 'at most data.frames.max' })
        .prefault({}),
    ),
    tiny: section(
      'The embedded tiny world in motion; null means that the data is brought along.',
      tinyClips.nullable().default(null),
    ),
  }),
);

const picturedSource = z.strictObject({
  path: result(
    'Edits of pictures in rows: JSON lines (.jsonl), a parquet file, or a folder of such files.',
    z.string().min(1),
    { relativeTo: 'data.dir' },
  ),
  media: operation(
    'The folder that the paths of pictures begin at; null: that of the list.',
    z.string().min(1).nullable().default(null),
  ),
  coefficient: source.shape.coefficient,
});

const tinyPictured = section(
  'The embedded tiny world in pictures before and after an edit, with words: where the datasets below it do not exist, they are made.',
  z.strictObject({
    folder: tiny.shape.folder,
    seed: tiny.shape.seed,
    grid: tiny.shape.grid,
    cell: tiny.shape.cell,
    set: result("Simple edits ('s': recolour, remove, add) or complex ones ('c').", z.enum(['s', 'c']).default('s')),
    names: result(
      "How instructions call colours and shapes: 'plain'ly, as responses do, or by 'odd' names (an azure disc) that whoever draws does not know.",
      z.enum(['plain', 'odd']).default('plain'),
    ),
    counts: section(
      'Edits in each split.',
      z
        .strictObject({
          train: result('Labelled edits for the policy.', positiveInteger.default(96)),
          prompts: result('Prompts without labels.', positiveInteger.default(4096)),
          validation: result('Held-out labelled edits.', positiveInteger.default(320)),
          truth: result('Labelled edits for the model that draws.', positiveInteger.default(4096)),
        })
        .prefault({}),
    ),
  }),
);
export type TinyPicturedSettings = z.output<typeof tinyPictured>;

export const picturedData = section(
  'Training and held-out edits of pictures.',
  z.strictObject({
    dir: places.dir,
    train: section('Training sources.', z.array(picturedSource)),
    validation: section('Held-out sources.', z.array(picturedSource)),
    columns: section(
      'Which columns of a row are read.',
      z
        .strictObject({
          source: result(
            'The file of the picture, or a list of several, of which the first is edited.',
            column.default('source'),
          ),
          instruction: result('What is asked.', column.default('instruction')),
          response: result(
            'The labelled description of the edit, for supervised training; a row may have none.',
            column.default('response'),
          ),
          target: result(
            'The file of the edited picture, for training what draws and for rewards that compare with it; a row may have none.',
            column.default('target'),
          ),
        })
        .prefault({}),
    ),
    tiny: section(
      'The embedded tiny world; null means that the data is brought along.',
      tinyPictured.nullable().default(null),
    ),
  }),
);
