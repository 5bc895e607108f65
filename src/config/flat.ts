/**
 * The flat dialect of EARL's config files: one table from its keys to the canonical ones, so that such a file loads unchanged.
 * A file is in the dialect when it names no task and has at least one of the dialect's own keys.
 */
import { existsSync } from 'node:fs';
import { canonicalMode } from '../rewards/settings.js';
import { imageEditTokens } from '../recipes/image_edit_tokens/settings.js';
import type { Problem } from '../recipes/rules.js';
import { hasPath, setPath } from '../schema/paths.js';
import { isObject } from '../schema/walk.js';

/** What becomes of one flat key. */
type Entry =
  /** The value moves to a canonical key, converted where `convert` is given. */
  | { readonly to: string; readonly convert?: (value: unknown) => unknown }
  /** Has no meaning here; the reason stands in a warning. */
  | { readonly ignored: string }
  /** Read together with other keys; what comes of them stands at this canonical key. */
  | { readonly joint: string };

const earlKeys: Readonly<Record<string, Entry>> = {
  train_paths_file: { joint: 'data.train' },
  coefficients: { joint: 'data.train' },
  val_paths_file: { joint: 'data.validation' },
  val_coefficients: { joint: 'data.validation' },
  model_path: { to: 'policy.model', convert: modelReference },
  tokenizer_path: { to: 'policy.tokenizer', convert: modelReference },
  assistant_prefill: { to: 'policy.assistant_prefill', convert: (value) => value ?? '' },
  model_context_size: { to: 'policy.model_context_size' },
  emu3_use_logit_processor: { to: 'policy.emu3_use_logit_processor' },
  separate_language_and_vision_vocabs: { to: 'policy.separate_language_and_vision_vocabs' },
  learning_rate: { to: 'optimizer.learning_rate' },
  per_device_batch_size: { to: 'optimizer.per_device_batch_size' },
  kl_coeff: { to: 'algorithm.kl_coeff' },
  temperature: { to: 'rollout.temperature' },
  top_p: { to: 'rollout.top_p' },
  top_k: { to: 'rollout.top_k' },
  episodes_per_iteration: { to: 'rollout.episodes_per_iteration' },
  generations_per_sample: { to: 'rollout.generations_per_sample' },
  max_response_tokens: { to: 'rollout.max_response_tokens' },
  vllm_gpu_memory_utilization: { ignored: 'rollouts run in this process, without vLLM' },
  reward_function_api_base: { to: 'reward.endpoint' },
  reward_function_api_model_name: { to: 'reward.model' },
  reward_compute_viescore: { joint: 'reward.also_compute' },
  reward_compute_ground_score: { joint: 'reward.also_compute' },
  reward_final_reward: { joint: 'reward.mode' },
  log_episodes_every_n_iterations: { to: 'track.log_episodes_every_n_iterations' },
  keep_checkpoints_every_n_iterations: { to: 'checkpoint.keep_every_n_iterations' },
  save_checkpoints_every_n_iterations: { to: 'checkpoint.save_every_n_iterations' },
  push_to_hub_every_n_iterations: { to: 'track.push_to_hub.every_n_iterations' },
  push_to_hub_repo_id: { to: 'track.push_to_hub.repo_id' },
};

/** The dialect's own keys (those that it shares with the canonical form, such as run_name, are not among them). */
export const flatKeys: readonly string[] = Object.keys(earlKeys);

/** Where a key of the dialect stands in the canonical form; null for any other key and for one without meaning here. */
export function canonicalKeyOf(flatKey: string): string | null {
  const entry = Object.hasOwn(earlKeys, flatKey) ? earlKeys[flatKey] : undefined;
  if (entry === undefined || 'ignored' in entry) return null;
  return 'to' in entry ? entry.to : entry.joint;
}

export function isFlat(raw: Readonly<Record<string, unknown>>): boolean {
  return raw['task'] === undefined && flatKeys.some((key) => key in raw);
}

export interface Translation {
  readonly value: Record<string, unknown>;
  readonly problems: readonly Problem[];
  readonly warnings: readonly string[];
}

/** What EARL's program fixes in code rather than in a file. */
const implied: Readonly<Record<string, unknown>> = {
  task: imageEditTokens.name,
  'algorithm.type': 'grpo',
  'environment.model': { hub: 'BAAI/Emu3-VisionTokenizer' },
};

