/** Rules about a token policy: where it starts, its architecture, and what one that sees is shown. */
import type { ModelReference } from '../schema/model.js';
import {
  whenSet,
  validSection,
  problem,
  problemUnless,
  type PartialSettings,
  type Problem,
  type Rule,
} from '../schema/rules.js';
import { samplerRules, type SampledSettings } from './sampler.js';

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

interface Start {
  readonly model: ModelReference | null;
  readonly init: object | null;
}

/** A policy starts from a checkpoint or from random weights; a config with neither is a base for others, and cannot run by itself. */
export function startRules({ policy }: PartialSettings<{ policy: Start }>): readonly Problem[] {
  return whenSet([policy?.model, validSection(policy?.init)], () =>
    problem(
      'policy.init',
      'found both policy.model and policy.init; set one of them to null: a checkpoint brings its own architecture',
    ),
  );
}

/** Adapters need base weights that others can load. */
function adapter({ policy }: PartialSettings<SampledSettings>): readonly Problem[] {
  if (policy?.model !== null || policy.init === null) return [];
  return whenSet([validSection(policy.lora)], () =>
    problem('policy.lora', 'found adapters over random weights (policy.init); allowed: with policy.model, or null'),
  );
}

/** What trains is float32: half precision is for what an adapter leaves frozen. */
function halfWeights({ policy }: PartialSettings<SampledSettings>): readonly Problem[] {
  if (policy?.engine?.dtype !== 'float16' || policy.lora !== null) return [];
  const [found, allowed] =
    policy.trainer?.type === 'tinker'
      ? ['where a server trains, which holds the weights', "'float32'"]
      : ['without adapters (policy.lora: null)', "with policy.lora, whose frozen weights are held so, or 'float32'"];
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
      `found ${found}; allowed: a value with an even width per head, as rotary positions need`,
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

/** A window has to contain at least the patches of one token. */
function wholeWindows({ policy }: PartialSettings<SampledSettings>): readonly Problem[] {
  const eyes = policy?.init?.vision;
  return whenSet([eyes?.window_size, eyes?.patch_size, eyes?.spatial_merge_size], (window, patch, merged) =>
    problemUnless(
      window >= patch * merged,
      'policy.init.vision.window_size',
      `found ${window}; allowed: at least patch_size x spatial_merge_size (${patch * merged}), or null`,
    ),
  );
}
