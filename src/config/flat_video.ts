/**
 * The flat dialect of GRPO on videos: the arguments of Qwen2.5-VL's fine-tuning, extended for GRPO
 * (https://github.com/ChristianLin0420/Qwen2.5-VL-Video). Canonical keys may stand beside the flat ones, in the file, in overlays and in
 * `--set`. Named datasets (`dataset_use`) are looked up in the file's own table `datasets`, {name: {annotation_path, data_path}}; one that is not
 * there is `<data.dir>/<name>.json`.
 */
import { existsSync, readFileSync, statSync } from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';
import { videoActions } from '../recipes/video_actions/settings.js';
import type { Problem } from '../recipes/rules.js';
import { hasPath, setPath } from '../schema/paths.js';
import { isObject } from '../schema/walk.js';
import type { Translation } from './flat.js';
import { namedModel, takenApart, type TableKey, type TableSource } from './flat_table.js';
import { FlatWords } from './flat_words.js';

const keys = {
  model_name_or_path: { to: 'policy.model', joint: true },
  tune_mm_vision: { to: 'policy.train.mm_vision' },
  tune_mm_mlp: { to: 'policy.train.mm_mlp' },
  tune_mm_llm: { to: 'policy.train.mm_llm' },
  model_max_length: { to: 'policy.model_context_size' },
  dataset_use: { to: 'data.train', joint: true },
  datasets: { to: 'data.train', joint: true, shared: true },
  video_min_frames: { to: 'data.frames.min' },
  video_max_frames: { to: 'data.frames.max' },
  base_interval: { to: 'data.frames.interval' },
  min_pixels: { to: 'policy.pixels.image.min_pixels' },
  max_pixels: { to: 'policy.pixels.image.max_pixels' },
  video_min_frame_pixels: { to: 'policy.pixels.video.min_pixels' },
  video_max_frame_pixels: { to: 'policy.pixels.video.max_pixels' },
  output_dir: { to: 'base_exp_dir', joint: true },
  run_name: { to: 'run_name', joint: true },
  seed: { to: 'seed' },
  num_train_epochs: { to: 'num_iterations', joint: true, shared: true },
  max_steps: { to: 'num_iterations', joint: true, shared: true },
  per_device_train_batch_size: { to: 'optimizer.per_device_batch_size', joint: true, shared: true },
  gradient_accumulation_steps: { to: 'rollout.episodes_per_iteration', joint: true, shared: true },
  gradient_checkpointing: { to: 'optimizer.gradient_checkpointing' },
  learning_rate: { to: 'optimizer.learning_rate' },
  weight_decay: { to: 'optimizer.weight_decay' },
  adam_beta1: { to: 'optimizer.betas', joint: true },
  adam_beta2: { to: 'optimizer.betas', joint: true },
  adam_epsilon: { to: 'optimizer.eps' },
  max_grad_norm: { to: 'optimizer.max_grad_norm' },
  lr_scheduler_type: { to: 'optimizer.schedule', joint: true },
  warmup_ratio: { to: 'algorithm.warmup_steps', joint: true },
  warmup_steps: { to: 'algorithm.warmup_steps', joint: true },
  grpo_alpha: { to: 'algorithm.reward_scale', joint: true },
  grpo_beta: { to: 'algorithm.kl_coeff', joint: true },
  grpo_sample_size: { to: 'rollout.generations_per_sample', joint: true },
  format_reward_weight: { to: 'reward.terms', joint: true },
  accuracy_reward_weight: { to: 'reward.terms', joint: true },
  generation_max_length: { to: 'rollout.max_response_tokens' },
  generation_temperature: { to: 'rollout.temperature', joint: true },
  generation_top_p: { to: 'rollout.top_p', joint: true },
  save_steps: { to: 'checkpoint.save_every_n_iterations' },
  save_total_limit: { to: 'checkpoint.keep_last' },
  // Of another trainer, or of how it is run.
  bf16: { to: null },
  tf32: { to: null },
  deepspeed: { to: null },
  cache_dir: { to: null },
  data_flatten: { to: null },
  data_packing: { to: null },
  dataloader_num_workers: { to: null },
  optim: { to: null },
  report_to: { to: null },
  logging_steps: { to: null },
  grpo_logging_steps: { to: null },
  per_device_eval_batch_size: { to: null },
  eval_strategy: { to: null },
  evaluation_strategy: { to: null },
  save_strategy: { to: null },
  mm_projector_lr: { to: null },
  vision_tower_lr: { to: null },
} as const satisfies Readonly<Record<string, TableKey>>;
type VideoName = keyof typeof keys;

/** Those that no other dialect has. */
const OWN: readonly string[] = [
  'dataset_use',
  'format_reward_weight',
  'accuracy_reward_weight',
  'grpo_alpha',
  'grpo_beta',
  'grpo_sample_size',
];

