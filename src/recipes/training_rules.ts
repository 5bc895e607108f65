/** Rules about how a run learns, for the recipes that have these sections. */
import type { ReadSettings } from '../schema/mark.js';
import { isObject } from '../schema/walk.js';
import { indivisible, number, problem, type Problem, type Reader, type Rule } from './rules.js';

/** A supervised run learns only from labels: its sampled answers and their scores are only for people to look at. */
export const supervised = (read: ReadSettings): boolean => read('algorithm.type') === 'sft';

/** A micro-batch has a fixed composition, so a batch consists of whole micro-batches. */
export const wholeBatches: Rule = (read) =>
  indivisible(
    read,
    isGrpo(read) ? 'rollout.episodes_per_iteration' : 'algorithm.sft.batch_size',
    'optimizer.per_device_batch_size',
    'so that micro-batches have a fixed size',
  );

/** Rules of every recipe that this program trains. */
export const sharedRules: readonly Rule[] = [
  (read) => [...coefficients(read, 'data.train'), ...coefficients(read, 'data.validation')],
  decay,
  (read) => {
    if (read('validation.weights') !== 'average' || read('optimizer.ema_decay') !== null) return [];
    return problem(
      'validation.weights',
      "found 'average' without optimizer.ema_decay, which makes the averages; allowed: 'current' or null, or set it",
    );
  },
];

/** Rules for answers that are sampled and compared within their groups. */
export const groupRules: readonly Rule[] = [
  (read) =>
    indivisible(
      read,
      'rollout.episodes_per_iteration',
      'rollout.generations_per_sample',
      'so that every group is whole',
    ),
  (read) => {
    const generations = number(read, 'rollout.generations_per_sample');
    if (!isGrpo(read) || generations === null || generations >= 2) return [];
    const scope = read('algorithm.advantage.scope');
    if (scope === undefined || (scope !== 'group' && read('algorithm.advantage.per_term') === false)) return [];
    return problem(
      'rollout.generations_per_sample',
      `found ${generations}; allowed: 2 or more, because GRPO compares the answers of one prompt (those of others, too, with algorithm.advantage.scope 'batch')`,
    );
  },
  (read) => {
    if (!isGrpo(read) || read('algorithm.kl_estimator') !== 'k1') return [];
    return problem(
      'algorithm.kl_estimator',
      "found 'k1', whose gradient in the loss is zero in expectation: it would hold nothing back; allowed: k2 or k3",
    );
  },
];

/** Rules for token policies, whose minibatches are whole groups. */
export const tokenGroupRules: readonly Rule[] = [
  ...groupRules,
  (read) => {
    const [episodes, generations] = ['episodes_per_iteration', 'generations_per_sample'].map((key) =>
      number(read, `rollout.${key}`),
    );
    const minibatches = number(read, 'algorithm.minibatches');
    if (episodes === null || generations === null || minibatches === null) return [];
    const prompts = episodes / generations;
    if (!Number.isInteger(prompts) || prompts % minibatches === 0) return [];
    return problem(
      'algorithm.minibatches',
      `found ${minibatches}; allowed: a divisor of the ${prompts} prompts of an iteration (rollout.episodes_per_iteration / rollout.generations_per_sample)`,
    );
  },
  (read) => {
    const steps = number(read, 'algorithm.train_tokens.steps');
    const cycle = number(read, 'algorithm.train_tokens.cycle_steps');
    if (steps === null || cycle === null || steps <= cycle) return [];
    return problem('algorithm.train_tokens.steps', `found ${steps}; allowed: at most cycle_steps (${cycle})`);
  },
];

/** Settings of a decay need a schedule that decays, and a decay begins after warm-up. */
function decay(read: Reader): Problem[] {
  const schedule = read('optimizer.schedule');
  const steps = number(read, 'optimizer.decay_steps');
  if (schedule === undefined || steps === null) return [];
  if (schedule === 'constant') {
    return problem(
      'optimizer.decay_steps',
      `found ${steps} with optimizer.schedule 'constant', which never falls; allowed: null, or schedule 'linear' or 'cosine'`,
    );
  }
  const warmup = number(read, 'algorithm.warmup_steps');
  if (warmup === null || steps > warmup) return [];
  return problem(
    'optimizer.decay_steps',
    `found ${steps}; allowed: more than algorithm.warmup_steps (${warmup}), which it includes, or null for all steps of the run`,
  );
}

function coefficients(read: Reader, key: string): Problem[] {
  const sources = read(key);
  if (!Array.isArray(sources)) return [];
  const given = sources.filter((source) => isObject(source) && typeof source['coefficient'] === 'number').length;
  if (given === 0 || given === sources.length) return [];
  return problem(
    key,
    `${given} of ${sources.length} sources have a coefficient; allowed: all of them, or none (each is then upsampled to the largest)`,
  );
}

/** Whether it learns from rewards. */
function isGrpo(read: Reader): boolean {
  return ['grpo', 'ppo'].includes(read('algorithm.type') as string);
}
