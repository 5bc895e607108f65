/**
 * The recipe `image_editor`: a flow-matching model edits images by instructions. It learns from labeled edits by flow matching, or from rewards by GRPO
 * on its noisy steps or by DiffusionNFT. The instruction reaches it as the hidden states of a frozen vision-language model, through a text encoder, or
 * in the tiny world word by word.
 */
import { z } from 'zod';
import { reward } from '../../rewards/schema/reward.js';
import { withMeasure } from '../../rewards/score/settings.js';
import { flowAlgorithm } from '../../config/schema/algorithm.js';
import { imageEditData } from '../../config/schema/seen_data.js';
import { editorReads, maxEditedPixels } from '../../config/schema/editor.js';
import { idleWhere, result, section } from '../../core/schema/mark.js';
import type { ImageSize } from '../../data/image_files.js';
import { flowInitDescription, flowInitFields } from '../../config/schema/image_model.js';
import { flowEngine, lora, neededModel, optionalModel, readingEngine } from '../../config/schema/model.js';
import { taskField, trainedFields } from '../../config/schema/run.js';
import {
  problem,
  whenSet,
  requireMultiple,
  validSection,
  type PartialSettings,
  type Problem,
  type Rule,
} from '../../config/schema/rules.js';
import { seeingFields, seeingPrompt } from '../../config/schema/token_policy.js';
import { flowRollout, flowValidation } from '../../config/schema/training.js';
import { flowPolicyRules } from '../shared/flow/rules.js';
import { finalDropout, flowPolicyLearner, freshFlowShape, reductionOf } from '../shared/flow/settings.js';
import {
  flowAdapterParameters,
  flowModelParameters,
  frozenBytes,
  frozenWordsBytes,
  type DataSizes,
  type FlowModelShape,
  type ShapeOf,
} from '../shared/memory.js';
import { preset, startMissing } from '../recipe.js';
import { rewardRules } from '../shared/rules/reward.js';
import { groupRules, isSupervised, sharedRules, wholeBatches } from '../shared/rules/training.js';
import { idleClip } from '../shared/tokens/settings.js';

const { pixels, model_context_size } = seeingFields;

const policy = section(
  'The model that edits.',
  z.strictObject({
    model: optionalModel(
      'The initial weights: a local path, {hub, revision} or {run, config}. null trains policy.init.',
      'with policy.init',
    ),
    init: section(flowInitDescription, z.strictObject(flowInitFields))
      .nullable()
      .default(null)
      .meta({ description: 'The architecture if policy.model is null.' }),
    model_type: result(
      'The model family, which decides how noise levels are spaced.',
      z.enum(['tiny', 'flux', 'flux2', 'qwen']).default('tiny'),
    ),
    lora: lora
      .nullable()
      .default(null)
      .meta({ ...lora.meta() }),
    max_pixels: maxEditedPixels,
    parts: section(
      'The frozen models around it.',
      z
        .strictObject({
          vae: optionalModel('The autoencoder between images and latents.', 'for pixels themselves'),
          text_encoder: optionalModel(
            'The text encoder of instructions, if no reader reads them.',
            'with a reader, or for the words of the tiny world',
          ),
        })
        .prefault({}),
    ),
    engine: flowEngine,
  }),
);

const reader = section(
  'A frozen vision-language model that reads the images and the instruction. Its hidden states condition the editor.',
  z.strictObject({
    model: neededModel('A local path, {hub, revision} or {run, config}.'),
    told: editorReads,
    pixels,
    model_context_size,
    engine: readingEngine,
  }),
);

const schema = z.strictObject({
  ...trainedFields,
  ...taskField('image_editor'),
  validation: withMeasure(flowValidation),
  algorithm: flowAlgorithm,
  rollout: idleWhere(isSupervised, flowRollout),
  policy,
  reader: reader
    .nullable()
    .default(null)
    .meta({ ...reader.meta(), description: `${reader.description} null uses policy.parts.text_encoder.` }),
  prompt: seeingPrompt,
  data: imageEditData,
  reward: idleWhere(isSupervised, reward),
});
export type ImageEditorSettings = z.output<typeof schema>;