/** What the dialect's program takes where a file leaves a key out. */
const absent = {
  num_train_epochs: 3,
  per_device_train_batch_size: 1,
  gradient_accumulation_steps: 1,
  grpo_alpha: 0.5,
  grpo_beta: 0.1,
  grpo_sample_size: 4,
  format_reward_weight: 0.3,
  accuracy_reward_weight: 0.7,
  generation_temperature: 0.7,
  generation_top_p: 0.9,
  adam_beta1: 0.9,
  adam_beta2: 0.999,
  lr_scheduler_type: 'linear',
  warmup_steps: 0,
  warmup_ratio: 0,
} as const;

const sections = Object.keys(videoActions.schema.shape);

/** A file is in the dialect when it names no task and has a key that is the dialect's alone. */
export function isFlatVideo(raw: Readonly<Record<string, unknown>>): boolean {
  return raw['task'] === undefined && OWN.some((key) => key in raw);
}

export interface VideoFlatSource extends TableSource {
  /** The run's name where the file gives none. */
  readonly stem: string;
  /** The folder that datasets' paths are built from (APP__DATA_DIR). */
  readonly dataDir: string;
}

/** Translates such a file to the canonical form; `raw` is changed. */
export function translateFlatVideo(raw: Record<string, unknown>, source: VideoFlatSource): Translation {
  return new Translator(raw, source).translate();
}

class Translator {
  readonly #problems: Problem[];
  readonly #names = new Map<string, string>();
  readonly #value: Record<string, unknown>;

  constructor(
    private readonly raw: Record<string, unknown>,
    private readonly source: VideoFlatSource,
  ) {
    const { value, problems } = takenApart(raw, keys, sections, source);
    this.#value = value;
    this.#problems = problems;
  }

  translate(): Translation {
    this.#put('task', videoActions.name);
    this.#put('data.dir', this.source.dataDir);
    for (const [name, key] of Object.entries(keys) as [VideoName, TableKey][]) {
      if (key.to !== null && key.joint !== true && name in this.raw) this.#put(key.to, this.raw[name], name);
    }
    if ('model_name_or_path' in this.raw) {
      this.#put('policy.model', namedModel(this.raw['model_name_or_path']), 'model_name_or_path');
    }
    this.#place();
    this.#put('algorithm.type', 'grpo');
    this.#put('algorithm.advantage.scale', 'none');
    this.#put('algorithm.kl_coeff', this.#given('grpo_beta'), 'grpo_beta');
    this.#put('rollout.temperature', this.#given('generation_temperature'), 'generation_temperature');
    this.#put('rollout.top_p', this.#given('generation_top_p'), 'generation_top_p');
    this.#put('optimizer.betas', [this.#given('adam_beta1'), this.#given('adam_beta2')], 'adam_beta1');
    this.#put('optimizer.schedule', this.#given('lr_scheduler_type'), 'lr_scheduler_type');
    this.#reward();
    this.#datasets();
    this.#batch();
    this.#warmUp();
    const ignored = (Object.keys(keys) as VideoName[]).filter((name) => keys[name].to === null && name in this.raw);
    const changed = this.source.changes.map(({ path }) => path);
    return {
      value: this.#value,
      problems: this.#problems,
      warnings: ignored.map((name) => `${name} has no meaning here, and is left out`),
      words: new FlatWords(this.#names, [], changed),
    };
  }

  #given(name: keyof typeof absent): unknown {
    return this.raw[name] ?? absent[name];
  }

  #put(path: string, content: unknown, name?: VideoName): void {
    if (name !== undefined) this.#names.set(path, name);
    if (!hasPath(this.#value, path)) setPath(this.#value, path, content);
  }

  #wrong(key: VideoName, found: unknown, allowed: string): void {
    this.#problems.push({ key, message: `found ${JSON.stringify(found)}; allowed: ${allowed}` });
  }

