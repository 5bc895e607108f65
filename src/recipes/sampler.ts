/** What a sampling server has to serve, and rules about it. */
import type { ModelReference } from '../schema/model.js';
import type { SamplingEngine } from '../schema/sampler.js';
import { isObject } from '../schema/walk.js';
import { number, problem, type Problem, type Reader, type Rule } from './rules.js';

/** The server that samples a run's answers, and the model and adapters that it has to serve. */
export interface RemoteSampling {
  readonly engine: SamplingEngine;
  readonly model: ModelReference;
  readonly rank: number;
  readonly contextSize: number;
}

/** For a recipe with a token policy and valid settings; null if the policy's own engine samples. */
export function remoteSampling({
  rollout: { engine },
  policy: { model, lora, model_context_size: contextSize },
}: {
  readonly rollout: { readonly engine: SamplingEngine | null };
  readonly policy: {
    readonly model: ModelReference | null;
    readonly lora: { readonly rank: number } | null;
    readonly model_context_size: number;
  };
}): RemoteSampling | null {
  if (engine === null || model === null || lora === null) return null;
  return { engine, model, rank: lora.rank, contextSize };
}

/** The ranks with which vLLM can be started: `--max-lora-rank`. */
export const SERVED_RANKS = [1, 8, 16, 32, 64, 128, 256, 320, 512] as const;

export const samplerRules: readonly Rule[] = [oneServer, adaptersAlone, servedRank, anyToken, wordsAlone, ownDevices];

function oneServer(read: Reader): Problem[] {
  const engine = read('rollout.engine');
  if (!isObject(engine)) return [];
  const [url, serve] = [engine['base_url'], engine['serve']];
  if (url === undefined || serve === undefined || (url === null) !== (serve === null)) return [];
  return problem(
    'rollout.engine',
    `found ${url === null ? 'neither base_url nor serve' : 'both base_url and serve'}; allowed: base_url, the address of a vLLM that runs, or serve: {}, to start one with the run`,
  );
}

/** Training's changes have to reach a running server, whose file route accepts only adapters. */
function adaptersAlone(read: Reader): Problem[] {
  if (!isObject(read('rollout.engine')) || read('policy.lora') !== null) return [];
  return problem(
    'rollout.engine',
    "found vllm where all weights are trained (policy.lora: null), which cannot be brought to a running vLLM in every iteration; allowed: with policy.lora, or null, the policy's own engine",
  );
}

function servedRank(read: Reader): Problem[] {
  const rank = number(read, 'policy.lora.rank');
  const most = SERVED_RANKS[SERVED_RANKS.length - 1];
  if (!isObject(read('rollout.engine')) || rank === null || rank <= most) return [];
  return problem('policy.lora.rank', `found ${rank}; allowed with rollout.engine vllm: at most ${most}`);
}

/** The policy's format knows which tokens may come next, but the server does not. */
function anyToken(read: Reader): Problem[] {
  if (!isObject(read('rollout.engine')) || read('policy.emu3_use_logit_processor') !== true) return [];
  return problem(
    'rollout.engine',
    'found vllm with policy.emu3_use_logit_processor: true, whose rules for image blocks vLLM does not know; allowed: with false, or null',
  );
}

/** A server receives only tokens: instead of pictures it would see their placeholders. */
function wordsAlone(read: Reader): Problem[] {
  if (!isObject(read('rollout.engine')) || read('policy.pixels') === undefined) return [];
  return problem(
    'rollout.engine',
    "found vllm for a policy that sees, whose pictures are not sent to it; allowed: null, the policy's own engine",
  );
}

function ownDevices(read: Reader): Problem[] {
  const [served, trained] = [read('rollout.engine.serve.devices'), read('launch.devices')];
  if (!Array.isArray(served) || !Array.isArray(trained)) return [];
  const shared = served.filter((device) => trained.includes(device));
  if (shared.length === 0) return [];
  return problem(
    'rollout.engine.serve.devices',
    `found ${shared.join(', ')}, which the run itself uses (launch.devices); allowed: GPUs of its own`,
  );
}
