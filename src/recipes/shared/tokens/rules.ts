/** Rules about a token policy: its start, its architecture, and the servers that sample or train it. */
import type { ModelReference } from '../../../config/schema/model.js';
import {
  whenSet,
  validSection,
  problem,
  problemUnless,
  requireValues,
  type PartialSettings,
  type Problem,
  type Rule,
} from '../../../config/schema/rules.js';
import type { LaunchSettings } from '../../../config/schema/launch.js';
import type { RemoteSampling } from '../../../train/policies/vllm/remote_sampling.js';
import type { SamplingEngine } from '../../../config/schema/sampler.js';
import type { VisionPolicySettings, TextPolicySettings } from '../../../config/schema/token_policy.js';
import type { TrainerSettings, ServeTrainerSettings, TinkerSettings } from '../../../config/schema/trainer.js';
import type { RolloutSettings } from '../../../config/schema/training.js';
import { getPath, isObject } from '../../../core/schema/walk.js';
import type { RunSettings, TrainedSettings } from '../../../config/schema/run.js';

interface Start {
  readonly model: ModelReference | null;
  readonly init: object | null;
}

/**
 * A policy starts from a checkpoint or from random weights. A config with neither is a base for other configs and
 * cannot run.
 */
export function startRules({ policy }: PartialSettings<{ policy: Start }>): readonly Problem[] {
  return whenSet([policy?.model, validSection(policy?.init)], () =>
    problem(
      'policy.init',
      'found both policy.model and policy.init; allowed: one of them. A checkpoint has its own architecture',
    ),
  );
}

/** Adapters need base weights that others can load. */
function adapter({ policy }: PartialSettings<SampledSettings>): readonly Problem[] {
  if (policy?.model !== null || policy.init === null) return [];
  return whenSet([validSection(policy.lora)], () =>
    problem(
      'policy.lora',
      'found an adapter with random base weights (policy.init); allowed: with policy.model, or null',
    ),
  );
}

/** Trained weights are float32. Half precision is only for frozen weights below an adapter. */
function halfWeights({ policy }: PartialSettings<SampledSettings>): readonly Problem[] {
  if (policy?.engine?.dtype !== 'float16' || policy.lora !== null) return [];
  const [found, allowed] =
    policy.trainer?.type === 'tinker'
      ? ['with a training server, which stores the weights', "'float32'"]
      : ['without adapters (policy.lora: null)', "with policy.lora, which leaves the weights frozen, or 'float32'"];
  return problem('policy.engine.dtype', `found 'float16' ${found}; allowed: ${allowed}`);
}

function keyHeads({ policy }: PartialSettings<SampledSettings>): readonly Problem[] {
  return whenSet([policy?.init?.num_attention_heads, policy?.init?.num_key_value_heads], (heads, shared) =>
    problemUnless(
      heads % shared === 0,
      'policy.init.num_key_value_heads',
      `found ${shared}; allowed: a divisor of num_attention_heads (${heads})`,
    ),
  );
}

function headWidth({ policy }: PartialSettings<SampledSettings>): readonly Problem[] {
  return whenSet([policy?.init?.num_attention_heads, policy?.init?.hidden_size], (heads, hidden) => {
    const width = policy?.init?.head_dim ?? null;
    if (width === null && hidden % heads !== 0) {
      return problem(
        'policy.init.hidden_size',
        `found ${hidden}; allowed: a multiple of num_attention_heads (${heads}), or set head_dim`,
      );
    }
    if ((width ?? hidden / heads) % 2 === 0) return [];
    const [key, found] = width === null ? ['hidden_size', hidden] : ['head_dim', width];
    return problem(
      `policy.init.${key}`,
      `found ${found}; allowed: a value that gives each head an even width, for rotary positions`,
    );
  });
}

