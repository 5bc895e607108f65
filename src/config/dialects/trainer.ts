/** What dialects share whose programs take the arguments of transformers' `Trainer`: its keys, and their meaning here. */
import { basename, dirname, resolve } from 'node:path';
import type { Problem } from '../../recipes/rules.js';
import { hasPath, setPath } from '../../schema/paths.js';
import { isObject } from '../../schema/walk.js';
import { namedModel, separateForms, type DialectSource, type TableKey, type Translation } from './dialect.js';
import { FlatWords } from './words.js';

type TrainerKeys = Readonly<Record<string, TableKey>>;

/** Keys of every such program. */
export const trainerKeys = {
  model_name_or_path: { to: 'policy.model', joint: true },
  output_dir: { to: 'base_exp_dir', joint: true },
  run_name: { to: 'run_name', joint: true },
  seed: { to: 'seed' },
  num_train_epochs: { to: 'num_iterations', joint: true, shared: true },
  max_steps: { to: 'num_iterations', joint: true, shared: true },
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
  save_steps: { to: 'checkpoint.save_every_n_iterations' },
  save_total_limit: { to: 'checkpoint.keep_last' },
  // Settings of the original trainer itself, or of how it is launched.
  bf16: { to: null },
  tf32: { to: null },
  deepspeed: { to: null },
  cache_dir: { to: null },
  dataloader_num_workers: { to: null },
  optim: { to: null },
  report_to: { to: null },
  logging_steps: { to: null },
  per_device_eval_batch_size: { to: null },
  eval_strategy: { to: null },
  evaluation_strategy: { to: null },
  save_strategy: { to: null },
} as const satisfies TrainerKeys;

/** `Trainer`'s defaults for missing keys. */
export const trainerAbsent = {
  num_train_epochs: 3,
  per_device_train_batch_size: 1,
  gradient_accumulation_steps: 1,
  adam_beta1: 0.9,
  adam_beta2: 0.999,
  lr_scheduler_type: 'linear',
  warmup_steps: 0,
  warmup_ratio: 0,
} as const;

/** A dialect: its keys including `trainerKeys`, its program's defaults, and the canonical sections that may appear beside them. */
export interface TrainerDialect {
  readonly keys: TrainerKeys;
  readonly absent: Readonly<Record<string, unknown>>;
  readonly task: string;
  readonly sections: readonly string[];
}

/** Translates a file; `Name` are the dialect's keys. */
export class TrainerTranslator<Name extends string> {
  readonly problems: Problem[];
  readonly value: Record<string, unknown>;
  readonly #names = new Map<string, string>();

  /** Applies plain copies and what all such programs have in common. */
  constructor(
    readonly raw: Record<string, unknown>,
    readonly source: DialectSource,
    private readonly dialect: TrainerDialect,
  ) {
    const { value, problems } = separateForms(raw, dialect.keys, dialect.sections, source);
    this.value = value;
    this.problems = problems;
    this.put('task', dialect.task);
    this.put('data.dir', source.dataDir);
    for (const [name, { to, joint }] of Object.entries(dialect.keys)) {
      if (to !== null && joint !== true && name in raw) this.put(to, raw[name], name as Name);
    }
    this.#place();
    this.put('algorithm.type', 'grpo');
    this.put('optimizer.betas', [this.given('adam_beta1'), this.given('adam_beta2')], 'adam_beta1');
    this.put('optimizer.schedule', this.given('lr_scheduler_type'), 'lr_scheduler_type');
  }

  /** The file's value, or the program's default. */
  given(name: Name | keyof typeof trainerAbsent): unknown {
    return this.raw[name] ?? this.dialect.absent[name];
  }

  /** Sets a value if there is none yet, and records the key that it came from. */
  put(path: string, content: unknown, name?: Name | keyof typeof trainerKeys): void {
    if (name !== undefined) this.#names.set(path, name);
    if (!hasPath(this.value, path)) setPath(this.value, path, content);
  }

