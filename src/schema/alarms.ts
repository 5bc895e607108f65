/** Thresholds of hack alarms: how far the policy's outputs may move away from its first ones. */
import { z } from 'zod';
import { operation, positive, positiveInteger, section } from './mark.js';

interface Limits {
  readonly fall: number | null;
  readonly rise: number | null;
  readonly in: 'a share of its first value' | 'a share of what it first lacked to 1' | 'its own unit';
}

function statistic(description: string, limits: Limits) {
  return section(
    description,
    z
      .strictObject({
        max_fall: operation(
          `Alarm when it falls by more than this, as ${limits.in}; null means never.`,
          positive.nullable().default(limits.fall),
        ),
        max_rise: operation(
          `Alarm when it rises by more than this, as ${limits.in}; null means never.`,
          positive.nullable().default(limits.rise),
        ),
      })
      .prefault({}),
  );
}

export const alarms = section(
  "Warnings that the reward is being exploited: an iteration's statistics against those of the run's first iterations. They change nothing that the run does; null means none.",
  z
    .strictObject({
      over_iterations: operation(
        'Means over the last this many measured iterations are compared with means over the first this many.',
        positiveInteger.default(5),
      ),
      edge_density: statistic(
        'Share of pixels on an edge: falls when backgrounds die out, rises with grid artifacts.',
        {
          fall: 0.4,
          rise: 1,
          in: 'a share of its first value',
        },
      ),
      colour_entropy: statistic('Bits of the colour histogram: falls when pictures become plain.', {
        fall: 0.4,
        rise: null,
        in: 'a share of its first value',
      }),
      dark_fraction: statistic('Share of dark pixels.', { fall: null, rise: 0.25, in: 'its own unit' }),
      source_similarity: statistic('Likeness to the source image, from 0 to 1, which a copy has.', {
        fall: 2,
        rise: 0.8,
        in: 'a share of what it first lacked to 1',
      }),
      repeat_rate: statistic('Share of artifacts that were also made for another prompt.', {
        fall: null,
        rise: 0.2,
        in: 'its own unit',
      }),
      answer_length: statistic('Mean length of answers, in tokens.', {
        fall: 0.5,
        rise: 1,
        in: 'a share of its first value',
      }),
      repeated_words: statistic('Share of rows of three words that stand in the same answer before.', {
        fall: null,
        rise: 0.15,
        in: 'its own unit',
      }),
      prompt_copy: statistic("Share of an answer's rows of three words that stand in its prompt.", {
        fall: null,
        rise: 0.4,
        in: 'its own unit',
      }),
      at_token_limit: statistic('Share of answers in words that did not end by themselves.', {
        fall: null,
        rise: 0.25,
        in: 'its own unit',
      }),
      second_gap: statistic(
        'How much higher the reward is than a term of reward.also_compute, both on the scale from 0 to 1: it rises where the reward rises and the second measure does not.',
        { fall: null, rise: 0.25, in: 'its own unit' },
      ),
      no_picture: section(
        'Share of answers that no picture could be read from, where one is asked for.',
        z
          .strictObject({
            max: operation('Alarm when it is above this; null means never.', positive.nullable().default(0.5)),
          })
          .prefault({}),
      ),
      unscored: section(
        'Share of what was judged that has no score: nothing is learnt from it.',
        z
          .strictObject({
            max: operation(
              'Alarm when the mean of the last over_iterations is above this; null means never.',
              positive.nullable().default(0.2),
            ),
          })
          .prefault({}),
      ),
      at_limit: section(
        'Share of the scores at a limit of their scale, where a reward tells no differences any more; of the term with the largest.',
        z
          .strictObject({
            max: operation('Alarm when it is above this; null means never.', positive.nullable().default(0.1)),
          })
          .prefault({}),
      ),
    })
    .nullable()
    .prefault({}),
);
export type AlarmSettings = NonNullable<z.output<typeof alarms>>;
export type AlarmName = Exclude<keyof AlarmSettings, 'over_iterations'>;
