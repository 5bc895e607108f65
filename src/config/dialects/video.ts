/**
 * The flat dialect of GRPO on videos: the arguments of Qwen2.5-VL's fine-tuning, extended for GRPO
 * (https://github.com/ChristianLin0420/Qwen2.5-VL-Video). Canonical keys may stand beside the flat ones, in the file, in overlays and in
 * `--set`. Named datasets (`dataset_use`) are looked up in the file's own table `datasets`, {name: {annotation_path, data_path}}; one that is not
 * there is `<data.dir>/<name>.json`.
 */
import { existsSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { videoActions } from '../../recipes/video_actions/settings.js';
import { isObject } from '../../schema/walk.js';
import { type Dialect, type DialectSource, type TableKey, type Translation } from './dialect.js';
import { linesIn, trainerAbsent, trainerKeys, TrainerTranslator } from './trainer.js';

const keys = {
  ...trainerKeys,
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
  per_device_train_batch_size: { to: 'optimizer.per_device_batch_size', joint: true, shared: true },
  grpo_alpha: { to: 'algorithm.reward_scale', joint: true },
  grpo_beta: { to: 'algorithm.kl_coeff', joint: true },
  grpo_sample_size: { to: 'rollout.generations_per_sample', joint: true },
  format_reward_weight: { to: 'reward.terms', joint: true },
  accuracy_reward_weight: { to: 'reward.terms', joint: true },
  generation_max_length: { to: 'rollout.max_response_tokens' },
  generation_temperature: { to: 'rollout.temperature', joint: true },
  generation_top_p: { to: 'rollout.top_p', joint: true },
  // Settings of the original trainer itself, or of how it is launched.
  data_flatten: { to: null },
  data_packing: { to: null },
  grpo_logging_steps: { to: null },
  mm_projector_lr: { to: null },
  vision_tower_lr: { to: null },
} as const satisfies Readonly<Record<string, TableKey>>;
type VideoName = keyof typeof keys;

/** Keys that only this dialect has. */
const OWN: readonly string[] = [
  'dataset_use',
  'format_reward_weight',
  'accuracy_reward_weight',
  'grpo_alpha',
  'grpo_beta',
  'grpo_sample_size',
];

/** The program's defaults for missing keys; for learning rates the documented ones. */
const absent = {
  ...trainerAbsent,
  learning_rate: 2e-5,
  grpo_alpha: 0.5,
  grpo_beta: 0.1,
  grpo_sample_size: 4,
  format_reward_weight: 0.3,
  accuracy_reward_weight: 0.7,
  generation_max_length: 512,
  generation_temperature: 0.7,
  generation_top_p: 0.9,
} as const;

const sections = Object.keys(videoActions.schema.shape);

/** A file is in this dialect if it names no task and has a key that only this dialect has. */
function recognises(raw: Readonly<Record<string, unknown>>): boolean {
  return raw['task'] === undefined && OWN.some((key) => key in raw);
}

/** Translates such a file to the canonical form; `raw` is changed. */
function translate(raw: Record<string, unknown>, source: DialectSource): Translation {
  const file: File = new TrainerTranslator(raw, source, { keys, absent, task: videoActions.name, sections });
  file.model();
  file.put('algorithm.advantage.scale', 'none');
  file.put('algorithm.kl_coeff', file.given('grpo_beta'), 'grpo_beta');
  file.put('optimizer.learning_rate', absent.learning_rate);
  file.put('rollout.max_response_tokens', absent.generation_max_length);
  file.put('rollout.temperature', file.given('generation_temperature'), 'generation_temperature');
  file.put('rollout.top_p', file.given('generation_top_p'), 'generation_top_p');
  reward(file);
  datasets(file);
  batch(file);
  file.warmUp();
  return file.translation();
}

type File = TrainerTranslator<VideoName>;

/** The weights become shares that add up to 1; their sum multiplies the advantages, which are not normalised. */
function reward(file: File): void {
  const [format, accuracy] = [file.given('format_reward_weight'), file.given('accuracy_reward_weight')];
  const alpha = file.given('grpo_alpha');
  const isWeight = (value: unknown): value is number => typeof value === 'number' && value >= 0;
  if (!isWeight(format) || !isWeight(accuracy) || format + accuracy === 0) {
    const [key, found] = isWeight(format)
      ? (['accuracy_reward_weight', accuracy] as const)
      : (['format_reward_weight', format] as const);
    file.wrong(key, found, 'a number of at least 0, and one of the two weights above it');
    return;
  }
  const sum = format + accuracy;
  const shares = { format_weight: format / sum, accuracy_weight: accuracy / sum };
  file.put('reward.terms', [{ name: 'format_accuracy', weight: 1, ...shares }], 'format_reward_weight');
  const scale = typeof alpha === 'number' ? Number((alpha * sum).toPrecision(12)) : alpha;
  file.put('algorithm.reward_scale', scale, 'grpo_alpha');
}

/** `a,b%50`: all of a, and half of b. */
function datasets(file: File): void {
  const { dataset_use: use, datasets: table = {} } = file.raw;
  file.put('data.validation', []);
  if (use === undefined) return;
  if (typeof use !== 'string' || use.trim() === '' || !isObject(table)) {
    file.wrong('dataset_use', use, 'names of datasets, with commas between them, such as assy07_grpo%50');
    return;
  }
  const sources = use.split(',').map((each) => {
    const [, name, percent] = /^\s*(.*?)(?:%(\d+))?\s*$/.exec(each) ?? [];
    const entry = table[name];
    const { annotation_path: path, data_path: media } = isObject(entry) ? entry : {};
    const coefficient = percent === undefined ? 1 : Math.min(1, Number(percent) / 100);
    const listed = typeof path === 'string' ? path : join(file.source.dataDir, `${name}.json`);
    return { path: listed, media: typeof media === 'string' && media !== '' ? media : null, coefficient };
  });
  file.put('data.train', sources, 'dataset_use');
}

/** The prompts of one step become episodes of an iteration, in which epochs are counted. */
function batch(file: File): void {
  const perDevice = file.whole('per_device_train_batch_size');
  const steps = file.whole('gradient_accumulation_steps');
  const samples = file.whole('grpo_sample_size');
  if (perDevice === null || steps === null || samples === null) return;
  const prompts = perDevice * steps * file.processes;
  file.put('rollout.generations_per_sample', samples, 'grpo_sample_size');
  file.put('rollout.episodes_per_iteration', prompts * samples, 'gradient_accumulation_steps');
  file.put('optimizer.per_device_batch_size', perDevice * samples, 'per_device_train_batch_size');
  file.iterations(prompts, samplesIn, 'dataset_use');
}

/** Number of samples in a list (.json, .jsonl, or a folder with conversations.json); null if it cannot be read. */
function samplesIn(path: string): number | null {
  const folder = existsSync(path) && statSync(path).isDirectory();
  const file = folder ? join(path, 'conversations.json') : path;
  try {
    const text = readFileSync(file, 'utf8');
    if (file.endsWith('.jsonl')) return linesIn(text);
    const list: unknown = JSON.parse(text);
    return Array.isArray(list) ? list.length : null;
  } catch {
    return null; // Problems are reported when it is opened.
  }
}

export const video: Dialect = { recognises, translate };
