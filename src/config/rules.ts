/** Combinations that cannot work, although each value alone may stand. One entry of the table per combination. */
import { termsThatAsk } from '../rewards/choice.js';
import { isObject } from '../schema/walk.js';
import type { Problem } from './problems.js';
import { perTermProblems, rewardChoice, rewardProblems } from './reward_rules.js';

/** Reads defaulted values by dotted path; undefined where the value is absent or already known to be wrong. */
export interface Reader {
  value(path: string): unknown;
}

type Rule = (read: Reader) => Problem[];

/** Every combination that cannot work. A rule stays silent when one of its values is wrong by itself. */
export function combinationProblems(read: Reader): Problem[] {
  return rules.flatMap((rule) => rule(read));
}

const rules: readonly Rule[] = [
  (read) =>
    indivisible(
      read,
      'rollout.episodes_per_iteration',
      'rollout.generations_per_sample',
      'so that every group is whole',
    ),
  (read) =>
    isGrpo(read)
      ? indivisible(
          read,
          'rollout.episodes_per_iteration',
          'optimizer.per_device_batch_size',
          'so that micro-batches have a fixed size',
        )
      : indivisible(
          read,
          'algorithm.sft.batch_size',
          'optimizer.per_device_batch_size',
          'so that micro-batches have a fixed size',
        ),
  (read) =>
    indivisible(
      read,
      'checkpoint.keep_every_n_iterations',
      'checkpoint.save_every_n_iterations',
      'because only what is saved can be kept',
    ),
  (read) => {
    const generations = number(read, 'rollout.generations_per_sample');
    if (!isGrpo(read) || generations === null || generations >= 2) return [];
    return problem(
      'rollout.generations_per_sample',
      `found ${generations}; allowed: 2 or more, because GRPO compares the answers of one prompt`,
    );
  },
  (read) => [...coefficients(read, 'data.train'), ...coefficients(read, 'data.validation')],
  (read) => {
    const steps = number(read, 'algorithm.train_tokens.steps');
    const cycle = number(read, 'algorithm.train_tokens.cycle_steps');
    if (steps === null || cycle === null || steps <= cycle) return [];
    return problem('algorithm.train_tokens.steps', `found ${steps}; allowed: at most cycle_steps (${cycle})`);
  },
  decay,
  start,
  architecture,
  rewardProblems,
  perTermProblems,
  endpoint,
  (read) => {
    const name = read.value('run_name');
    const named = ['policy.model', 'policy.tokenizer', 'environment.model'].filter(
      (key) => name !== undefined && read.value(`${key}.run`) === name,
    );
    return named.flatMap((key) =>
      problem(`${key}.run`, `found '${String(name)}', which is this run itself; allowed: another run`),
    );
  },
  (read) => {
    if (read.value('task') !== 'external' || read.value('launch.command') !== null) return [];
    return problem(
      'launch.command',
      "found null; task 'external' needs the program that trains, such as ['python', 'train.py']",
    );
  },
  (read) => {
    const side = product(number(read, 'data.tiny.grid'), number(read, 'data.tiny.cell'));
    const patch = number(read, 'environment.init.patch');
    if (side === null || patch === null || side % patch === 0) return [];
    return problem('environment.init.patch', `found ${patch}; allowed: a divisor of the image's side (${side} pixels)`);
  },
];

