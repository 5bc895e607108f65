/** The schema of an experiment file, without the settings, which only Jsonnet evaluates. */
import { z } from 'zod';
import { rewardForms } from '../recipes.js';

/** Values of some axes. It matches every cell that has them. */
const partialCell = z.record(z.string(), z.string()).meta({ allowed: "{ axis: 'value' }, of some of the axes" });

/** Top-level fields of an object of settings, which only Jsonnet evaluates. */
const settingsFields = z
  .array(z.string())
  .meta({ type: 'object', items: undefined, allowed: 'an object of settings, such as { seed: 1 }' });

function partialCells(description: string) {
  return z.array(partialCell).default([]).meta({ description, allowed: "a list, such as [{ axis: 'value' }]" });
}

/**
 * An experiment's description as Jsonnet reports it: `true` for a base that is an object, the top-level fields of axis values and overrides, and the type
 * of anything else in these places. The JSON Schema below describes files instead.
 */
export const descriptionSchema = () =>
  z.strictObject({
    name: z
      .string()
      .min(1)
      .optional()
      .meta({ description: 'The first part of the run names. Default: the name of the file.' }),
    base: z.union([z.literal(true).meta({ type: 'object', const: undefined }), z.string()]).meta({
      description: 'The base config of every cell, or the name of the axis whose values are configs.',
      allowed: "a config (base: import 'CONFIG.jsonnet'), or the name of the axis whose values are configs",
    }),
    with: z.array(z.string().min(1)).default([]).meta({
      description: 'Overlays, relative to the experiment file. They also apply to parents.',
      allowed: "a list of files, such as ['../configs/lib/tiny.libsonnet']",
    }),
    axes: z
      .record(
        z.string(),
        z.record(z.string(), settingsFields).meta({ allowed: 'an object with a mixin for each value' }),
        { error: 'an object' },
      )
      .default({})
      .meta({
        description: 'The mixin of each value of each axis: { axis: { value: { … }, other: { … } } }.',
        allowed: 'an object of axes, each with a mixin for each value: { axis: { value: { … }, other: { … } } }',
      }),
    design: z.enum(['product', 'one_factor', 'leave_one_out']).default('product').meta({
      description: 'The cells of the matrix: all combinations, one change at a time, or all changes but one.',
    }),
    zip: z
      .array(
        z.union([z.array(z.string()).min(2), z.record(z.string(), z.array(z.string()).min(1))]).meta({
          allowed: "a list of two or more axes, as in zip: [['a', 'b']], or { a: ['1', '2'], b: ['x', 'y'] }",
        }),
      )
      .default([])
      .meta({
        description: "Axes that go together: ['a', 'b'] pairs equal names, {a: [...], b: [...]} pairs by position.",
        allowed: "a list of groups of axes, as in zip: [['a', 'b']]",
      }),
    include: partialCells('Cells to add, regardless of design, zip and exclude.'),
    exclude: partialCells('Cells to leave out.'),
    overrides: z
      .array(
        z.strictObject({ cell: partialCell, set: settingsFields }).meta({
          allowed: "{ cell: { axis: 'value' }, set: { … } }",
        }),
      )
      .default([])
      .meta({
        description: 'Settings for some cells only, merged over their axes: {cell: {axis: value}, set: {...}}.',
        allowed: "a list, such as [{ cell: { axis: 'value' }, set: { … } }]",
      }),
    share: z
      .array(z.string())
      .default([])
      .meta({ description: 'Axes that also apply to parents.', allowed: "a list of axes, such as ['seed']" }),
    baseline: partialCell.nullable().default(null).meta({
      description: 'The values that other cells are compared with. Axes without a value here are repetitions.',
    }),
    measure: rewardForms().measures.default([]).meta({
      description:
        'Terms that score the held-out answers of every cell and compare the cells, independent of the training reward: validation.measure of every cell. The first one ranks the cells. Without a measure, cells are compared by their reward if all have the same.',
      allowed: "a term's name, {name: 'ocr', …} with its fields, or a list of these",
    }),
  });
export type Description = Omit<z.output<ReturnType<typeof descriptionSchema>>, 'measure'> & {
  /** The terms as given, in canonical form. */
  readonly measure: unknown;
};

/** JSON Schema of an experiment file. Every key has a `description`. */
export function experimentSchema(): Record<string, unknown> {
  return z.toJSONSchema(descriptionSchema(), { io: 'input' });
}
