/** What an experiment file says about its matrix, apart from the settings themselves, which only Jsonnet sees whole. */
import { z } from 'zod';

/** Values of some axes; in `include`, `exclude` and `overrides` it stands for every cell that has them. */
const partialCell = z.record(z.string(), z.string());

/** Successive halving, as a sweep reads it. */
const stopEarly = z.strictObject({
  metric: z.string().min(1).default('validation/sampled/mean').meta({ description: 'What runs are compared by.' }),
  rungs: z
    .array(z.int().min(1))
    .min(1)
    .refine((rungs) => rungs.every((rung, index) => index === 0 || rung > rungs[index - 1]), {
      error: 'iterations in ascending order',
    })
    .meta({ description: 'Iterations at which runs are compared.' }),
  keep: z.number().gt(0).max(1).default(0.5).meta({ description: 'The part of them that goes on.' }),
});

/**
 * The described form of an experiment: axes are given as the fields that each value sets at its top level, a base that is an
 * object as `true`, and overrides without their settings.
 */
export const description = z.strictObject({
  name: z.string().min(1).optional().meta({ description: "Begins every cell's run_name; the file's stem by default." }),
  base: z
    .union([z.literal(true), z.string()], { error: 'a config, or the name of the axis whose values are configs' })
    .meta({
      description: 'The config that every cell is made from, or the name of the axis whose values are configs.',
    }),
  with: z
    .array(z.string().min(1))
    .default([])
    .meta({ description: 'Overlays, relative to the experiment file; they reach the parents too.' }),
  axes: z
    .record(z.string(), z.record(z.string(), z.array(z.string())))
    .default({})
    .meta({ description: 'By axis and value, the mixin that is added.' }),
  design: z
    .enum(['product', 'one_factor', 'leave_one_out'])
    .default('product')
    .meta({ description: 'Which cells there are.' }),
  zip: z
    .array(z.union([z.array(z.string()).min(2), z.record(z.string(), z.array(z.string()).min(1))]))
    .default([])
    .meta({
      description: "Axes that go together: ['a', 'b'] pairs equal names, {a: [...], b: [...]} pairs by position.",
    }),
  include: z.array(partialCell).default([]).meta({ description: 'Cells that are there in any case.' }),
  exclude: z.array(partialCell).default([]).meta({ description: 'Cells that are left out.' }),
  sample: z.int().min(1).nullable().default(null).meta({ description: 'So many of the cells, drawn by sample_seed.' }),
  sample_seed: z.int().min(0).default(0).meta({ description: 'Seed of the draw.' }),
  overrides: z
    .array(z.strictObject({ cell: partialCell }))
    .default([])
    .meta({ description: 'Settings for some cells alone: {cell: {axis: value}, set: {...}}.' }),
  share: z.array(z.string()).default([]).meta({ description: 'Axes that reach the parents.' }),
  baseline: partialCell
    .nullable()
    .default(null)
    .meta({ description: 'The values that others are compared with; axes that it does not name are repetitions.' }),
  stop_early: stopEarly.nullable().default(null).meta({ description: 'Successive halving; null means off.' }),
});
export type Description = z.output<typeof description>;

/** Options of an experiment that concern how it is run. */
export interface ExperimentOptions {
  readonly stop_early: z.output<typeof stopEarly> | null;
}
