/**
 * A folder with all models of an image model, as diffusers saves a pipeline: model_index.json, and a folder for each
 * part.
 */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { z } from 'zod';
import { CheckpointError } from '../core/errors.js';
import { CONFIG_FILE, hasWeights, PIPELINE_FILE, readJson, TOKENIZER_FILE } from './files.js';

/** A text encoder and its tokenizer, by the names of their folders. */
export interface TextPart {
  readonly encoder: string;
  readonly tokenizer: string;
}

/** The encoder whose states are a prompt's tokens, and its tokenizer. */
export interface StatesPart extends TextPart {
  readonly kind: keyof typeof stateClasses;
  /** Tokens of a prompt that it reads. */
  readonly length: number;
  /** Whether the model works without it. */
  readonly isOptional: boolean;
}

/** The classes of an encoder and its tokenizer. */
const stateClasses = {
  t5: { encoder: ['T5EncoderModel'], tokenizer: ['T5TokenizerFast', 'T5Tokenizer'] },
  qwen3: { encoder: ['Qwen3ForCausalLM'], tokenizer: ['Qwen2TokenizerFast', 'Qwen2Tokenizer'] },
} as const;

interface PipelineForm {
  /** Its value of `model_type`. */
  readonly family: 'flux' | 'flux2' | 'sd3';
  readonly transformer: string;
  readonly vae: string;
  /** The class of the encoders of `clips`. */
  readonly clip: 'CLIPTextModel' | 'CLIPTextModelWithProjection';
  readonly clips: readonly TextPart[];
  readonly states: StatesPart;
}

const flux: PipelineForm = {
  family: 'flux',
  transformer: 'FluxTransformer2DModel',
  vae: 'AutoencoderKL',
  clip: 'CLIPTextModel',
  clips: [{ encoder: 'text_encoder', tokenizer: 'tokenizer' }],
  states: { kind: 't5', encoder: 'text_encoder_2', tokenizer: 'tokenizer_2', length: 512, isOptional: false },
};

/** By the class of the pipeline. */
const forms = {
  FluxPipeline: flux,
  FluxFillPipeline: flux,
  FluxKontextPipeline: flux,
  Flux2KleinPipeline: {
    family: 'flux2',
    transformer: 'Flux2Transformer2DModel',
    vae: 'AutoencoderKLFlux2',
    clip: 'CLIPTextModel',
    clips: [],
    states: { kind: 'qwen3', encoder: 'text_encoder', tokenizer: 'tokenizer', length: 512, isOptional: false },
  },
  StableDiffusion3Pipeline: {
    family: 'sd3',
    transformer: 'SD3Transformer2DModel',
    vae: 'AutoencoderKL',
    clip: 'CLIPTextModelWithProjection',
    clips: [
      { encoder: 'text_encoder', tokenizer: 'tokenizer' },
      { encoder: 'text_encoder_2', tokenizer: 'tokenizer_2' },
    ],
    states: { kind: 't5', encoder: 'text_encoder_3', tokenizer: 'tokenizer_3', length: 256, isOptional: true },
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
  readonly states: StatesPart | null;
  /** Whether it was distilled to few steps without guidance, according to `is_distilled` in model_index.json. */
  readonly isDistilled: boolean;
}

/** The folder of a part. */
export function partFolder({ folder }: Pick<Pipeline, 'folder'>, part: string): string {
  return join(folder, part);
}

/** The folders of the parts that have weights. */
export function weightedParts(pipeline: Pick<Pipeline, 'form' | 'states'>): string[] {
  const texts = textParts(pipeline);
  return ['transformer', 'vae', ...texts.map(({ encoder }) => encoder)];
}

/** The text encoders that it has. */
function textParts({ form, states }: Pick<Pipeline, 'form' | 'states'>): readonly TextPart[] {
  return [...form.clips, ...(states === null ? [] : [states])];
}

/** The folders of all parts that any pipeline has. */
export const PART_FOLDERS: readonly string[] = [
  ...new Set(Object.values<PipelineForm>(forms).flatMap((form) => Object.keys(partsOf(form)))),
];

export function isPipeline(folder: string): boolean {
  return existsSync(join(folder, PIPELINE_FILE));
}

const entry = z.tuple([z.string().nullable(), z.string().nullable()]);
/** A setting of a pipeline that is not a part. */
const DISTILLED = 'is_distilled';
const index = z.looseObject({ _class_name: z.string(), [DISTILLED]: z.boolean().optional() });

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
  const isPart = (key: string): boolean => !key.startsWith('_') && key !== DISTILLED;
  for (const part of Object.keys(parsed.data).filter((key) => isPart(key) && !Object.hasOwn(wanted, key))) {
    requirePart(parsed.data[part], part, [null], where);
  }
  const { encoder, tokenizer } = form.states;
  if (has(encoder) !== has(tokenizer)) {
    throw new CheckpointError(`it has only one of ${encoder} and ${tokenizer}`, { where });
  }
  const isDistilled = parsed.data[DISTILLED] ?? false;
  return { name, folder, form, states: has(encoder) ? form.states : null, isDistilled };
}

