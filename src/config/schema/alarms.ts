/** Thresholds of reward hacking alarms, mostly relative to the first iterations. */
import { z } from 'zod';
import { operation, positive, section } from '../../core/schema/mark.js';

/** Limits of one statistic. null means none. */
export interface AlarmLimits {
  /** Maximum fall and rise from the first iterations. */
  readonly max_fall: number | null;
  readonly max_rise: number | null;
  /** Maximum value. */
  readonly max: number | null;
}

const limits = (fall: number | null, rise: number | null): AlarmLimits => ({
  max_fall: fall,
  max_rise: rise,
  max: null,
});
const atMost = (max: number): AlarmLimits => ({ max_fall: null, max_rise: null, max });

/** Default limits of each alarm. `train/observers/hack_alarms.ts` has their units. */
const DEFAULTS = {
  edge_density: limits(0.4, 1),
  colour_entropy: limits(0.4, null),
  dark_fraction: limits(null, 0.25),
  saturation: limits(0.6, 0.6),
  sharpness: limits(0.5, 1.5),
  grid: limits(null, 0.03),
  changed_fraction: limits(null, 0.3),
  source_similarity: limits(2, 0.8),
  repeat_rate: limits(null, 0.2),
  answer_length: limits(0.5, 1),
  repeated_words: limits(null, 0.15),
  prompt_copy: limits(null, 0.4),
  at_token_limit: limits(null, 0.25),
  second_gap: limits(null, 0.25),
  no_picture: atMost(0.5),
  unscored: atMost(0.2),
  at_limit: atMost(0.1),
} as const satisfies Readonly<Record<string, AlarmLimits>>;
export type AlarmName = keyof typeof DEFAULTS;
export const alarmNames = Object.keys(DEFAULTS) as readonly AlarmName[];

const limit = positive.nullable().optional();

export const alarms = section(
  'Warnings of reward hacking, from statistics of the last five iterations, compared with the first five. They only warn. null means none.',
  z
    .strictObject({
      limits: operation(
        `Limits by alarm that replace the defaults: max_fall and max_rise from the first iterations, max for the value itself. null means no limit. docs/guide/rewards.md has the units. Alarms: ${alarmNames.join(', ')}.`,
        z
          .partialRecord(z.enum(alarmNames), z.strictObject({ max_fall: limit, max_rise: limit, max: limit }))
          .default({}),
        { allowed: `{ALARM: {max_fall, max_rise, max}}, with alarms of ${alarmNames.join(', ')}` },
      ),
    })
    .nullable()
    .prefault({}),
);
export type AlarmSettings = NonNullable<z.output<typeof alarms>>;

/** The limits of an alarm. `given`: `track.alarms.limits.NAME`, completed by the defaults. */
export function alarmLimitsOf(name: AlarmName, given: unknown): AlarmLimits {
  return { ...DEFAULTS[name], ...(given as Partial<AlarmLimits> | undefined) };
}
