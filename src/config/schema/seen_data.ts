/** Datasets of policies that see: questions about videos, and edits of pictures in rows. */
import { z } from 'zod';
import { tinyClips, tinyImageEdits } from '../../data/tiny/settings.js';
import { column, places, source } from './data.js';
import { operation, positive, positiveInteger, result, section } from '../../core/schema/mark.js';

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

export const questionData = section(
  'Training and held-out questions about videos.',
  z.strictObject({
    dir: places.dir,
    train: section('Training sources.', z.array(questionSource)),
    validation: section('Held-out sources.', z.array(questionSource)),
    frames: section(
      'How densely videos are sampled whose own `meta` does not say; docs/guide/video.md has the rule.',
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

export const imageEditData = section(
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
      tinyImageEdits.nullable().default(null),
    ),
  }),
);
