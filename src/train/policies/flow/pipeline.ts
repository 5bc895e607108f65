/** Noise levels of a pipeline, according to its scheduler's file, and checks of all of its parts. */
import { join } from 'node:path';
import { z } from 'zod';
import { CheckpointError, ConfigError } from '../../../core/errors.js';
import { PipelineTextEncoder } from '../../environments/pipeline_text.js';
import { PIPELINE_FILE, readJson } from '../../../models/files.js';
import { partFolder, type Pipeline, type PipelineFamily } from '../../../models/pipeline.js';
import { describeAutoencoder } from '../../../models/networks/autoencoder.js';
import { checkFrozenFlow } from './load.js';
import { flowModelTypes, shifted, shiftedEven, shiftedTwice, type FlowModelType } from './model_types.js';

const SCHEDULER_FILE = join('scheduler', 'scheduler_config.json');

const no = z.literal(false, 'only false is supported').nullish();
const scheduler = z.strictObject({
  _class_name: z.literal('FlowMatchEulerDiscreteScheduler'),
  _diffusers_version: z.string().nullish(),
  num_train_timesteps: z.literal(1000).default(1000),
  shift: z.number().positive().default(1),
  use_dynamic_shifting: z.boolean().default(false),
  base_shift: z.number().nullable().default(0.5),
  max_shift: z.number().nullable().default(1.15),
  base_image_seq_len: z.int().nullable().default(256),
  max_image_seq_len: z.int().nullable().default(4096),
  shift_terminal: z.null('only null is supported').optional(),
  time_shift_type: z.literal('exponential').nullish(),
  invert_sigmas: no,
  use_karras_sigmas: no,
  use_exponential_sigmas: no,
  use_beta_sigmas: no,
  stochastic_sampling: no,
});
type Scheduler = z.output<typeof scheduler>;

interface Family {
  /** Levels shifted by the size of an image, with the scheduler's file. Null if shifting is not supported. */
  readonly dynamic: ((scheduler: Scheduler, where: string) => FlowModelType) | null;
  /** Levels that do not depend on the size. */
  readonly fixed: (shift: number, steps: number) => number[];
}

const families: Readonly<Record<PipelineFamily, Family>> = {
  flux: {
    dynamic: (read, where) => {
      const spread = spreadOf(read, where);
      return { sigmas: (steps, tokens) => shifted(spread, steps, tokens) };
    },
    fixed: shiftedEven,
  },
  // The pipeline computes the shift itself, whatever the scheduler's file contains.
  flux2: { dynamic: () => flowModelTypes.flux2, fixed: shiftedEven },
  sd3: { dynamic: null, fixed: shiftedTwice },
};

/** Raises CheckpointError for a scheduler of another class, and for settings that are not supported. */
export function pipelineSchedule(pipeline: Pipeline): FlowModelType {
  const where = join(pipeline.folder, SCHEDULER_FILE);
  const parsed = scheduler.safeParse(readJson(where));
  if (!parsed.success) {
    const [issue] = parsed.error.issues;
    throw new CheckpointError(`the scheduler: ${[...issue.path, issue.message].join(': ')}`, { where });
  }
  const { shift, use_dynamic_shifting: isDynamic } = parsed.data;
  const { dynamic, fixed } = families[pipeline.form.family];
  if (!isDynamic) return { sigmas: (steps) => fixed(shift, steps) };
  if (dynamic === null) {
    throw new CheckpointError(`the scheduler: use_dynamic_shifting: only false is supported for ${pipeline.name}`, {
      where,
    });
  }
  return dynamic(parsed.data, where);
}

function spreadOf(
  { base_shift: low, max_shift: high, base_image_seq_len: few, max_image_seq_len: many }: Scheduler,
  where: string,
) {
  if (low === null || high === null || few === null || many === null || few === many) {
    throw new CheckpointError(
      'the scheduler shifts noise levels by image size, but its config has no parameters for that',
      { where },
    );
  }
  return { from: [few, low], to: [many, high], terminal: null } as const;
}

/** Raises ConfigError if a pipeline belongs to another family than `model_type` names. */
export function requireFamily({ name, folder, form }: Pipeline, modelType: string): void {
  if (form.family === modelType) return;
  throw new ConfigError(`environment.model_type is '${modelType}', but the model is a ${name}`, {
    where: join(folder, PIPELINE_FILE),
    next: `Set environment.model_type to '${form.family}'.`,
  });
}

/** Raises CheckpointError for guidance of a model that was distilled to do without. `scale` is the key of the guidance. */
export function requireGuidable({ folder, isDistilled }: Pipeline, guidance: number | null, scale: string): void {
  if (guidance === null || !isDistilled) return;
  throw new CheckpointError(`${scale} is set, but the model was distilled and has no guidance`, {
    where: join(folder, PIPELINE_FILE),
    next: `Set ${scale} to null, or name the base model.`,
  });
}

/** Checks a whole pipeline as a frozen model of the family `said`, without reading weights. Raises the errors of opening it. */
export function checkPipeline(pipeline: Pipeline, modelType: string, guidance: number | null): void {
  requireFamily(pipeline, modelType);
  requireGuidable(pipeline, guidance, 'environment.guidance_scale');
  checkFrozenFlow(partFolder(pipeline, 'transformer'), guidance);
  void pipelineSchedule(pipeline);
  void describeAutoencoder(partFolder(pipeline, 'vae'));
  void new PipelineTextEncoder(pipeline);
}
