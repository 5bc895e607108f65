/** What this program reads, computes and refuses, from the tables that decide it: shown by `editrl doctor` and docs/reference/coverage.md. */
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
  /** The names that are covered, as files and configs spell them. */
  readonly names: readonly string[];
  /** What is refused, in words. */
  readonly refuses: string;
}

/** One row for each kind of thing. */
export function coverage(): CoverageRow[] {
  const { type, provider, dtype } = decoderEngine.unwrap().shape;
  return [
    {
      what: 'language models (`model_type`)',
      names: modelTypes,
      refuses: `every other \`model_type\`, quantized weights, activations other than ${activations.join(' and ')}, caps of scores or logits, scalings of positions that are not known`,
    },
    {
      what: 'models that see (`model_type`)',
      names: visionDecoderTypes,
      refuses: "language models and other encoders where pictures are asked for; picture processors other than Qwen's",
    },
    {
      what: 'image tokenizers (`model_type`)',
      names: [...visionTokenizerTypes, 'those trained here'],
      refuses: 'every other `model_type`, and settings and tensors of these that nothing reads',
    },
    {
      what: 'flow transformers (`_class_name`)',
      names: flowClasses,
      refuses: "every other class of diffusers, and settings of these that the class's checkpoints do not have",
    },
    {
      what: 'pipelines of diffusers (`_class_name` of `model_index.json`)',
      names: pipelineClasses,
      refuses:
        'every other pipeline, parts of other classes, schedulers other than FlowMatchEulerDiscreteScheduler, and settings and tensors that nothing reads',
    },
    {
      what: 'noise schedules (`model_type` of the flow model)',
      names: Object.keys(flowModelTypes),
      refuses: 'every other schedule',
    },
    {
      what: 'adapters',
      names: [`LORA of peft up to ${PEFT_VERSION}`, 'IP_ADAPTER of this program'],
      refuses: `other kinds, tensors that nobody reads, keys that are not known, and other values than the default of ${rejectedKeys.map((key) => `\`${key}\``).join(', ')}`,
    },
    {
      what: 'number formats that are read',
      names: [...WEIGHT_DTYPES],
      refuses: 'weights of other formats, pickles, and GGUF (`scripts/gguf_folder.py` makes a folder of one)',
    },
    {
      what: 'number formats that are exported',
      names: Object.keys(exportedDtypes),
      refuses: 'numbers beyond the range of float16',
    },
    {
      what: 'trainers (`policy.trainer.type`)',
      names: trainerTypes,
      refuses:
        'tinker, where pictures are made from hidden states of the policy (edit_response), clips as such, which it takes frame by frame, and policies of flow models; other trainers',
    },
    {
      what: 'engines (`policy.engine.type`)',
      names: valuesOf(type),
      refuses: 'other engines',
    },
    {
      what: 'number formats that frozen weights are held in (`policy.engine.dtype`)',
      names: valuesOf(dtype),
      refuses: 'bfloat16 (float16 holds such a checkpoint), quantized weights, computation in half precision',
    },
    {
      what: 'devices (`policy.engine.provider`)',
      names: valuesOf(provider),
      refuses: 'a provider that this machine or this build of onnxruntime lacks',
    },
    {
      what: 'samplers (`rollout.engine.type`; null is the engine that trains)',
      names: valuesOf(samplingEngine.shape.type),
      refuses:
        'a policy that starts from random weights, adapters of what sees pictures, clips whose words vLLM would see at other positions, and a server for shorter sequences',
    },
  ];
}

/** Machines and memory of one run. */
export const LIMITS = 'One node trains a run, in float32, unsharded: every process holds the whole model.';

function valuesOf(choice: {
  readonly unwrap?: () => unknown;
  readonly options?: readonly string[];
}): readonly string[] {
  if (choice.options !== undefined) return choice.options;
  return valuesOf(choice.unwrap?.() as Parameters<typeof valuesOf>[0]);
}

/** The page of the documentation. */
export function coveragePage(): string {
  const rows = coverage().map(
    ({ what, names, refuses }) => `| ${what} | ${names.map((name) => `\`${name}\``).join(', ')} | ${refuses} |`,
  );
  return [
    '# What is covered',
    '',
    'This page is written by `npm run build && node dist/scripts/coverage.js` from the tables that decide it; `editrl doctor` prints the same. What is refused is refused by',
    'name, before a run starts.',
    '',
    '| kind | covered | refused |',
    '| --- | --- | --- |',
    ...rows,
    '',
    LIMITS,
    '',
  ].join('\n');
}