function pixelLimits({ policy }: PartialSettings<SampledSettings>): readonly Problem[] {
  return (['image', 'video'] as const).flatMap((kind) => {
    const limits = policy?.pixels?.[kind];
    return whenSet([limits?.min_pixels, limits?.max_pixels], (least, most) =>
      problemUnless(
        least <= most,
        `policy.pixels.${kind}.min_pixels`,
        `found ${least}; allowed: at most max_pixels (${most})`,
      ),
    );
  });
}

/** An attention window must contain at least the patches of one token. */
function wholeWindows({ policy }: PartialSettings<SampledSettings>): readonly Problem[] {
  const vision = policy?.init?.vision;
  return whenSet([vision?.window_size, vision?.patch_size, vision?.spatial_merge_size], (window, patch, merged) =>
    problemUnless(
      window >= patch * merged,
      'policy.init.vision.window_size',
      `found ${window}; allowed: at least patch_size x spatial_merge_size (${patch * merged}), or null`,
    ),
  );
}

/** The remote sampling of a token policy with valid settings. Null if the policy's own engine samples. */
export function remoteSampling({
  rollout: { engine },
  policy: { model, lora, train, pixels, emu3_use_logit_processor: blocks = false, model_context_size: contextSize },
}: {
  readonly rollout: { readonly engine: SamplingEngine | null };
  readonly policy: {
    readonly model: ModelReference | null;
    readonly lora: { readonly rank: number } | null;
    readonly pixels?: VisionPolicySettings['pixels'];
    readonly train?: VisionPolicySettings['train'];
    readonly emu3_use_logit_processor?: boolean;
    readonly model_context_size: number;
  };
}): RemoteSampling | null {
  if (engine === null || model === null) return null;
  const kinds = pixels === undefined ? [] : [pixels.image, pixels.video];
  const seen = {
    min_pixels: Math.min(...kinds.map(({ min_pixels }) => min_pixels)),
    max_pixels: Math.max(...kinds.map(({ max_pixels }) => max_pixels)),
  };
  const rank = lora?.rank ?? null;
  const adaptsVision = rank !== null && visionParts(train).length > 0;
  return { engine, model, rank, adaptsVision, pixelLimits: kinds.length === 0 ? null : seen, blocks, contextSize };
}

/** The values of vLLM's `--max-lora-rank`. */
export const SERVED_RANKS = [1, 8, 16, 32, 64, 128, 256, 320, 512] as const;

/** The settings that rules about a token policy and its sampler read. */
export interface SampledSettings {
  readonly rollout: Pick<RolloutSettings, 'engine' | 'ahead' | 'refill' | 'importance_cap'>;
  readonly policy: Pick<VisionPolicySettings, 'model' | 'init' | 'lora' | 'pixels' | 'train' | 'engine'> & {
    readonly trainer: TrainerSettings;
  };
  readonly launch: Pick<LaunchSettings, 'devices'>;
}

export const samplerRules: readonly Rule<SampledSettings>[] = [
  oneServer,
  startsFromModel,
  servedRank,
  adaptedWords,
  ({ rollout, launch }) =>
    devicesApart('rollout.engine.serve.devices', rollout?.engine?.serve?.devices, launch?.devices),
  aheadCorrected,
];

export const policyRules: readonly Rule<SampledSettings>[] = [
  startRules,
  adapter,
  halfWeights,
  keyHeads,
  headWidth,
  pixelLimits,
  wholeWindows,
  ...samplerRules,
];

function oneServer({ rollout }: PartialSettings<SampledSettings>): readonly Problem[] {
  return whenSet([validSection(rollout?.engine)], ({ base_url: url, serve }) =>
    problemUnless(
      url === undefined || serve === undefined || (url === null) !== (serve === null),
      'rollout.engine',
      `found ${url === null ? 'neither base_url nor serve' : 'both base_url and serve'}; allowed: base_url, the address of a running vLLM, or serve: {}, to start one with the run`,
    ),
  );
}

