/**
 * Supported and rejected formats and models, from the tables in the code. `editrl doctor` and
 * docs/reference/coverage.md show them.
 */
import { agreementSection, type Agreements } from './agreement.js';
import { WEIGHT_DTYPES } from '../core/safetensors.js';
import { visionTokenizerTypes } from '../train/environments/vision_tokens.js';
import { pipelineClasses } from '../models/pipeline.js';
import { activations, modelTypes } from '../compute/nets/decoder/architectures.js';
import { flowClasses } from '../compute/nets/flow/config.js';
import { visionDecoderTypes } from '../compute/nets/vision/config.js';
import { flowModelTypes } from '../train/policies/flow/model_types.js';
import { PEFT_VERSION } from '../models/adapters/peft_defaults.js';
import { rejectedKeys } from '../models/adapters/peft_config.js';
import { exportedDtypes } from '../models/adapters/export.js';
import { decoderEngine } from '../config/schema/model.js';
import { samplingEngine } from '../config/schema/sampler.js';
import { trainerTypes } from '../config/schema/trainer.js';

export interface CoverageRow {
  readonly what: string;
  /** Supported names, as files and configs spell them. */
  readonly names: readonly string[];
  /** Description of what is rejected. */
  readonly refuses: string;
}

/** One row for each category. */
export function coverage(): CoverageRow[] {
  const { type, provider, dtype } = decoderEngine.unwrap().shape;
  return [
    {
      what: 'language models (`model_type`)',
      names: modelTypes,
      refuses: `every other \`model_type\`, quantized weights, activations other than ${activations.join(' and ')}, caps of scores or logits, unknown scalings of positions`,
    },
    {
      what: 'vision-language models (`model_type`)',
      names: visionDecoderTypes,
      refuses: "other vision encoders, and image processors other than Qwen's",
    },
    {
      what: 'image tokenizers (`model_type`)',
      names: [...visionTokenizerTypes, 'those trained here'],
      refuses: 'every other `model_type`, and unused settings and tensors',
    },
    {
      what: 'flow transformers (`_class_name`)',
      names: flowClasses,
      refuses: 'every other class of diffusers, and settings that the checkpoints of the class do not have',
    },
    {
      what: 'pipelines of diffusers (`_class_name` of `model_index.json`)',
      names: pipelineClasses,
      refuses:
        'every other pipeline, parts of other classes, schedulers other than FlowMatchEulerDiscreteScheduler, and unused settings and tensors',
    },
    {
      what: 'noise schedules (`model_type` of the flow model)',
      names: Object.keys(flowModelTypes),
      refuses: 'every other schedule',
    },
    {
      what: 'adapters',
      names: [`LORA of peft up to ${PEFT_VERSION}`, 'IP_ADAPTER of this program'],
      refuses: `other kinds, unused tensors, unknown keys, and values other than the default of ${rejectedKeys.map((key) => `\`${key}\``).join(', ')}`,
    },
    {
      what: 'number formats of weights',
      names: [...WEIGHT_DTYPES],
      refuses: 'other formats, pickles, and GGUF (convert it with `scripts/gguf_folder.py`)',
    },
    {
      what: 'number formats of exports',
      names: Object.keys(exportedDtypes),
      refuses: 'numbers beyond the range of float16',
    },
    {
      what: 'trainers (`policy.trainer.type`)',
      names: trainerTypes,
      refuses: 'other trainers. tinker also rejects edit_response, flow models, and clips that are not shown as images',
    },
    {
      what: 'engines (`policy.engine.type`)',
      names: valuesOf(type),
      refuses: 'other engines',
    },
    {
      what: 'number formats of frozen weights (`policy.engine.dtype`)',
      names: valuesOf(dtype),
      refuses: 'bfloat16 (use float16 for such a checkpoint), quantized weights, computation in half precision',
    },
    {
      what: 'devices (`policy.engine.provider`)',
      names: valuesOf(provider),
      refuses: 'a provider that the machine or onnxruntime lacks',
    },
    {
      what: 'samplers (`rollout.engine.type`, null for the training engine)',
      names: valuesOf(samplingEngine.shape.type),
      refuses:
        'policies from random weights, adapters of the vision encoder or connector, clips to which vLLM gives other positions, and a server for shorter sequences',
    },
  ];
}

/** Limits of one run. */
export const LIMITS = 'One node trains a run in float32 without sharding. Every process holds the whole model.';

function valuesOf(choice: {
  readonly unwrap?: () => unknown;
  readonly options?: readonly string[];
}): readonly string[] {
  if (choice.options !== undefined) return choice.options;
  return valuesOf(choice.unwrap?.() as Parameters<typeof valuesOf>[0]);
}

/** The text of docs/reference/coverage.md, with the comparisons of docs/reference/agreement.json. */
export function coveragePage(compared: Agreements): string {
  const rows = coverage().map(
    ({ what, names, refuses }) => `| ${what} | ${names.map((name) => `\`${name}\``).join(', ')} | ${refuses} |`,
  );
  return [
    '# Coverage',
    '',
    'The code generates this page (`npm run build && node dist/scripts/coverage.js`), and `editrl doctor` prints its first table. editrl rejects everything else by name before a run starts.',
    '',
    '| kind | supported | rejected |',
    '| --- | --- | --- |',
    ...rows,
    '',
    LIMITS,
    '',
    ...agreementSection(compared, modelTypes),
  ].join('\n');
}