/** What tells how a learning rate falls needs one that does, and a fall begins after warm-up. */
function decay(read: Reader): Problem[] {
  const schedule = read.value('optimizer.schedule');
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

/** A policy starts from a checkpoint or from random weights, not from both and not from neither. */
function start(read: Reader): Problem[] {
  const model = read.value('policy.model');
  const init = read.value('policy.init');
  if (model === undefined || init === undefined) return [];
  if (model === null && init === null) {
    return problem(
      'policy.model',
      'found null; set it to a local path, {hub, revision} or {run, config}, or set policy.init to start from random weights',
    );
  }
  if (model !== null && init !== null) {
    return problem(
      'policy.init',
      'found both policy.model and policy.init; set one of them to null: a checkpoint brings its own architecture',
    );
  }
  return [];
}

function architecture(read: Reader): Problem[] {
  const heads = number(read, 'policy.init.num_attention_heads');
  const keyHeads = number(read, 'policy.init.num_key_value_heads');
  const hidden = number(read, 'policy.init.hidden_size');
  const givenDim = number(read, 'policy.init.head_dim');
  const problems: Problem[] = [];
  if (heads !== null && keyHeads !== null && heads % keyHeads !== 0) {
    problems.push(
      ...problem(
        'policy.init.num_key_value_heads',
        `found ${keyHeads}; allowed: a divisor of num_attention_heads (${heads})`,
      ),
    );
  }
  if (heads === null || hidden === null) return problems;
  if (givenDim === null && hidden % heads !== 0) {
    problems.push(
      ...problem(
        'policy.init.hidden_size',
        `found ${hidden}; allowed: a multiple of num_attention_heads (${heads}), or set head_dim`,
      ),
    );
  } else if ((givenDim ?? hidden / heads) % 2 !== 0) {
    const [key, found] = givenDim === null ? ['hidden_size', hidden] : ['head_dim', givenDim];
    problems.push(
      ...problem(
        `policy.init.${key}`,
        `found ${found}; allowed: a value with an even width per head, as rotary positions need`,
      ),
    );
  }
  return problems;
}

function endpoint(read: Reader): Problem[] {
  const value = read.value('reward.endpoint');
  if (value === '') {
    const choice = rewardChoice(read);
    const asking = choice === null ? [] : termsThatAsk(choice);
    if (!isGrpo(read) || asking.length === 0) return [];
    return problem(
      'reward.endpoint',
      `empty, but reward '${asking[0]}' needs a judge: export APP__REWARD_FUNCTION_API_BASE=http://HOST:4877 or set it here; 'embedded' starts the rule judge of the tiny world`,
    );
  }
  const addresses: readonly unknown[] = Array.isArray(value) ? value : typeof value === 'string' ? [value] : [];
  const wrong = addresses.filter((address) => !isUrl(address) && (address !== 'embedded' || Array.isArray(value)));
  if (wrong.length === 0) return [];
  return problem(
    'reward.endpoint',
    `found '${wrong.join("', '")}'; allowed: an http(s) URL such as http://HOST:4877, a list of such URLs, or 'embedded'`,
  );
}

function isUrl(address: unknown): boolean {
  return typeof address === 'string' && URL.canParse(address) && /^https?:$/.test(new URL(address).protocol);
}

function coefficients(read: Reader, key: string): Problem[] {
  const sources = read.value(key);
  if (!Array.isArray(sources)) return [];
  const given = sources.filter((source) => isObject(source) && typeof source['coefficient'] === 'number').length;
  if (given === 0 || given === sources.length) return [];
  return problem(
    key,
    `${given} of ${sources.length} sources have a coefficient; allowed: all of them, or none (each is then upsampled to the largest)`,
  );
}

function indivisible(read: Reader, whole: string, part: string, reason: string): Problem[] {
  const [dividend, divisor] = [number(read, whole), number(read, part)];
  if (dividend === null || divisor === null || dividend % divisor === 0) return [];
  return problem(whole, `found ${dividend}; allowed: a multiple of ${part} (${divisor}), ${reason}`);
}

function isGrpo(read: Reader): boolean {
  return read.value('algorithm.type') === 'grpo';
}

function number(read: Reader, path: string): number | null {
  const value = read.value(path);
  return typeof value === 'number' ? value : null;
}

function product(a: number | null, b: number | null): number | null {
  return a === null || b === null ? null : a * b;
}

function problem(key: string, message: string): Problem[] {
  return [{ key, message }];
}
