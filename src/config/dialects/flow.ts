/**
 * The flat dialect of IP-Adapter training with rewards: the arguments of a program that warms up the adapter and continues with RL in one run. Here
 * these are two runs: such a file describes the RL run, and its parent `<run_name>__warmup`. Canonical keys may appear beside the flat ones, in the
 * file, in overlays and in `--set`.
 */
import { existsSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { readSelfBench } from '../../data/self_bench.js';
import { ipAdapter } from '../../recipes/ip_adapter/settings.js';
import type { Problem } from '../../recipes/rules.js';
import { getPath, hasPath, setPath } from '../../schema/paths.js';
import { isObject } from '../../schema/walk.js';
import { FLOW_ONLY, FLOW_OWN, flowAbsent, flowKeys, type FlowName } from './flow_keys.js';
import {
  namedModel,
  separateForms,
  type Dialect,
  type DialectSource,
  type TableKey,
  type Translation,
} from './dialect.js';
import { FlatWords } from './words.js';

const WARM_UP = '__warmup';
/** An experiment appends axis values to the warm-up's name. */
const isWarmUpName = (name: string): boolean => name.endsWith(WARM_UP) || name.includes(`${WARM_UP}__`);
const sections = Object.keys(ipAdapter.schema.shape);

/** A file is in this dialect if it names no task and has a key that only this dialect has. */
function recognises(raw: Readonly<Record<string, unknown>>): boolean {
  return raw['task'] === undefined && FLOW_OWN.some((key) => key in raw);
}

/** Translates such a file to the canonical form; `raw` is changed. */
function translate(raw: Record<string, unknown>, source: DialectSource): Translation {
  const { value, problems } = separateForms(raw, flowKeys, sections, source);
  const names = new Map<string, string>();
  const warnings: string[] = [];
  const put: Put = (path, content, name) => {
    if (name !== undefined) names.set(path, name);
    if (!hasPath(value, path)) setPath(value, path, content);
  };
  put('task', ipAdapter.name);
  put('data.dir', source.dataDir);
  for (const [name, { to, joint }] of Object.entries(flowKeys) as [FlowName, TableKey][]) {
    if (!(name in raw)) continue;
    if (to === null) {
      if (joint !== true) warnings.push(`${name} has no meaning here, and is left out`);
    } else if (joint !== true) put(to, raw[name], name);
  }
  const file: File = { raw, value, put, warnings };
  place(file);
  problems.push(...only(raw), ...model(file), ...data(file), ...reward(file));
  problems.push(...algorithm(file), ...optimizer(file), ...batches(file, source), ...phases(file, names, source));
  return {
    value,
    problems,
    warnings,
    words: new FlatWords(names, [], source.changes),
  };
}

type Put = (path: string, content: unknown, name?: FlowName) => void;
type Raw = Readonly<Record<string, unknown>>;
interface File {
  readonly raw: Raw;
  readonly value: Record<string, unknown>;
  readonly put: Put;
  readonly warnings: string[];
}

/** The file's value, or the program's default. */
const given = (raw: Raw, name: keyof typeof flowAbsent): unknown => raw[name] ?? flowAbsent[name];

function problem(key: FlowName, found: unknown, allowed: string): Problem[] {
  return [{ key, message: `found ${JSON.stringify(found)}; allowed: ${allowed}` }];
}

/** Checks keys of which only some values match what is done here. */
function only(raw: Raw): Problem[] {
  return Object.entries(FLOW_ONLY).flatMap(([name, { values, because }]) => {
    if (!(name in raw) || values.includes(raw[name])) return [];
    const allowed = values.map((value) => JSON.stringify(value)).join(' or ');
    return problem(name as FlowName, raw[name], `${allowed}, or left out: ${because}`);
  });
}

/** `output_dir` is the run's folder in that program. */
function place({ raw, put }: File): void {
  const { output_dir: folder } = raw;
  if (typeof folder !== 'string') return;
  put('base_exp_dir', dirname(folder), 'output_dir');
  put('run_name', basename(folder), 'output_dir');
}

/** The transformer, or the folder of a pipeline that holds it beside its autoencoder; and what looks at style images. */
function model({ raw, put }: File): Problem[] {
  const { pretrained_model_name_or_path: named, revision = null, siglip_path: looks } = raw;
  if (looks !== undefined) put('policy.parts.image_encoder', namedModel(looks), 'siglip_path');
  if (named === undefined) return [];
  const isPipeline = typeof named === 'string' && existsSync(join(named, 'transformer'));
  put(
    'policy.model',
    isPipeline ? join(named, 'transformer') : namedModel(named, revision),
    'pretrained_model_name_or_path',
  );
  if (isPipeline && existsSync(join(named, 'vae'))) put('policy.parts.vae', join(named, 'vae'));
  return [];
}

/** The folder of self_bench.txt; the program makes squares and crops styles in its own way. */
function data({ raw, put }: File): Problem[] {
  const { train_data_json: folder, resolution } = raw;
  if (folder === undefined) {
    if (resolution !== undefined) put('data.resolution', resolution, 'resolution');
    return [];
  }
  if (typeof folder !== 'string' || folder === '') {
    return problem('train_data_json', folder, 'the folder that self_bench.txt lies in');
  }
  put('data.train', [{ path: folder }], 'train_data_json');
  put('data.validation', []);
  put('data.resolution', given(raw, 'resolution'), 'resolution');
  put('data.style_crop', { kind: 'mask' });
  return [];
}

/** Per-prompt statistics mean GRPO, statistics over the whole batch PPO. */
function algorithm({ raw, put, warnings }: File): Problem[] {
  const { rl_per_prompt_stat_tracking: perPrompt = false, use_rl: rl = true, rl_kl_beta: beta } = raw;
  if (typeof perPrompt !== 'boolean') return problem('rl_per_prompt_stat_tracking', perPrompt, 'true or false');
  if (typeof rl !== 'boolean') return problem('use_rl', rl, 'true or false');
  put('algorithm.type', perPrompt ? 'grpo' : 'ppo', 'rl_per_prompt_stat_tracking');
  if (typeof beta === 'number' && beta > 0) {
    warnings.push(
      'rl_kl_beta is algorithm.kl_coeff, and holds the policy to its start here; the program it comes from leaves that loss out, which is 0',
    );
  }
  return [];
}

/** By `lr_scheduler`; the constant schedule has no warm-up, whatever lr_warmup_steps says. */
const SCHEDULES: ReadonlyMap<unknown, { readonly schedule: string; readonly warmsUp: boolean }> = new Map([
  ['constant', { schedule: 'constant', warmsUp: false }],
  ['constant_with_warmup', { schedule: 'constant', warmsUp: true }],
  ['linear', { schedule: 'linear', warmsUp: true }],
  ['cosine', { schedule: 'cosine', warmsUp: true }],
]);

/** Learning rates and averages. */
function optimizer({ raw, put, warnings }: File): Problem[] {
  const named = given(raw, 'lr_scheduler');
  const found = SCHEDULES.get(named);
  if (found === undefined) {
    return problem('lr_scheduler', named, [...SCHEDULES.keys()].map((name) => JSON.stringify(name)).join(', '));
  }
  if ('lr_scheduler' in raw) put('optimizer.schedule', found.schedule, 'lr_scheduler');
  if (found.warmsUp) put('algorithm.warmup_steps', given(raw, 'lr_warmup_steps'), 'lr_warmup_steps');
  else if ('lr_warmup_steps' in raw) {
    warnings.push("lr_warmup_steps has no effect with lr_scheduler 'constant', as in its own program, and is left out");
  }
  const { use_ema: averages } = raw;
  if (averages !== undefined && typeof averages !== 'boolean') return problem('use_ema', averages, 'true or false');
  if (averages === true) put('optimizer.ema_decay', given(raw, 'ema_decay'), 'ema_decay');
  else if ('ema_decay' in raw) warnings.push('ema_decay has no effect without use_ema, and is left out');
  return [];
}

/** The shares of the two scores, from the run's own terms or from reward servers. */
function reward({ raw, value, put }: File): Problem[] {
  const { reward_server_url: urls } = raw;
  if (!('ocr_weight' in raw) && !('vlm_weight' in raw) && urls === undefined) return [];
  if (urls !== undefined && (typeof urls !== 'string' || urls.trim() === '')) {
    return problem(
      'reward_server_url',
      urls,
      'addresses with commas between them, such as http://127.0.0.1:8000/score',
    );
  }
  const shares: Record<string, number> = {};
  let sum = 0;
  for (const [name, own, served] of [
    ['ocr_weight', 'ocr_confidence', 'ocr_confidence'],
    ['vlm_weight', 'align_quality', 'vlm_score'],
  ] as const) {
    const weight = urls === undefined ? raw[name] : given(raw, name);
    if (typeof weight !== 'number' || weight < 0) {
      return problem(name, weight ?? null, 'a number of at least 0, beside the other weight');
    }
    if (weight > 0) shares[urls === undefined ? own : served] = weight;
    sum += weight;
  }
  if (sum === 0) return problem('vlm_weight', 0, 'a weight above 0 beside ocr_weight 0');
  const weighed = Object.fromEntries(Object.entries(shares).map(([term, weight]) => [term, weight / sum]));
  const terms = getPath(value, 'reward.terms');
  const isRemote = Array.isArray(terms) && terms.length === 1 && isObject(terms[0]) && terms[0]['name'] === 'remote';
  if (isRemote && urls === undefined) {
    put('reward.terms.0.terms', weighed, 'ocr_weight');
    return [];
  }
  if (hasPath(value, 'reward.terms') || hasPath(value, 'reward.mode')) {
    const key = urls === undefined ? 'ocr_weight' : 'reward_server_url';
    return [{ key, message: 'also given as reward.mode or reward.terms; keep one of the two' }];
  }
  if (urls !== undefined) {
    const endpoint = urls.split(',').map((url) => url.trim());
    const remote = { name: 'remote', weight: 1, protocol: 'calligrapher', endpoint, terms: weighed };
    put('reward.terms', [remote], 'reward_server_url');
    return [];
  }
  put(
    'reward.terms',
    Object.entries(weighed).map(([name, weight]) => ({ name, weight })),
    'ocr_weight',
  );
  return [];
}

/**
 * Converts the program's counts to iterations. In an epoch of its RL each process rolls out `rl_num_batches_per_epoch` batches of prompts, and learns
 * from every noisy step of every picture separately; `gradient_accumulation_steps` of these batches make an optimizer step, and `max_train_steps` and
 * `checkpointing_steps` count optimizer steps, including those of the warm-up.
 */
function batches({ raw, value, put }: File, { runName }: DialectSource): Problem[] {
  const counted = ['rl_num_images_per_prompt', 'max_train_steps', 'num_train_epochs', 'checkpointing_steps'] as const;
  if (!counted.some((name) => name in raw)) return [];
  const whole = (name: Exclude<keyof typeof flowAbsent, 'lr_scheduler'>): number => {
    const found = given(raw, name);
    if (typeof found === 'number' && Number.isInteger(found) && found > 0) return found;
    problems.push(...problem(name, found, 'a whole number above 0'));
    return 1;
  };
  const problems: Problem[] = [];
  const saved = whole('checkpointing_steps');
  const [perDevice, accumulated] = [whole('train_batch_size'), whole('gradient_accumulation_steps')];
  const [images, rolled] = [whole('rl_num_images_per_prompt'), whole('rl_num_batches_per_epoch')];
  const [solved, epochs] = [whole('rl_num_inference_steps'), whole('rl_num_inner_epochs')];
  const fraction = given(raw, 'rl_timestep_fraction');
  if (problems.length > 0 || typeof fraction !== 'number') return problems;
  const processes = getPath(value, 'launch.processes');
  const devices = typeof processes === 'number' ? processes : 1;
  put('rollout.episodes_per_iteration', rolled * perDevice * devices * images, 'rl_num_batches_per_epoch');
  const steps = Math.max(1, Math.round((rolled * images * Math.floor(solved * fraction)) / accumulated));
  put('algorithm.minibatches', steps, 'gradient_accumulation_steps');
  const batch = perDevice * accumulated * devices;
  put('algorithm.sft.batch_size', batch, 'gradient_accumulation_steps');
  // A supervised run takes one step per iteration.
  const isSupervised = raw['use_rl'] === false || isWarmUpName(runName);
  if ('checkpointing_steps' in raw) {
    const every = isSupervised ? saved : Math.max(1, Math.round(saved / (steps * epochs)));
    put('checkpoint.save_every_n_iterations', every, 'checkpointing_steps');
    put('checkpoint.keep_every_n_iterations', every, 'checkpointing_steps');
  }
  if (hasPath(value, 'num_iterations')) return [];
  const key =
    raw['max_train_steps'] === undefined || raw['max_train_steps'] === null ? 'num_train_epochs' : 'max_train_steps';
  const all = key === 'max_train_steps' ? raw[key] : stepsOfEpochs(raw, batch);
  const { rl_warmup_steps: warmUp = 0 } = raw;
  if (typeof all !== 'number' || typeof warmUp !== 'number' || all <= warmUp) {
    return problem(
      key,
      all ?? null,
      `more steps than rl_warmup_steps ${JSON.stringify(warmUp)}, or num_iterations instead`,
    );
  }
  const left = raw['use_rl'] === false ? all : Math.ceil((all - warmUp) / (steps * epochs));
  put('num_iterations', left, key);
  return [];
}

/** Optimizer steps in `num_train_epochs`; undefined if the samples cannot be counted. */
function stepsOfEpochs(raw: Raw, batch: number): number | undefined {
  const [folder, epochs] = [raw['train_data_json'], given(raw, 'num_train_epochs')];
  if (typeof folder !== 'string' || typeof epochs !== 'number') return undefined;
  try {
    return epochs * Math.ceil(readSelfBench(folder).samples / batch);
  } catch {
    return undefined; // Problems are reported when it is opened.
  }
}

/** Turns the file's settings into those of one of its two runs. */
function phases({ raw, value }: File, names: Map<string, string>, source: DialectSource): Problem[] {
  const { rl_warmup_steps: steps = 0 } = raw;
  if (typeof steps !== 'number' || !Number.isInteger(steps) || steps < 0) {
    return problem('rl_warmup_steps', steps, 'a whole number; 0 means no warm-up');
  }
  const own = typeof value['run_name'] === 'string' ? value['run_name'] : source.runName;
  const isWarmUp = isWarmUpName(source.runName);
  value['run_name'] = isWarmUp ? source.runName : own;
  const { sft, ...learning } = isObject(value['algorithm']) ? value['algorithm'] : {};
  const supervised = { type: 'sft', ...(sft === undefined ? {} : { sft }) };
  if (isWarmUp) {
    value['algorithm'] = supervised;
    value['num_iterations'] = steps;
    names.set('num_iterations', 'rl_warmup_steps');
    if (steps > 0) return [];
    return problem('rl_warmup_steps', steps, `at least 1 for the warm-up ${source.runName}`);
  }
  if (raw['use_rl'] === false) {
    value['algorithm'] = supervised;
    return [];
  }
  value['algorithm'] = learning;
  if (steps === 0) return [];
  // RL continues from the warm-up's weights.
  setPath(value, 'policy.init', null);
  setPath(value, 'policy.ip_adapter', null);
  setPath(value, 'policy.model', { run: `${own}${WARM_UP}`, config: basename(source.file) });
  return [];
}

export const flow: Dialect = { recognises, translate };