/** Random weights are in no folder, so no server can load them. */
function startsFromModel({ rollout, policy }: PartialSettings<SampledSettings>): readonly Problem[] {
  if (policy?.model !== null || policy.init === null) return [];
  return whenSet([validSection(rollout?.engine)], () =>
    problem(
      'rollout.engine',
      'found vllm with random initial weights (policy.init), which no server has; allowed: with policy.model, or null to sample in this process',
    ),
  );
}

function servedRank({ rollout, policy }: PartialSettings<SampledSettings>): readonly Problem[] {
  const most = SERVED_RANKS[SERVED_RANKS.length - 1];
  return whenSet([validSection(rollout?.engine), policy?.lora?.rank], (_engine, rank) =>
    rank <= most ? [] : problem('policy.lora.rank', `found ${rank}; allowed with rollout.engine vllm: at most ${most}`),
  );
}

/** The parts other than the decoder that train. */
function visionParts(train: PartialSettings<VisionPolicySettings['train']> | undefined): readonly string[] {
  return (['mm_vision', 'mm_mlp'] as const).filter((part) => train?.[part] === true);
}

/** Without its flag for them, vLLM ignores adapters outside the decoder, and does not report it. */
function adaptedWords({ rollout, policy }: PartialSettings<SampledSettings>): readonly Problem[] {
  const parts = visionParts(policy?.train);
  if (parts.length === 0) return [];
  return whenSet([validSection(rollout?.engine), validSection(policy?.lora)], ({ base_url: url }) =>
    problemUnless(
      url === null,
      'rollout.engine.base_url',
      `found with adapters of the vision encoder or connector (${parts.map((part) => `policy.train.${part}`).join(', ')}), which a running vLLM may ignore; allowed: serve, which starts one with --enable-tower-connector-lora, adapters of mm_llm only, or all weights (policy.lora: null)`,
    ),
  );
}

/** With a training server, the same sessions would sample and train at once, and the weights would change meanwhile. */
function aheadCorrected({ rollout, policy }: PartialSettings<SampledSettings>): readonly Problem[] {
  return whenSet([rollout?.ahead, policy?.trainer?.type], (ahead, trainer) => {
    if (ahead === 0) return [];
    if (trainer !== 'tinker') {
      return problem(
        'rollout.ahead',
        `found ${ahead} with policy.trainer '${trainer}', which samples and trains with one copy of the weights; allowed: 0, or policy.trainer 'tinker'`,
      );
    }
    const refilled = whenSet([rollout?.refill], () =>
      problem(
        'rollout.refill',
        `found with rollout.ahead ${ahead}, which samples during training, when processes cannot agree on more prompts; allowed: null, or rollout.ahead 0`,
      ),
    );
    if (refilled.length > 0) return refilled;
    return problemUnless(
      rollout?.importance_cap !== null,
      'rollout.importance_cap',
      `found null with rollout.ahead ${ahead}, which samples with older weights; allowed: a number above 0`,
    );
  });
}

interface ServedSettings extends TrainedSettings {
  readonly rollout: RolloutSettings;
  readonly policy: Pick<TextPolicySettings, 'model' | 'lora' | 'tokenizer' | 'trainer'> & {
    readonly init: object | null;
  };
}

/** The setting that rules for policies on a training server name as their cause. */
export const TRAINER = "policy.trainer 'tinker'";
const SERVE = 'policy.trainer.serve';

/** Flags that editrl sets itself for a server that it starts. */
const OWN_FLAGS = ['--model', '--rank', '--port', '--dir', '--mode', '--env', '--host'] as const;

/** The trainer settings of a run on a training server. Null for any other run. */
export function trainerServerOf(settings: RunSettings): TinkerSettings | null {
  const trainer = getPath(settings, 'policy.trainer');
  return isObject(trainer) && trainer['type'] === 'tinker' ? (trainer as TinkerSettings) : null;
}