  /** A whole number of at least 1; null where it is none, which is told. */
  #whole(name: keyof typeof absent): number | null {
    const value = this.#given(name);
    if (typeof value === 'number' && Number.isInteger(value) && value >= 1) return value;
    this.#wrong(name, value, 'a whole number above 0');
    return null;
  }

  /** `output_dir` is the run's folder there; its last part names the run where nothing else does. */
  #place(): void {
    const { output_dir: folder, run_name: name } = this.raw;
    if (typeof folder === 'string') {
      this.#put('base_exp_dir', dirname(folder), 'output_dir');
      this.#put('run_name', name ?? basename(folder), name === undefined ? 'output_dir' : 'run_name');
    } else if (folder !== undefined) this.#wrong('output_dir', folder, 'the path of a folder');
    this.#put('run_name', name ?? this.source.stem, 'run_name');
  }

  /** The weights are made shares that add up to 1; what they add up to multiplies the advantages, which are not normalised. */
  #reward(): void {
    const [format, accuracy] = [this.#given('format_reward_weight'), this.#given('accuracy_reward_weight')];
    const alpha = this.#given('grpo_alpha');
    if (
      typeof format !== 'number' ||
      typeof accuracy !== 'number' ||
      format < 0 ||
      accuracy < 0 ||
      format + accuracy === 0
    ) {
      this.#wrong(
        'format_reward_weight',
        format,
        'two numbers of at least 0, with accuracy_reward_weight, one above 0',
      );
      return;
    }
    const sum = format + accuracy;
    const shares = { format_weight: format / sum, accuracy_weight: accuracy / sum };
    this.#put('reward.terms', [{ name: 'format_accuracy', weight: 1, ...shares }], 'format_reward_weight');
    const scale = typeof alpha === 'number' ? Number((alpha * sum).toPrecision(12)) : alpha;
    this.#put('algorithm.reward_scale', scale, 'grpo_alpha');
  }

  /** `a,b%50`: all of a, and half of b. */
  #datasets(): void {
    const { dataset_use: use, datasets: table = {} } = this.raw;
    this.#put('data.validation', []);
    if (use === undefined) return;
    if (typeof use !== 'string' || use.trim() === '' || !isObject(table)) {
      this.#wrong('dataset_use', use, 'names of datasets, with commas between them, such as assy07_grpo%50');
      return;
    }
    const sources = use.split(',').map((each) => {
      const [, name, percent] = /^\s*(.*?)(?:%(\d+))?\s*$/.exec(each) ?? [];
      const entry = table[name];
      const { annotation_path: path, data_path: media } = isObject(entry) ? entry : {};
      const coefficient = percent === undefined ? 1 : Math.min(1, Number(percent) / 100);
      const listed = typeof path === 'string' ? path : join(this.source.dataDir, `${name}.json`);
      return { path: listed, media: typeof media === 'string' && media !== '' ? media : null, coefficient };
    });
    this.#put('data.train', sources, 'dataset_use');
  }

  /** Prompts of one step become episodes of an iteration; epochs are counted in these. */
  #batch(): void {
    const perDevice = this.#whole('per_device_train_batch_size');
    const steps = this.#whole('gradient_accumulation_steps');
    const samples = this.#whole('grpo_sample_size');
    if (perDevice === null || steps === null || samples === null) return;
    const processes = isObject(this.#value['launch']) ? this.#value['launch']['processes'] : 1;
    const prompts = perDevice * steps * (typeof processes === 'number' ? processes : 1);
    this.#put('rollout.generations_per_sample', samples, 'grpo_sample_size');
    this.#put('rollout.episodes_per_iteration', prompts * samples, 'gradient_accumulation_steps');
    this.#put('optimizer.per_device_batch_size', perDevice * samples, 'per_device_train_batch_size');
    this.#iterations(prompts);
  }

  /** The steps where there are any, else the share of the run. */
  #warmUp(): void {
    const [steps, ratio] = [this.#given('warmup_steps'), this.#given('warmup_ratio')];
    const total = this.#value['num_iterations'];
    if (steps !== 0) this.#put('algorithm.warmup_steps', steps, 'warmup_steps');
    else if (typeof ratio !== 'number') this.#wrong('warmup_ratio', ratio, 'a number from 0 to 1');
    else if (typeof total === 'number') {
      this.#put('algorithm.warmup_steps', Math.ceil(ratio * total), 'warmup_ratio');
    }
  }

  #iterations(prompts: number): void {
    const { max_steps: most } = this.raw;
    if (typeof most === 'number' && most > 0) this.#put('num_iterations', most, 'max_steps');
    if (hasPath(this.#value, 'num_iterations')) return;
    const epochs = this.#given('num_train_epochs');
    if (typeof epochs !== 'number' || epochs <= 0) return this.#wrong('num_train_epochs', epochs, 'a number above 0');
    const { train } = (this.#value['data'] ?? {}) as { readonly train?: unknown };
    let samples = 0;
    for (const source of Array.isArray(train) ? train : []) {
      const { path, coefficient } = source as { readonly path: string; readonly coefficient?: number | null };
      const count = samplesIn(path);
      if (count === null) {
        const message = `cannot be counted in iterations: ${resolve(path)} is no list that can be read; correct dataset_use, or set num_iterations`;
        this.#problems.push({ key: 'num_train_epochs', message });
        return;
      }
      samples += Math.floor(count * (coefficient ?? 1));
    }
    if (samples > 0) this.#put('num_iterations', Math.ceil((epochs * samples) / prompts), 'num_train_epochs');
  }
}

/** Samples of a list (.json, .jsonl, or a folder with conversations.json); null where it cannot be read. */
function samplesIn(path: string): number | null {
  const folder = existsSync(path) && statSync(path).isDirectory();
  const file = folder ? join(path, 'conversations.json') : path;
  try {
    const text = readFileSync(file, 'utf8');
    if (file.endsWith('.jsonl')) return text.split('\n').filter((line) => line.trim() !== '').length;
    const list: unknown = JSON.parse(text);
    return Array.isArray(list) ? list.length : null;
  } catch {
    return null; // What is wrong with it is told where it is opened.
  }
}
