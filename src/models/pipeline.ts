/**
 * A folder with all models of an image model, as diffusers saves a pipeline: model_index.json, and a folder for each
 * part.
 */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { z } from 'zod';
import { CheckpointError } from '../core/errors.js';
import { PIPELINE_FILE, readJson } from './files.js';

/** A text encoder and its tokenizer, by the names of their folders. */
export interface TextPart {
  readonly encoder: string;
  readonly tokenizer: string;
}

interface PipelineForm {
  /** Its value of `model_type`. */
  readonly family: 'flux' | 'sd3';
  readonly transformer: string;
  /** The class of the encoders of `clips`. */
  readonly clip: 'CLIPTextModel' | 'CLIPTextModelWithProjection';
  readonly clips: readonly TextPart[];
  readonly t5: TextPart;
  /** Whether it works without its T5. */
  readonly dropsT5: boolean;
  /** Tokens of a prompt that T5 reads. */
  readonly t5Length: number;
}

const flux: PipelineForm = {
  family: 'flux',
  transformer: 'FluxTransformer2DModel',
  clip: 'CLIPTextModel',
  clips: [{ encoder: 'text_encoder', tokenizer: 'tokenizer' }],
  t5: { encoder: 'text_encoder_2', tokenizer: 'tokenizer_2' },
  dropsT5: false,
  t5Length: 512,
};

/** By the class of the pipeline. */
const forms = {
  FluxPipeline: flux,
  FluxFillPipeline: flux,
  FluxKontextPipeline: flux,
  StableDiffusion3Pipeline: {
    family: 'sd3',
    transformer: 'SD3Transformer2DModel',
    clip: 'CLIPTextModelWithProjection',
    clips: [
      { encoder: 'text_encoder', tokenizer: 'tokenizer' },
      { encoder: 'text_encoder_2', tokenizer: 'tokenizer_2' },
    ],
    t5: { encoder: 'text_encoder_3', tokenizer: 'tokenizer_3' },
    dropsT5: true,
    t5Length: 256,
  },
} as const satisfies Readonly<Record<string, PipelineForm>>;

/** The classes of pipelines that can be read. */
export const pipelineClasses: readonly string[] = Object.keys(forms);
/** The families of noise schedules that they belong to. */
export type PipelineFamily = PipelineForm['family'];

export interface Pipeline {
  readonly name: string;
  readonly folder: string;
  readonly form: PipelineForm;
  /** Null for a model without one. */
  readonly t5: TextPart | null;
}

/** The folder of a part. */
export function partFolder({ folder }: Pick<Pipeline, 'folder'>, part: string): string {
  return join(folder, part);
}

/** The folders of the parts that have weights. */
export function weightedParts({ form, t5 }: Pick<Pipeline, 'form' | 't5'>): string[] {
  const texts = [...form.clips, ...(t5 === null ? [] : [t5])];
  return ['transformer', 'vae', ...texts.map(({ encoder }) => encoder)];
}

/** The folders of all parts that any pipeline has. */
export const PART_FOLDERS: readonly string[] = [
  ...new Set(Object.values<PipelineForm>(forms).flatMap((form) => Object.keys(partsOf(form)))),
];

export function isPipeline(folder: string): boolean {
  return existsSync(join(folder, PIPELINE_FILE));
}

const entry = z.tuple([z.string().nullable(), z.string().nullable()]);
const index = z.looseObject({ _class_name: z.string() });

/**
 * Reads a pipeline's model_index.json. Raises CheckpointError for another class, for parts of other classes, and for
 * unknown parts.
 */
export function readPipeline(folder: string): Pipeline {
  const where = join(folder, PIPELINE_FILE);
  const parsed = index.safeParse(readJson(where));
  const name = parsed.success ? parsed.data._class_name : null;
  if (!parsed.success || name === null || !Object.hasOwn(forms, name)) {
    const found = name === null ? 'it names no _class_name' : `_class_name '${name}' is not supported`;
    throw new CheckpointError(`${found}; allowed: ${pipelineClasses.join(', ')}`, {
      where,
      next: 'Name the folder of a pipeline of one of these classes, or the folders of a transformer and its other models.',
    });
  }
  const form: PipelineForm = forms[name as keyof typeof forms];
  const wanted = partsOf(form);
  const has = (part: string): boolean => classOf(parsed.data[part], part, where) !== null;
  for (const [part, classes] of Object.entries(wanted)) requirePart(parsed.data[part], part, classes, where);
  for (const part of Object.keys(parsed.data).filter((key) => !key.startsWith('_') && !Object.hasOwn(wanted, key))) {
    requirePart(parsed.data[part], part, [null], where);
  }
  const { encoder, tokenizer } = form.t5;
  if (has(encoder) !== has(tokenizer)) {
    throw new CheckpointError(`it has only one of ${encoder} and ${tokenizer}`, { where });
  }
  return { name, folder, form, t5: has(encoder) ? form.t5 : null };
}

/** Raises CheckpointError if a part named in model_index.json is missing. */
export function requireParts(pipeline: Pipeline): void {
  const { folder, form, t5 } = pipeline;
  const texts = [...form.clips, ...(t5 === null ? [] : [t5])].flatMap(({ encoder, tokenizer }) => [encoder, tokenizer]);
  const missing = ['transformer', 'scheduler', 'vae', ...texts].filter(
    (part) => !existsSync(partFolder(pipeline, part)),
  );
  if (missing.length === 0) return;
  const isT5 = form.dropsT5 && missing.every((part) => Object.values(form.t5).includes(part));
  throw new CheckpointError(`${PIPELINE_FILE} names ${missing.join(' and ')}, but there is no such folder`, {
    where: folder,
    next: `Copy the whole model${isT5 ? `, or set ${form.t5.encoder} and ${form.t5.tokenizer} to [null, null] there: it works without T5` : ''}.`,
  });
}

type PartClasses = readonly (string | null)[];

/** The allowed classes of each part; null if it may be missing. */
function partsOf({ transformer, clip, clips, t5, dropsT5 }: PipelineForm): Readonly<Record<string, PartClasses>> {
  const missing = dropsT5 ? [null] : [];
  return {
    transformer: [transformer],
    scheduler: ['FlowMatchEulerDiscreteScheduler'],
    vae: ['AutoencoderKL'],
    ...Object.fromEntries(
      clips.flatMap(({ encoder, tokenizer }) => [
        [encoder, [clip]],
        [tokenizer, ['CLIPTokenizer', 'CLIPTokenizerFast']],
      ]),
    ),
    [t5.encoder]: ['T5EncoderModel', ...missing],
    [t5.tokenizer]: ['T5TokenizerFast', 'T5Tokenizer', ...missing],
  };
}

/** The class of a part; null if there is none. */
function classOf(value: unknown, part: string, where: string): string | null {
  if (value === undefined) return null;
  const parsed = entry.safeParse(value);
  if (parsed.success) return parsed.data[1];
  throw new CheckpointError(`${part} is not [library, class]`, { where });
}

function requirePart(value: unknown, part: string, classes: PartClasses, where: string): void {
  const found = classOf(value, part, where);
  if (classes.includes(found)) return;
  const shown = (name: string | null): string => name ?? 'none';
  throw new CheckpointError(`${part} is ${shown(found)}; allowed: ${classes.map(shown).join(', ')}`, { where });
}
