/** The schema of an experiment file's matrix, without the settings themselves, which only Jsonnet sees completely. */
import { z } from 'zod';
import { rewardForms } from '../recipes.js';

/** Values of some axes; in `include`, `exclude` and `overrides` it matches every cell that has them. */
const partialCell = z.record(z.string(), z.string()).meta({ allowed: "{ axis: 'value' }, of some of the axes" });

/** Top-level fields of an object of settings; only Jsonnet sees the object itself. */
const settingsFields = z
  .array(z.string())
  .meta({ type: 'object', items: undefined, allowed: 'an object of settings, such as { seed: 1 }' });

function partialCells(description: string) {
  return z.array(partialCell).default([]).meta({ description, allowed: "a list, such as [{ axis: 'value' }]" });
}

/**
 * An experiment's description as Jsonnet reports it: a base that is an object is given as `true`, the settings of axis values and overrides as the
 * fields that they set at their top level, and anything else in these places by its type. The JSON Schema (see below) has the form of a file instead.
 */
export const descriptionSchema = () =>
  z.strictObject({
    name: z
      .string()
      .min(1)
      .optional()
      .meta({ description: "Begins every cell's run_name; the file's stem by default." }),
    base: z.union([z.literal(true).meta({ type: 'object', const: undefined }), z.string()]).meta({
      description: 'The config that every cell is made from, or the name of the axis whose values are configs.',
      allowed: "a config (base: import 'CONFIG.jsonnet'), or the name of the axis whose values are configs",
    }),
    with: z.array(z.string().min(1)).default([]).meta({
      description: 'Overlays, relative to the experiment file; they reach the parents too.',
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
        description: 'By axis and value, the mixin that is added: { axis: { value: { … }, other: { … } } }.',
        allowed: 'an object of axes, each with a mixin for each value: { axis: { value: { … }, other: { … } } }',
      }),
    design: z
      .enum(['product', 'one_factor', 'leave_one_out'])
      .default('product')
      .meta({ description: 'Which cells there are.' }),
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
    include: partialCells('Cells that are there in any case, whatever the design and exclude say.'),
    exclude: partialCells('Cells that are left out.'),
    overrides: z
      .array(
        z.strictObject({ cell: partialCell, set: settingsFields }).meta({
          allowed: "{ cell: { axis: 'value' }, set: { … } }",
        }),
      )
      .default([])
      .meta({
        description: 'Settings for some cells alone, over those of their axes: {cell: {axis: value}, set: {...}}.',
        allowed: "a list, such as [{ cell: { axis: 'value' }, set: { … } }]",
      }),
    share: z
      .array(z.string())
      .default([])
      .meta({ description: 'Axes that reach the parents.', allowed: "a list of axes, such as ['seed']" }),
    baseline: partialCell
      .nullable()
      .default(null)
      .meta({ description: 'The values that others are compared with; axes that it does not name are repetitions.' }),
    measure: rewardForms().measures.default([]).meta({
      description:
        "Terms that the held-out answers of every cell are scored by, and that cells are compared by, apart from the reward that each is trained on: validation.measure of every cell. The first decides the order. Without one, cells are compared by their reward where all have the same, and not at all where they don't.",
      allowed: "a term's name, {name: 'ocr', …} with its fields, or a list of these",
    }),
  });
export type Description = Omit<z.output<ReturnType<typeof descriptionSchema>>, 'measure'> & {
  /** The terms as given, in canonical form. */
  readonly measure: unknown;
};

/** JSON Schema of an experiment file; every key has a `description`. */
export function experimentSchema(): Record<string, unknown> {
  return z.toJSONSchema(descriptionSchema(), { io: 'input' });
}