  wrong(key: Name | keyof typeof trainerKeys, found: unknown, allowed: string): void {
    this.problems.push({ key, message: `found ${JSON.stringify(found)}; allowed: ${allowed}` });
  }

  /** A whole number of at least 1; null if it is not, which is reported. */
  whole(name: Name): number | null {
    const value = this.given(name);
    if (typeof value === 'number' && Number.isInteger(value) && value >= 1) return value;
    this.wrong(name, value, 'a whole number above 0');
    return null;
  }

  /** The model, if the file names one. */
  model(revision: unknown = null): void {
    const { model_name_or_path: named } = this.raw;
    if (named !== undefined) this.put('policy.model', namedModel(named, revision), 'model_name_or_path');
  }

  /** Number of processes that share a batch, as far as the file says. */
  get processes(): number {
    const processes = isObject(this.value['launch']) ? this.value['launch']['processes'] : 1;
    return typeof processes === 'number' ? processes : 1;
  }

  /** The number of steps if given, else the share of the run. */
  warmUp(): void {
    const [steps, ratio] = [this.given('warmup_steps'), this.given('warmup_ratio')];
    const total = this.value['num_iterations'];
    if (steps !== 0) this.put('algorithm.warmup_steps', steps, 'warmup_steps');
    else if (typeof ratio !== 'number') this.wrong('warmup_ratio', ratio, 'a number from 0 to 1');
    else if (typeof total === 'number') {
      this.put('algorithm.warmup_steps', Math.ceil(ratio * total), 'warmup_ratio');
    }
  }

  /**
   * The number of iterations: the steps, or else the epochs at this many prompts per iteration.
   * @param samplesIn number of samples in a list; null if they cannot be counted
   * @param listed the key that names the lists
   */
  iterations(prompts: number, samplesIn: (path: string) => number | null, listed: Name): void {
    const { max_steps: most } = this.raw;
    if (typeof most === 'number' && most > 0) this.put('num_iterations', most, 'max_steps');
    if (hasPath(this.value, 'num_iterations')) return;
    const epochs = this.given('num_train_epochs');
    if (typeof epochs !== 'number' || epochs <= 0) return this.wrong('num_train_epochs', epochs, 'a number above 0');
    const { train } = (this.value['data'] ?? {}) as { readonly train?: unknown };
    let samples = 0;
    for (const source of Array.isArray(train) ? train : []) {
      const { path, coefficient } = source as { readonly path: string; readonly coefficient?: number | null };
      const count = samplesIn(path);
      if (count === null) {
        const message = `cannot be counted in iterations: ${resolve(path)} is no list that can be read; correct ${listed}, or set num_iterations`;
        this.problems.push({ key: 'num_train_epochs', message });
        return;
      }
      samples += Math.floor(count * (coefficient ?? 1));
    }
    if (samples > 0) this.put('num_iterations', Math.ceil((epochs * samples) / prompts), 'num_train_epochs');
  }

  /** The translated file. */
  translation(warnings: readonly string[] = []): Translation {
    const { keys } = this.dialect;
    const ignored = Object.entries(keys).filter(
      ([name, { to, joint }]) => to === null && joint !== true && name in this.raw,
    );
    return {
      value: this.value,
      problems: this.problems,
      warnings: [...ignored.map(([name]) => `${name} has no meaning here, and is left out`), ...warnings],
      words: new FlatWords(this.#names, [], this.source.changes),
    };
  }

  /** `output_dir` is the run's folder in that program; its last part names the run if nothing else does. */
  #place(): void {
    const { output_dir: folder, run_name: name } = this.raw;
    if (typeof folder === 'string') {
      this.put('base_exp_dir', dirname(folder), 'output_dir');
      this.put('run_name', name ?? basename(folder), name === undefined ? 'output_dir' : 'run_name');
    } else if (folder !== undefined) this.wrong('output_dir', folder, 'the path of a folder');
    this.put('run_name', name ?? this.source.stem, 'run_name');
  }
}

/** Number of non-blank lines in a file of JSON lines. */
export function linesIn(text: string): number {
  return text.split('\n').filter((line) => line.trim() !== '').length;
}