type Settings = PartialSettings<ImageEditorSettings>;

const editorRules: readonly Rule<ImageEditorSettings>[] = [...flowPolicyRules, adapters, wholeTokens, readOnce];

/** LoRA trains over weights of a model, and only then are there frozen weights. */
function adapters({ policy }: Settings): readonly Problem[] {
  return [
    ...whenSet([validSection(policy?.lora), validSection(policy?.init)], () =>
      problem('policy.lora', 'found with random base weights (policy.init); allowed: with policy.model, or null'),
    ),
    ...(policy?.engine?.dtype === 'float16' && policy.lora === null
      ? problem(
          'policy.engine.dtype',
          "found 'float16' without adapters (policy.lora: null); allowed: with policy.lora, which leaves the weights frozen, or 'float32'",
        )
      : []),
  ];
}

/** Scenes of the tiny world have to be whole tokens. */
function wholeTokens({ policy, data }: Settings): readonly Problem[] {
  const { grid, cell } = data?.tiny ?? {};
  const side = grid === undefined || cell === undefined ? undefined : grid * cell;
  if (policy?.parts?.vae !== null) return [];
  return requireMultiple(
    ['data.tiny.grid x data.tiny.cell', side],
    ['policy.init.patch', policy.init?.patch],
    'so that an image is whole tokens',
  );
}

/** Only one model reads the instructions. */
function readOnce({ policy, reader }: Settings): readonly Problem[] {
  return whenSet([policy?.parts?.text_encoder, validSection(reader)], () =>
    problem('reader', 'found both reader and policy.parts.text_encoder; allowed: one of them'),
  );
}

export const imageEditor = preset<ImageEditorSettings>({
  name: 'image_editor',
  schema,
  pipeline: 'image-to-image',
  usedAt: { key: 'policy.model', of: 'image_editor' },
  parts: [
    { rules: [...groupRules, ...sharedRules, wholeLabels, ...editorRules] },
    {
      models: ['policy.parts.vae', 'policy.parts.text_encoder', 'reader.model'],
      engines: ['reader.engine'],
      learns: flowPolicyLearner(shapeOfModel, trainedOf, sizesOf),
      warnings: (settings) => [...idleClip(settings), ...idlePrompt(settings)],
      missing: (settings) => [...startMissing(settings), ...partsMissing(settings)],
    },
    { rules: rewardRules },
  ],
});

/** The frozen models that the editor needs and that are not named. The tiny world has its own words, and edits pixels. */
function partsMissing({ policy: { parts, model_type }, reader, data }: ImageEditorSettings): string[] {
  const tiny = 'for laptop size, use --with configs/lib/image_editor_tiny.libsonnet';
  return [
    ...(reader === null && parts.text_encoder === null && data.tiny === null
      ? [
          `reader and policy.parts.text_encoder are both null, and something has to read the instructions: name the model in one of them; ${tiny}`,
        ]
      : []),
    ...(model_type !== 'tiny' && parts.vae === null
      ? [
          `policy.parts.vae is null, and policy.model_type '${model_type}' needs it: name the folder of an autoencoder as diffusers saves it; ${tiny}`,
        ]
      : []),
  ];
}

function idlePrompt({
  prompt: { system, variables },
  reader,
}: Pick<ImageEditorSettings, 'prompt' | 'reader'>): string[] {
  if (reader !== null || (system === null && Object.keys(variables).length === 0)) return [];
  return ['prompt has no effect without a reader: a text encoder reads only the instruction'];
}

/** Batches of labels consist of whole micro-batches. Noisy steps are cut into micro-batches by their shapes. */
function wholeLabels(settings: Settings): readonly Problem[] {
  return settings.algorithm?.type === 'sft' ? wholeBatches(settings) : [];
}

