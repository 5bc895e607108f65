/** The results of the tools of `editrl mcp`: the documents that the verbs print with `--json`. */
import { z } from 'zod';

/** JSON has only finite numbers, so others are strings. */
const number = z.union([z.number(), z.enum(['NaN', 'Infinity', '-Infinity'])]);
const texts = z.array(z.string());
const words = z.record(z.string(), z.string());
const obstacles = z
  .array(z.object({ run: z.string(), message: z.string() }))
  .describe('what prevents runs on this machine, and what to do');
const estimate = z.looseObject({ mean: number, stderr: number.nullable() }).describe('a mean and its standard error');
const beforeAfter = z.looseObject({ before: estimate.nullable(), after: estimate.nullable() });

/** The end of a command that was started. */
const ended = z
  .string()
  .nullable()
  .describe(
    'how the command ended, with the end of what it printed; null while it goes on, whatever becomes of this server',
  );

const planned = z.looseObject({
  run_name: z.string(),
  axes: words,
  state: z
    .string()
    .describe(
      'new, changed (its folder was made with other settings), extended (finished with fewer iterations than are set), or what its folder says',
    ),
  parents: texts,
  devices: z.number(),
  memory_bytes: z.number().nullable(),
  memory_advice: z.string().nullable().describe('what to do if it does not fit; null if it fits'),
  differs: z.record(z.string(), z.unknown()),
  seconds_left: z.number().nullable(),
});

export const planResult = z.looseObject({
  experiment: z.string(),
  cells: z.array(planned),
  parents: z.array(planned).describe('runs that cells start from'),
  at_once: z
    .looseObject({ most: z.number(), unbounded: z.number(), unbounded_bytes: z.number(), free_bytes: z.number() })
    .nullable()
    .describe('how many runs a sweep starts at once on the CPU, where memory is for fewer than the cores'),
  downloads: texts,
  obstacles,
  warnings: texts,
});

const status = z.looseObject({
  run_name: z.string(),
  state: z.string().describe('queued, running, waiting, finished, failed, interrupted, dead or unreadable'),
  iteration: z.number(),
  num_iterations: z.number(),
  reward: number.nullable().describe("mean training reward of the last iteration, on the reward's own scale"),
  alarms: texts,
  heartbeat_age_s: z.number().nullable(),
  where: z.string().nullable(),
  reason: z.string().nullable().describe('why it waits, failed or was interrupted'),
});

export const statusResult = z.looseObject({
  runs: z.array(status),
  problems: texts.describe('why a cluster could not be asked'),
  started: z.array(z.object({ name: z.string(), command: z.string(), ended })).describe('what this server has started'),
});

export const startedResult = z.looseObject({
  name: z.string().describe('the run_name or the experiment, to watch with status'),
  exp_dir: z.string(),
  command: z.string(),
  ended,
});

const runReport = z.looseObject({
  run_name: z.string(),
  state: z.string(),
  reason: z.string().nullable(),
  iteration: z.number(),
  num_iterations: z.number(),
  heldout: z
    .looseObject({
      metric: z.string().nullable(),
      scale: z.looseObject({ label: z.string(), most: z.number().nullable() }).nullable(),
      before: number.nullable(),
      after: number.nullable(),
      numbers: z.array(
        beforeAfter.extend({ by: z.string().nullable(), manner: z.string(), set: z.string().nullable() }),
      ),
    })
    .describe('held-out results before training and at the last evaluation'),
});

const difference = z
  .looseObject({ mean: number, stderr: number.nullable(), n: z.number() })
  .describe('a mean of paired differences, its standard error (null for a single pair), and the number of pairs');

const results = z.looseObject({
  metric: z.string().nullable(),
  less_is_better: z.boolean(),
  incomparable: z.string().nullable().describe('why cells are not compared; null if they are'),
  baseline: words.nullable(),
  cells: z
    .array(z.looseObject({ axes: words, is_baseline: z.boolean(), difference: difference.nullable() }))
    .describe('best first; difference: from the baseline cell, paired by seed'),
});

export const reportResult = z.looseObject({
  run: runReport.optional().describe('where a run was asked for'),
  experiment: z
    .looseObject({
      experiment: z.string(),
      runs: z.array(z.looseObject({ run_name: z.string(), state: z.string(), problem: z.string().nullable() })),
      results,
    })
    .optional()
    .describe('where an experiment was asked for'),
});

export const compareResult = z.looseObject({
  runs: z.array(runReport),
  paired: z
    .array(
      z.looseObject({
        run_name: z.string(),
        by: z.string().nullable(),
        manner: z.string(),
        mean: number,
        stderr: number.nullable(),
        n: z.number(),
      }),
    )
    .describe(
      'how much higher than the first run, prompt by prompt, at the last evaluation; over seeds use an experiment',
    ),
  settings: z
    .array(z.looseObject({ key: z.string(), values: z.array(z.unknown()) }))
    .nullable()
    .describe('settings that are not the same'),
  remarks: texts,
});

export const checkResult = z.looseObject({
  configs: z.array(
    z.looseObject({
      file: z.string(),
      ok: z.boolean(),
      error: z.string().optional(),
      run_name: z.string().optional(),
      warnings: texts.optional(),
      in_the_way: obstacles.optional(),
      notes: texts.optional(),
    }),
  ),
});

export const schemaResult = z.looseObject({
  schema: z.record(z.string(), z.unknown()).optional().describe('a JSON Schema'),
  explanations: z
    .array(
      z.looseObject({
        key: z.string(),
        meaning: z.string(),
        type: z.string(),
        default: z.string().nullable(),
        effect: z.string().nullable(),
        recipes: texts,
      }),
    )
    .optional()
    .describe('where a key was asked for'),
});
