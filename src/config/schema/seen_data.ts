/** Datasets of vision-language policies: questions about videos, and image edits in rows. */
import { z } from 'zod';
import { tinyClips, tinyImageEdits } from '../../data/tiny/settings.js';
import { column, places, source } from './data.js';
import { operation, positive, positiveInteger, result, section } from '../../core/schema/mark.js';

const questionSource = z.strictObject({
  path: result(
    'Conversations about videos (.json: a list, .jsonl: one per line), or a folder with conversations.json.',
    z.string().min(1),
    { relativeTo: 'data.dir' },
  ),
  media: operation(
    'The folder of the videos and images. null means the folder of the list.',
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
      'Frame sampling of videos without their own `meta`. docs/guide/video.md has the rule.',
      z
        .strictObject({
          min: result('Minimum frames of a segment. A shorter one is an error.', positiveInteger.default(4)),
          max: result('Maximum frames of a segment.', positiveInteger.default(8)),
          interval: result('Seconds per frame.', positive.default(2)),
          as: result(
            "The form of a clip. 'video': frames with times, which some models merge in pairs. 'images': each frame is a separate image without a time. Training servers only accept images.",
            z.enum(['video', 'images']).default('video'),
          ),
        })
        .refine(({ min, max }) => min <= max, { path: ['min'], error: 'at most data.frames.max' })
        .prefault({}),
    ),
    tiny: section('The embedded tiny world in motion. null means your own data.', tinyClips.nullable().default(null)),
  }),
);

const imageEditSource = z.strictObject({
  path: result(
    'Image edits in rows: JSON lines (.jsonl), a parquet file, or a folder of such files.',
    z.string().min(1),
    { relativeTo: 'data.dir' },
  ),
  media: operation(
    'The folder of the images. null means the folder of the list.',
    z.string().min(1).nullable().default(null),
  ),
  coefficient: source.shape.coefficient,
});

export const imageEditData = section(
  'Training and held-out image edits.',
  z.strictObject({
    dir: places.dir,
    train: section('Training sources.', z.array(imageEditSource)),
    validation: section('Held-out sources.', z.array(imageEditSource)),
    columns: section(
      'The columns of a row that are read.',
      z
        .strictObject({
          source: result('The image file, or a list of files. The first one is edited.', column.default('source')),
          instruction: result('The instruction.', column.default('instruction')),
          response: result(
            'The labeled description of the edit, for supervised training. Optional.',
            column.default('response'),
          ),
          target: result(
            'The file of the edited image, for training an editor and for rewards that compare with it. Optional.',
            column.default('target'),
          ),
        })
        .prefault({}),
    ),
    tiny: section('The embedded tiny world. null means your own data.', tinyImageEdits.nullable().default(null)),
  }),
);
