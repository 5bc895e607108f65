/**
 * The flat dialect of IP-Adapter training with rewards: the arguments of a program that warms the adapter up and goes on with RL in one run.
 * Here these are two runs: such a file stands for that of the RL, and for its parent `<run_name>__warmup`. Canonical keys may stand beside
 * the flat ones, in the file, in overlays and in `--set`.
 */
import { basename } from 'node:path';
import { ipAdapter } from '../recipes/ip_adapter/settings.js';
import type { Problem } from '../recipes/rules.js';
import { getPath, hasPath, setPath } from '../schema/paths.js';
import { isObject } from '../schema/walk.js';
import type { Translation } from './flat.js';
import { namedModel, takenApart, type TableKey, type TableSource } from './flat_table.js';
import { FlatWords } from './flat_words.js';

const keys = {
  model_type: { to: 'policy.model_type' },
  pretrained_model_name_or_path: { to: 'policy.model', joint: true },
  learning_rate: { to: 'optimizer.learning_rate' },
  train_batch_size: { to: 'optimizer.per_device_batch_size' },
  rl_num_inner_epochs: { to: 'algorithm.inner_epochs' },
  rl_warmup_steps: { to: 'num_iterations', joint: true, shared: true },
  rl_per_prompt_stat_tracking: { to: 'algorithm.type', joint: true },
  // Terms of reward servers take them over.
  ocr_weight: { to: 'reward.terms', joint: true, shared: true },
  vlm_weight: { to: 'reward.terms', joint: true, shared: true },
} as const satisfies Readonly<Record<string, TableKey>>;
type FlowName = keyof typeof keys;

/** Those that no other dialect has. */
const OWN = [
  'model_type',
  'rl_num_inner_epochs',
  'rl_warmup_steps',
  'rl_per_prompt_stat_tracking',
  'ocr_weight',
  'vlm_weight',
];

const WARM_UP = '__warmup';
/** Behind the warm-up's name an experiment writes the axes that reach it. */
const isWarmUpName = (name: string): boolean => name.endsWith(WARM_UP) || name.includes(`${WARM_UP}__`);
const sections = Object.keys(ipAdapter.schema.shape);

/** A file is in the dialect when it names no task and has a key that is the dialect's alone. */
export function isFlatFlow(raw: Readonly<Record<string, unknown>>): boolean {
  return raw['task'] === undefined && OWN.some((key) => key in raw);
}

export interface FlowSource extends TableSource {
  readonly file: string;
  /** The name that is asked for (APP__RUN_NAME): that of the warm-up, where the file is read as another run's parent. */
  readonly runName: string;
  readonly dataDir: string;
}

/** Translates such a file to the canonical form; `raw` is changed. */
export function translateFlatFlow(raw: Record<string, unknown>, source: FlowSource): Translation {
  const { value, problems } = takenApart(raw, keys, sections, source);
  const names = new Map<string, string>();
  const put = (path: string, content: unknown, name?: FlowName): void => {
    if (name !== undefined) names.set(path, name);
    if (!hasPath(value, path)) setPath(value, path, content);
  };
  put('task', ipAdapter.name);
  put('data.dir', source.dataDir);
  for (const [name, { to, ...rest }] of Object.entries(keys) as [
    FlowName,
    { readonly to: string; readonly joint?: true },
  ][]) {
    if (rest.joint !== true && name in raw) put(to, raw[name], name);
  }
  const named = raw['pretrained_model_name_or_path'];
  if (named !== undefined) put('policy.model', namedModel(named), 'pretrained_model_name_or_path');
  problems.push(...reward(raw, value, put));
  problems.push(...algorithm(raw, put), ...phases(raw, value, names, source));
  return {
    value,
    problems,
    warnings: [],
    words: new FlatWords(
      names,
      [],
      source.changes.map(({ path }) => path),
    ),
  };
}

type Put = (path: string, content: unknown, name?: FlowName) => void;
type Raw = Readonly<Record<string, unknown>>;

function problem(key: FlowName, found: unknown, allowed: string): Problem[] {
  return [{ key, message: `found ${JSON.stringify(found)}; allowed: ${allowed}` }];
}

/** Statistics per prompt are GRPO's, and those of the whole batch PPO's. */
function algorithm(raw: Raw, put: Put): Problem[] {
  const { rl_per_prompt_stat_tracking: perPrompt = false } = raw;
  if (typeof perPrompt !== 'boolean') return problem('rl_per_prompt_stat_tracking', perPrompt, 'true or false');
  put('algorithm.type', perPrompt ? 'grpo' : 'ppo', 'rl_per_prompt_stat_tracking');
  return [];
}

/** Shares of the two scores: of the run's own terms, or of what reward servers give. */
function reward(raw: Raw, value: Record<string, unknown>, put: Put): Problem[] {
  if (!('ocr_weight' in raw) && !('vlm_weight' in raw)) return [];
  const shares: Record<string, number> = {};
  let sum = 0;
  for (const [name, term] of [
    ['ocr_weight', 'ocr_confidence'],
    ['vlm_weight', 'align_quality'],
  ] as const) {
    const weight = raw[name];
    if (typeof weight !== 'number' || weight < 0) {
      return problem(name, weight ?? null, 'a number of at least 0, beside the other weight');
    }
    if (weight > 0) shares[term] = weight;
    sum += weight;
  }
  if (sum === 0) return problem('vlm_weight', 0, 'a weight above 0 beside ocr_weight 0');
  const weighed = Object.fromEntries(Object.entries(shares).map(([term, weight]) => [term, weight / sum]));
  const terms = getPath(value, 'reward.terms');
  if (Array.isArray(terms) && terms.length === 1 && isObject(terms[0]) && terms[0]['name'] === 'remote') {
    put('reward.terms.0.terms', weighed, 'ocr_weight');
    return [];
  }
  if (hasPath(value, 'reward.terms') || hasPath(value, 'reward.mode')) {
    return [{ key: 'ocr_weight', message: 'also given as reward.mode or reward.terms; keep one of the two' }];
  }
  put(
    'reward.terms',
    Object.entries(weighed).map(([name, weight]) => ({ name, weight })),
    'ocr_weight',
  );
  return [];
}

/** Makes the file's settings those of one of its two runs. */
function phases(raw: Raw, value: Record<string, unknown>, names: Map<string, string>, source: FlowSource): Problem[] {
  const { rl_warmup_steps: steps = 0 } = raw;
  if (typeof steps !== 'number' || !Number.isInteger(steps) || steps < 0) {
    return problem('rl_warmup_steps', steps, 'a whole number; 0 means no warm-up');
  }
  const own = typeof value['run_name'] === 'string' ? value['run_name'] : source.runName;
  const isWarmUp = isWarmUpName(source.runName);
  value['run_name'] = isWarmUp ? source.runName : own;
  const { sft, ...learning } = isObject(value['algorithm']) ? value['algorithm'] : {};
  if (isWarmUp) {
    value['algorithm'] = { type: 'sft', ...(sft === undefined ? {} : { sft }) };
    value['num_iterations'] = steps;
    names.set('num_iterations', 'rl_warmup_steps');
    if (steps > 0) return [];
    return problem('rl_warmup_steps', steps, `at least 1 for the warm-up ${source.runName}`);
  }
  value['algorithm'] = learning;
  if (steps === 0) return [];
  // What the warm-up begins, the RL goes on with.
  setPath(value, 'policy.init', null);
  setPath(value, 'policy.ip_adapter', null);
  setPath(value, 'policy.model', { run: `${own}${WARM_UP}`, config: basename(source.file) });
  return [];
}
