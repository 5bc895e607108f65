/** What a sampling server has to serve, and rules about it. */
import type { LaunchSettings } from '../schema/launch.js';
import type { PixelLimits } from '../models/pictures/processor.js';
import type { ModelReference } from '../schema/model.js';
import type { SamplingEngine } from '../schema/sampler.js';
import type { SeeingSettings } from '../schema/token_policy.js';
import type { TrainerSettings } from '../schema/trainer.js';
import type { RolloutSettings } from '../schema/training.js';
import {
  whenSet,
  validSection,
  problem,
  problemUnless,
  type PartialSettings,
  type Problem,
  type Rule,
} from '../schema/rules.js';

/** The server that samples a run's answers, and the model and adapters that it has to serve. */
export interface RemoteSampling {
  readonly engine: SamplingEngine;
  readonly model: ModelReference;
  /** Of the adapter; null where all weights are trained, which the server then reads anew. */
  readonly rank: number | null;
  /** The least and the most pixels of pictures that the policy sees; null for one that does not see. */
  readonly seen: PixelLimits | null;
  /** Whether answers keep to the rules of image blocks. */
  readonly blocks: boolean;
  readonly contextSize: number;
}

/** For a recipe with a token policy and valid settings; null if the policy's own engine samples. */
export function remoteSampling({
  rollout: { engine },
  policy: { model, lora, pixels, emu3_use_logit_processor: blocks = false, model_context_size: contextSize },
}: {
  readonly rollout: { readonly engine: SamplingEngine | null };
  readonly policy: {
    readonly model: ModelReference | null;
    readonly lora: { readonly rank: number } | null;
    readonly pixels?: SeeingSettings['pixels'];
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
  return { engine, model, rank, seen: kinds.length === 0 ? null : seen, blocks, contextSize };
}

/** The ranks with which vLLM can be started: `--max-lora-rank`. */
export const SERVED_RANKS = [1, 8, 16, 32, 64, 128, 256, 320, 512] as const;

/** The settings that rules about a token policy and its sampler read. */
export interface SampledSettings {
  readonly rollout: Pick<RolloutSettings, 'engine' | 'ahead' | 'refill' | 'importance_cap'>;
  readonly policy: Pick<SeeingSettings, 'model' | 'init' | 'lora' | 'pixels' | 'train' | 'engine'> & {
    readonly trainer: TrainerSettings;
  };
  readonly launch: Pick<LaunchSettings, 'devices'>;
}

export const samplerRules: readonly Rule<SampledSettings>[] = [
  oneServer,
  startsFromModel,
  servedRank,
  adaptedWords,
  ownDevices,
  aheadCorrected,
];

function oneServer({ rollout }: PartialSettings<SampledSettings>): readonly Problem[] {
  return whenSet([validSection(rollout?.engine)], ({ base_url: url, serve }) =>
    problemUnless(
      url === undefined || serve === undefined || (url === null) !== (serve === null),
      'rollout.engine',
      `found ${url === null ? 'neither base_url nor serve' : 'both base_url and serve'}; allowed: base_url, the address of a vLLM that runs, or serve: {}, to start one with the run`,
    ),
  );
}

/** Random weights are in no folder that a server could be started with. */
function startsFromModel({ rollout, policy }: PartialSettings<SampledSettings>): readonly Problem[] {
  if (policy?.model !== null || policy.init === null) return [];
  return whenSet([validSection(rollout?.engine)], () =>
    problem(
      'rollout.engine',
      "found vllm where training starts from random weights (policy.init), which no server has; allowed: with policy.model, or null, the policy's own engine",
    ),
  );
}

function servedRank({ rollout, policy }: PartialSettings<SampledSettings>): readonly Problem[] {
  const most = SERVED_RANKS[SERVED_RANKS.length - 1];
  return whenSet([validSection(rollout?.engine), policy?.lora?.rank], (_engine, rank) =>
    rank <= most ? [] : problem('policy.lora.rank', `found ${rank}; allowed with rollout.engine vllm: at most ${most}`),
  );
}

/** vLLM adapts the decoder of a model that sees, and computes what its encoder and connector make of pictures without an adapter. */
function adaptedWords({ rollout, policy }: PartialSettings<SampledSettings>): readonly Problem[] {
  const eyes = (['mm_vision', 'mm_mlp'] as const).filter((part) => policy?.train?.[part] === true);
  if (eyes.length === 0) return [];
  return whenSet([validSection(rollout?.engine), validSection(policy?.lora)], () =>
    problem(
      'rollout.engine',
      `found vllm with adapters of what sees (${eyes.map((part) => `policy.train.${part}`).join(', ')}), which it takes for the decoder alone; allowed: train mm_llm alone, train all weights (policy.lora: null), or null, the policy's own engine`,
    ),
  );
}

/** Here the same sessions would sample and train at once, under weights that change meanwhile. */
function aheadCorrected({ rollout, policy }: PartialSettings<SampledSettings>): readonly Problem[] {
  return whenSet([rollout?.ahead, policy?.trainer?.type], (ahead, trainer) => {
    if (ahead === 0) return [];
    if (trainer !== 'tinker') {
      return problem(
        'rollout.ahead',
        `found ${ahead} with policy.trainer '${trainer}', which samples and trains with the same weights; allowed: 0, or a policy.trainer 'tinker'`,
      );
    }
    const refilled = whenSet([rollout?.refill], () =>
      problem(
        'rollout.refill',
        `found with rollout.ahead ${ahead}, where an iteration is sampled while the processes train and cannot agree on further prompts; allowed: null, or rollout.ahead 0`,
      ),
    );
    if (refilled.length > 0) return refilled;
    return problemUnless(
      rollout?.importance_cap !== null,
      'rollout.importance_cap',
      `found null with rollout.ahead ${ahead}, whose answers are of older weights; allowed: a number above 0`,
    );
  });
}

function ownDevices({ rollout, launch }: PartialSettings<SampledSettings>): readonly Problem[] {
  return whenSet([rollout?.engine?.serve?.devices, launch?.devices], (served, trained) => {
    const shared = served.filter((device) => trained.includes(device));
    if (shared.length === 0) return [];
    return problem(
      'rollout.engine.serve.devices',
      `found ${shared.join(', ')}, which the run itself uses (launch.devices); allowed: GPUs of its own`,
    );
  });
}