/** Translates a flat file to the canonical form; canonical keys beside the flat ones are kept. */
export function translateFlat(raw: Readonly<Record<string, unknown>>): Translation {
  const problems: Problem[] = [];
  const warnings: string[] = [];
  const value: Record<string, unknown> = Object.fromEntries(
    Object.entries(raw)
      .filter(([key]) => !flatKeys.includes(key))
      .map(([key, content]) => [key, structuredClone(content)]),
  );
  for (const [flatKey, entry] of Object.entries(earlKeys)) {
    if (!(flatKey in raw)) continue;
    if ('ignored' in entry) warnings.push(`${flatKey} has no meaning here and is left out: ${entry.ignored}`);
    if (!('to' in entry)) continue;
    if (hasPath(value, entry.to)) {
      problems.push({ key: flatKey, message: `also given as ${entry.to}; keep one of the two` });
      continue;
    }
    const given = raw[flatKey];
    setPath(value, entry.to, entry.convert === undefined ? given : entry.convert(given));
  }
  sources(raw, value, 'data.train', 'train_paths_file', 'coefficients', problems);
  sources(raw, value, 'data.validation', 'val_paths_file', 'val_coefficients', problems);
  rewards(raw, value, problems);
  for (const [path, content] of Object.entries(implied)) if (!hasPath(value, path)) setPath(value, path, content);
  return { value, problems, warnings };
}

/** Paths and coefficients are two lists in the dialect, one list of pairs in the canonical form. */
function sources(
  raw: Readonly<Record<string, unknown>>,
  value: Record<string, unknown>,
  to: string,
  pathsKey: string,
  coefficientsKey: string,
  problems: Problem[],
): void {
  const paths = raw[pathsKey];
  const coefficients = raw[coefficientsKey] ?? [];
  if (paths === undefined) return;
  if (!Array.isArray(paths) || !Array.isArray(coefficients)) {
    const [key, found] = Array.isArray(paths) ? [coefficientsKey, coefficients] : [pathsKey, paths];
    problems.push({ key, message: `found ${JSON.stringify(found)}; allowed: a list` });
    return;
  }
  if (coefficients.length !== 0 && coefficients.length !== paths.length) {
    problems.push({
      key: coefficientsKey,
      message: `found ${coefficients.length} for ${paths.length} in ${pathsKey}; allowed: one for each, or none (each is then upsampled to the largest)`,
    });
  }
  setPath(
    value,
    to,
    paths.map((path: unknown, index) => ({ path, coefficient: (coefficients[index] as unknown) ?? null })),
  );
}

const flags = { viescore: 'reward_compute_viescore', ground_score: 'reward_compute_ground_score' } as const;
type FlaggedScore = keyof typeof flags;

/** The scores that each of the dialect's final rewards is made of, and whose flags have to be set. */
const scoresOfReward: ReadonlyMap<unknown, readonly FlaggedScore[]> = new Map([
  ['viescore', ['viescore']],
  ['ground_score', ['ground_score']],
  ['sqrt(viescore_pqxground_score)', ['viescore', 'ground_score']],
]);

/** The final reward has to be covered by the flags; a score that is computed besides is recorded. */
function rewards(raw: Readonly<Record<string, unknown>>, value: Record<string, unknown>, problems: Problem[]): void {
  for (const flag of Object.values(flags)) {
    if (flag in raw && typeof raw[flag] !== 'boolean') {
      problems.push({ key: flag, message: `found ${JSON.stringify(raw[flag])}; allowed: true or false` });
    }
  }
  const mode = canonicalMode(raw['reward_final_reward'] ?? 'viescore');
  if ('reward_final_reward' in raw) setPath(value, 'reward.mode', mode);
  // Another mode is no reward of the dialect, but may be one of the canonical form: it needs none of the flags. The schema reports an unknown one.
  const needed = scoresOfReward.get(mode) ?? [];
  for (const score of needed) {
    const flag = flags[score];
    if (raw[flag] === false || (flag in raw === false && Object.values(flags).some((other) => other in raw))) {
      problems.push({
        key: flag,
        message: `found ${JSON.stringify(raw[flag] ?? 'missing')}; allowed: true, because reward_final_reward '${String(mode)}' needs it`,
      });
    }
  }
  const besides = (Object.keys(flags) as FlaggedScore[]).filter(
    (score) => raw[flags[score]] === true && !needed.includes(score),
  );
  if (besides.length > 0) setPath(value, 'reward.also_compute', besides);
}

/** The dialect writes Hub ids and local paths alike: what exists is a path, as is what looks like one. */
function modelReference(value: unknown): unknown {
  if (typeof value !== 'string' || isObject(value)) return value;
  const isHub = /^[\w.-]+\/[\w.-]+$/.test(value) && !value.startsWith('.') && !existsSync(value);
  return isHub ? { hub: value } : value;
}
