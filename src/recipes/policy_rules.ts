/** Rules about a token policy: where it starts, its architecture, and what one that sees is shown. */
import { number, problem, type Problem, type Reader, type Rule } from './rules.js';
import { samplerRules } from './sampler.js';

export const policyRules: readonly Rule[] = [
  start,
  adapter,
  keyHeads,
  headWidth,
  pixelLimits,
  wholeWindows,
  ...samplerRules,
];

/** A policy starts from a checkpoint or from random weights; a config with neither is a base for others, and cannot run by itself. */
function start(read: Reader): Problem[] {
  const model = read('policy.model');
  const init = read('policy.init');
  if (model === undefined || init === undefined || model === null || init === null) return [];
  return problem(
    'policy.init',
    'found both policy.model and policy.init; set one of them to null: a checkpoint brings its own architecture',
  );
}

/** Adapters need base weights that others can load. */
function adapter(read: Reader): Problem[] {
  const lora = read('policy.lora');
  if (lora === undefined || lora === null || read('policy.model') !== null || read('policy.init') === null) return [];
  return problem(
    'policy.lora',
    'found adapters over random weights (policy.init); allowed: with policy.model, or null',
  );
}

function keyHeads(read: Reader): Problem[] {
  const heads = number(read, 'policy.init.num_attention_heads');
  const shared = number(read, 'policy.init.num_key_value_heads');
  if (heads === null || shared === null || heads % shared === 0) return [];
  return problem(
    'policy.init.num_key_value_heads',
    `found ${shared}; allowed: a divisor of num_attention_heads (${heads})`,
  );
}

function headWidth(read: Reader): Problem[] {
  const heads = number(read, 'policy.init.num_attention_heads');
  const hidden = number(read, 'policy.init.hidden_size');
  const given = number(read, 'policy.init.head_dim');
  if (heads === null || hidden === null) return [];
  if (given === null && hidden % heads !== 0) {
    return problem(
      'policy.init.hidden_size',
      `found ${hidden}; allowed: a multiple of num_attention_heads (${heads}), or set head_dim`,
    );
  }
  if ((given ?? hidden / heads) % 2 === 0) return [];
  const [key, found] = given === null ? ['hidden_size', hidden] : ['head_dim', given];
  return problem(
    `policy.init.${key}`,
    `found ${found}; allowed: a value with an even width per head, as rotary positions need`,
  );
}

function pixelLimits(read: Reader): Problem[] {
  return ['image', 'video'].flatMap((kind) => {
    const least = number(read, `policy.pixels.${kind}.min_pixels`);
    const most = number(read, `policy.pixels.${kind}.max_pixels`);
    if (least === null || most === null || least <= most) return [];
    return problem(`policy.pixels.${kind}.min_pixels`, `found ${least}; allowed: at most max_pixels (${most})`);
  });
}

/** A window has to contain at least the patches of one token. */
function wholeWindows(read: Reader): Problem[] {
  const window = number(read, 'policy.init.vision.window_size');
  const patch = number(read, 'policy.init.vision.patch_size');
  const merged = number(read, 'policy.init.vision.spatial_merge_size');
  if (window === null || patch === null || merged === null || window >= patch * merged) return [];
  return problem(
    'policy.init.vision.window_size',
    `found ${window}; allowed: at least patch_size x spatial_merge_size (${patch * merged}), or null`,
  );
}