/** The settings for starting a run's own training server. Null without one. */
export function trainerServeOf(settings: RunSettings): ServeTrainerSettings | null {
  return trainerServerOf(settings)?.serve ?? null;
}

export const servedTrainerRules: readonly Rule<ServedSettings>[] = [
  servedValues,
  ownTokenizer,
  oneAddress,
  ownFlags,
  ownCommand,
  ({ policy, launch }: PartialSettings<ServedSettings>) =>
    devicesApart(`${SERVE}.devices`, policy?.trainer?.serve?.devices, launch?.devices),
].map((rule) => (settings) => (settings.policy?.trainer?.type === 'tinker' ? rule(settings) : []));

/** Servers differ in whether their log-probabilities include sampling settings. */
function servedValues(settings: PartialSettings<ServedSettings>): readonly Problem[] {
  const sampled = 'which trains on the distribution at temperature 1';
  const hasModel = 'whose server has the model (policy.trainer.base_model)';
  return requireValues(settings, TRAINER, [
    ['policy.model', null, hasModel],
    ['policy.init', null, hasModel],
    ['policy.lora', null, 'which configures its adapter in policy.trainer.lora'],
    ['rollout.engine', null, 'whose server also samples'],
    ...(settings.algorithm?.type === 'sft'
      ? []
      : ([
          ['rollout.temperature', 1, sampled],
          ['rollout.top_p', 1, sampled],
          ['rollout.top_k', -1, sampled],
        ] as const)),
    ['launch.processes', 1, 'whose server computes'],
    ['optimizer.ema_decay', null, 'which keeps no average of the weights'],
  ]);
}

function ownTokenizer({ policy }: PartialSettings<ServedSettings>): readonly Problem[] {
  if (policy?.tokenizer !== null) return [];
  return problem(
    'policy.tokenizer',
    `found null with ${TRAINER}; allowed: a folder, {hub, revision} or {run, config} that has the tokenizer of policy.trainer.base_model`,
  );
}

function oneAddress({ policy }: PartialSettings<ServedSettings>): readonly Problem[] {
  return whenSet([policy?.trainer?.base_url, validSection(policy?.trainer?.serve)], (url) =>
    problem(
      'policy.trainer',
      `found both base_url (${url}) and serve; allowed: base_url, the address of a running server, or serve: {}, to start one with the run`,
    ),
  );
}

function ownFlags({ policy }: PartialSettings<ServedSettings>): readonly Problem[] {
  return whenSet([policy?.trainer?.serve?.flags], (flags) => {
    const taken = flags.find((flag) => OWN_FLAGS.some((own) => flag === own || flag.startsWith(`${own}=`)));
    if (taken === undefined) return [];
    return problem(
      `${SERVE}.flags`,
      `found ${taken}, which editrl sets itself from base_model, lora.rank, serve.mode, serve.python, the port and the run's folder; allowed: other arguments`,
    );
  });
}

function ownCommand({ policy }: PartialSettings<ServedSettings>): readonly Problem[] {
  return whenSet([validSection(policy?.trainer?.serve), policy?.trainer?.serve?.command], ({ mode, python }) => {
    const found = [...(mode === null ? [] : ['mode']), ...(python === null ? [] : ['python'])];
    return found.flatMap((key) =>
      problem(
        `${SERVE}.${key}`,
        `found a value with ${SERVE}.command, which replaces scripts/serve_skyrl; allowed: null. Pass the program's arguments in command or flags`,
      ),
    );
  });
}

/** The run itself must not use the GPUs of a server that starts with it. */
function devicesApart(
  key: string,
  served: readonly number[] | null | undefined,
  used: readonly number[] | null | undefined,
): readonly Problem[] {
  return whenSet([served, used], (servers, own) => {
    const shared = servers.filter((device) => own.includes(device));
    return problemUnless(
      shared.length === 0,
      key,
      `found ${shared.join(', ')}, which the run itself uses (launch.devices); allowed: other GPUs`,
    );
  });
}
