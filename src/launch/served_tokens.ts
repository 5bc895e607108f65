/** The most that a run at a training server asks of it, in tokens, from its settings alone. */
import { TOKEN_KINDS, type TokenCounts } from '../run/spending.js';
import type { GrpoSettings, WordsSftSettings } from '../schema/algorithm.js';
import type { RunSettings } from '../schema/run.js';
import type { TinkerSettings } from '../schema/trainer.js';
import type { RolloutSettings, ValidationSettings } from '../schema/training.js';
import { getPath } from '../schema/walk.js';
import { mostEpisodes } from './judge_questions.js';

/** What the recipes whose policy a server can train have in common. */
interface Served {
  readonly algorithm: GrpoSettings | WordsSftSettings;
  readonly rollout: RolloutSettings;
  readonly validation: ValidationSettings;
  readonly policy: { readonly trainer: TinkerSettings; readonly model_context_size: number };
}

export interface ServedTokens {
  /** Most tokens of an iteration, without evaluations. */
  readonly iteration: TokenCounts;
  /** Most tokens of a held-out evaluation. */
  readonly evaluation: TokenCounts;
  /** Whether the server is started with the run. */
  readonly starts_server: boolean;
}

/** Null for a run that no server trains. */
export function servedTokens(settings: RunSettings): ServedTokens | null {
  if (!isServed(settings)) return null;
  return {
    iteration: ofIteration(settings),
    evaluation: ofEvaluation(settings),
    starts_server: (settings.policy.trainer.serve ?? null) !== null,
  };
}

function ofIteration({ algorithm, rollout, policy: { model_context_size: context } }: Served): TokenCounts {
  if (algorithm.type === 'sft') return { prefill: 0, sampled: 0, trained: algorithm.sft.batch_size * context };
  const { episodes_per_iteration: episodes, generations_per_sample: group, max_response_tokens: longest } = rollout;
  const { clip_range, inner_epochs, minibatches, kl_coeff } = algorithm;
  const steps = inner_epochs * minibatches;
  const sampled = mostEpisodes(rollout);
  // Passes without a gradient: to the weights that sampled, before each step after the first, and to the base model.
  const isPlain = clip_range === null && steps === 1 && kl_coeff === 0 && rollout.ahead === 0;
  const passes = (isPlain ? 0 : inner_epochs) + (kl_coeff > 0 ? 1 : 0);
  return {
    prefill: (sampled / group) * context + passes * episodes * context,
    sampled: sampled * Math.min(longest, context),
    trained: inner_epochs * episodes * context,
  };
}

function ofEvaluation({ algorithm, rollout, validation, policy }: Served): TokenCounts {
  const { model_context_size: context } = policy;
  const answers = validation.prompts * (validation.greedy ? 2 : 1);
  const labels = algorithm.type === 'sft' ? validation.prompts * context : 0;
  return {
    prefill: answers * context + labels,
    sampled: answers * Math.min(rollout.max_response_tokens, context),
    trained: 0,
  };
}

function isServed(settings: RunSettings): settings is RunSettings & Served {
  return getPath(settings, 'policy.trainer.type') === 'tinker';
}

/** As `at most 8,192 tokens read, 4,096 written and 8,192 trained on in an iteration`. */
export function showServedTokens({ iteration, starts_server: starts }: ServedTokens): string {
  const [read, written, learnt] = TOKEN_KINDS.map((kind) => Math.ceil(iteration[kind]).toLocaleString('en-US'));
  const where = starts ? ', at a training server that is started with it' : '';
  return `at most ${read} tokens read, ${written} written, ${learnt} trained on in an iteration${where}`;
}