/** Raises CheckpointError if a part named in model_index.json is missing, or if text parts lack files. Names all of them. */
export function requireParts(pipeline: Pipeline): void {
  const { folder, form } = pipeline;
  const texts = textParts(pipeline).flatMap(({ encoder, tokenizer }) => [encoder, tokenizer]);
  const missing = ['transformer', 'scheduler', 'vae', ...texts].filter(
    (part) => !existsSync(partFolder(pipeline, part)),
  );
  if (missing.length === 0) return requireTextFiles(pipeline);
  const { encoder, tokenizer, isOptional } = form.states;
  const isT5 = isOptional && missing.every((part) => [encoder, tokenizer].includes(part));
  throw new CheckpointError(`${PIPELINE_FILE} names ${missing.join(', ')}, but these folders are missing`, {
    where: folder,
    next: `Copy the whole model${isT5 ? `, or set ${encoder} and ${tokenizer} to [null, null] there: it works without T5` : ''}.`,
  });
}

/** The files of a tokenizer. One of them is enough to say more about it. */
const TOKENIZER_FILES = [TOKENIZER_FILE, 'vocab.json', 'spiece.model'];

function requireTextFiles(pipeline: Pipeline): void {
  const isIn = (part: string, name: string): boolean => existsSync(join(partFolder(pipeline, part), name));
  const missing = textParts(pipeline).flatMap(({ encoder, tokenizer }) => [
    ...(isIn(encoder, CONFIG_FILE) ? [] : [`${encoder}/${CONFIG_FILE}`]),
    ...(hasWeights(partFolder(pipeline, encoder)) ? [] : [`the weights of ${encoder}`]),
    ...(TOKENIZER_FILES.some((name) => isIn(tokenizer, name)) ? [] : [`${tokenizer}/${TOKENIZER_FILE}`]),
  ]);
  if (missing.length === 0) return;
  throw new CheckpointError(`the pipeline is incomplete; missing: ${missing.join(', ')}`, {
    where: pipeline.folder,
    next: 'Copy the whole model, with all files of its text encoders and tokenizers.',
  });
}

type PartClasses = readonly (string | null)[];

/** The allowed classes of each part. Null if it may be missing. */
function partsOf({ transformer, vae, clip, clips, states }: PipelineForm): Readonly<Record<string, PartClasses>> {
  const missing = states.isOptional ? [null] : [];
  const classes = stateClasses[states.kind];
  return {
    transformer: [transformer],
    scheduler: ['FlowMatchEulerDiscreteScheduler'],
    vae: [vae],
    ...Object.fromEntries(
      clips.flatMap(({ encoder, tokenizer }) => [
        [encoder, [clip]],
        [tokenizer, ['CLIPTokenizer', 'CLIPTokenizerFast']],
      ]),
    ),
    [states.encoder]: [...classes.encoder, ...missing],
    [states.tokenizer]: [...classes.tokenizer, ...missing],
  };
}

/** The class of a part. Null if there is none. */
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