function trainedOf(
  { policy: { lora } }: Pick<ImageEditorSettings, 'policy'>,
  shape: FlowModelShape,
): { readonly trained: number; readonly frozen: number } {
  const model = flowModelParameters(shape);
  return lora === null
    ? { trained: model, frozen: 0 }
    : { trained: flowAdapterParameters(shape, lora.rank), frozen: model };
}

/** The pixels of images that cannot be read yet, and the tokens of a text. */
const ASSUMED_PIXELS = 1024 ** 2;
const ASSUMED_TEXT = 512;
/** Words of an instruction of the tiny world. */
export const TINY_WORDS = 8;

/** The tokens of an edit: those of the edited image, of its sources if they are further tokens, and of the text. */
function sizesOf(
  { data, policy, reader }: ImageEditorSettings,
  { patch, mediaBeside = false }: FlowModelShape,
  shapeOf: ShapeOf,
  sizes?: DataSizes,
): { readonly tokens: number; readonly around: number } {
  const { vae, text_encoder: words } = policy.parts;
  const rows = pixelsOfRows(data, policy.max_pixels ?? Infinity, sizes);
  const drawn = rows.map(([edited, ...further]) =>
    mediaBeside ? edited : further.reduce((sum, pixels) => sum + pixels, 2 * edited),
  );
  const text = reader === null ? (words === null ? TINY_WORDS : ASSUMED_TEXT) : reader.model_context_size;
  return {
    tokens: Math.max(...drawn) / patch ** 2 + text,
    around:
      frozenBytes(vae, shapeOf, Math.max(...rows.flat())) +
      frozenWordsBytes(words, shapeOf, policy.engine.dtype) +
      (reader === null ? 0 : frozenWordsBytes(reader.model, shapeOf, reader.engine.dtype)),
  };
}

/** Pixels of the source images of each row, as they are edited. One row if no image can be read yet. */
function pixelsOfRows(
  { tiny, train, validation, columns }: ImageEditorSettings['data'],
  most: number,
  sizes?: DataSizes,
): readonly (readonly [number, ...number[]])[] {
  if (tiny !== null) return [[(tiny.grid * tiny.cell) ** 2]];
  const pixels = (size: ImageSize | null): number =>
    Math.min(most, size === null ? ASSUMED_PIXELS : size.width * size.height);
  const rows = [...train, ...validation]
    .flatMap(({ path, media }) => sizes?.shown({ path, media, column: columns.source }) ?? [])
    .flatMap(([first, ...further]) =>
      first === undefined ? [] : [[pixels(first), ...further.map(pixels)] as [number, ...number[]]],
    );
  return rows.length === 0 ? [[pixels(null)]] : rows;
}

/** Width of the hidden states of a model that does not exist yet. */
const ASSUMED_WIDTH = 1024;

export function shapeOfModel(settings: ImageEditorSettings, shapeOf: ShapeOf): FlowModelShape | null {
  const { policy, reader } = settings;
  const { init, model } = policy;
  if (init === null) {
    const found = model === null ? null : shapeOf(model);
    if (found === null || !('kind' in found) || found.kind !== 'flow') return null;
    return { ...found, conditionDropout: finalDropout(found.conditionDropout, settings) };
  }
  const reduction = reductionOf(policy.parts.vae, shapeOf);
  if (reduction === null) return null;
  const read = reader === null ? null : shapeOf(reader.model);
  return freshFlowShape(init, {
    textWidth: read === null || 'kind' in read ? ASSUMED_WIDTH : read.hidden_size,
    reduction,
    mediaBeside: true,
    conditionDropout: finalDropout(null, settings),
  });
}

/** Training of the model that reads: none. */
export const NOTHING_TRAINS = { mm_vision: false, mm_mlp: false, mm_llm: false } as const;
