/**
 * The flat form of EARL's config files. Such a file loads unchanged, with the meaning that it has in EARL. keys.ts has its keys. Canonical keys in overlays,
 * in the axes of an experiment and in `--set` take precedence.
 */
import { existsSync } from 'node:fs';
import type { Problem } from '../schema/rules.js';
import { getPath, hasPath, setPath, isObject } from '../../core/schema/walk.js';
import { canonicalKeyOf, earlKeys, flatKeys, isFlatKey, SERVED_MEMORY, type FlatKey, type FlatName } from './keys.js';
import { nearest } from '../../core/nearest.js';
import { flatRecipe, rewardForms } from '../recipes.js';
import { applyChanges, type Change } from '../sets.js';

/** Settings that EARL fixes in its code. */
const implied: Readonly<Record<string, unknown>> = {
  'algorithm.type': 'grpo',
  'optimizer.gradient_checkpointing': true,
  'environment.model': { hub: 'BAAI/Emu3-VisionTokenizer' },
  'reward.timeout_s': 1000,
  'reward.max_reply_tokens.viescore': 1400,
  'reward.max_reply_tokens.ground_score': 1300,
};

const sections = (): string[] => Object.keys(flatRecipe().schema.shape);

/** The context of a translation. */
export interface FlatSource {
  /** The file's name without its extension: the default of run_name. */
  readonly stem: string;
  /** The folder that datasets' paths are built from (APP__DATA_DIR). */
  readonly dataDir: string;
  /** Whether overlays were merged over the file. Only then may a value be given in both forms. */
  readonly overlaid: boolean;
  /** Changes in either form, applied last. */
  readonly changes: readonly Change[];
}

/** A file translated to the canonical form. */
export interface Translation {
  readonly value: Record<string, unknown>;
  readonly problems: readonly Problem[];
  readonly warnings: readonly string[];
  /** Rewords problems with the file's own keys. */
  readonly words: FlatWords;
}

/** Translates a flat file, which is modified. Keeps canonical keys in it. */
export function translateFlat(raw: Record<string, unknown>, source: FlatSource): Translation {
  return new Translator(raw, source).translate();
}

class Translator {
  readonly #problems: Problem[] = [];
  readonly #warnings: string[] = [];
  /** Flat keys by the canonical paths that take their values from them. */
  readonly #names = new Map<string, string>();
  /** Canonical paths that stay empty, which has been reported. */
  readonly #missing: string[] = [];
  readonly #value: Record<string, unknown>;
  readonly #canonicalChanges: readonly Change[];

  constructor(
    private readonly raw: Record<string, unknown>,
    private readonly source: FlatSource,
  ) {
    const isOwn = ({ path }: Change): boolean => isFlatKey(path.split('.')[0]);
    this.#canonicalChanges = source.changes.filter((change) => !isOwn(change));
    if (!source.overlaid) this.#refuseBothForms();
    this.#applyOwnChanges(source.changes.filter(isOwn));
    const canonical = Object.entries(raw).filter(([key]) => !isFlatKey(key) && sections().includes(key));
    this.#value = structuredClone(Object.fromEntries(canonical));
  }

  translate(): Translation {
    this.#findUnknown();
    this.#findMissing();
    for (const key of flatKeys) {
      const entry: FlatKey = earlKeys[key];
      if ('to' in entry) this.#put(entry.to, key, this.#earl(key));
    }
    this.#sources('data.train', 'train_paths_file', 'coefficients');
    this.#sources('data.validation', 'val_paths_file', 'val_coefficients');
    this.#models();
    this.#trainTokens();
    this.#reward();
    this.#checkpoints();
    this.#hub();
    const { run_name: name, assistant_prefill: prefill } = this.#all('run_name', 'assistant_prefill');
    this.#put('run_name', 'run_name', isNone(name) ? this.source.stem : name);
    this.#put('policy.assistant_prefill', 'assistant_prefill', prefill === null ? '' : prefill);
    for (const [path, content] of Object.entries({ task: flatRecipe().name, ...implied })) {
      this.#put(path, null, structuredClone(content));
    }
    this.#problems.push(...applyChanges(this.#value, this.#canonicalChanges));
    this.#dataDir();
    this.#servedMemory();
    this.#warnOfIgnored();
    return {
      value: this.#value,
      problems: this.#problems,
      warnings: this.#warnings,
      words: new FlatWords(this.#names, this.#missing, this.#canonicalChanges),
    };
  }

  /** The value that EARL uses for a key: the file's, or EARL's default. Undefined if there is none. */
  #earl(key: FlatName): unknown {
    const entry: FlatKey = earlKeys[key];
    return key in this.raw ? this.raw[key] : structuredClone(entry.absent);
  }

  #all<Name extends FlatName>(...keys: readonly Name[]): Record<Name, unknown> {
    return Object.fromEntries(keys.map((key) => [key, this.#earl(key)])) as Record<Name, unknown>;
  }

  /** Sets a value unless a canonical key gives it or it is undefined. Returns whether it was set. */
  #put(path: string, key: string | null, content: unknown): boolean {
    if (content === undefined || hasPath(this.#value, path)) return false;
    if (setPath(this.#value, path, content) !== null) return false;
    if (key !== null) this.#names.set(path, key);
    return true;
  }

  /** The value of a canonical key from an overlay or `--set`. Undefined if neither sets it. */
  #given(path: string): unknown {
    const change = this.#canonicalChanges.findLast((other) => other.path === path);
    return change === undefined ? getPath(this.#value, path) : change.value;
  }

  #problem(key: FlatName, found: unknown, allowed: string): void {
    this.#problems.push({ key, message: `found ${JSON.stringify(found)}; allowed: ${allowed}` });
  }

  #refuseBothForms(): void {
    for (const key of flatKeys) {
      const path = canonicalKeyOf(key);
      if (path === null || path === key || !(key in this.raw) || !hasPath(this.raw, path)) continue;
      this.#problems.push({ key, message: `also given as ${path}; keep one of the two` });
    }
  }

  /** Changes to flat keys apply after the overlays and replace their values. */
  #applyOwnChanges(changes: readonly Change[]): void {
    for (const { path } of changes) {
      const canonical = canonicalKeyOf(path.split('.')[0]);
      if (canonical === null || canonical === path) continue;
      const rival = this.#canonicalChanges.find((other) => isWithin(other.path, canonical));
      if (rival !== undefined) {
        this.#problems.push({ key: path, message: `also set as ${rival.path}; keep one of the two` });
      }
      if (hasPath(this.raw, canonical)) setPath(this.raw, canonical, undefined);
    }
    this.#problems.push(...applyChanges(this.raw, changes));
  }

  #findUnknown(): void {
    const known = [...new Set([...flatKeys, ...sections()])];
    for (const key of Object.keys(this.raw)) {
      if (known.includes(key)) continue;
      const close = nearest(key, known);
      const hint = close === null ? `allowed: ${known.sort().join(', ')}` : `did you mean ${close}?`;
      this.#problems.push({ key, message: `unknown key; ${hint}` });
    }
  }

  #findMissing(): void {
    for (const key of flatKeys) {
      const entry: FlatKey = earlKeys[key];
      const path = canonicalKeyOf(key);
      if (path === null || 'absent' in entry || key in this.raw || hasPath(this.#value, path)) continue;
      if (this.#canonicalChanges.some((change) => isWithin(change.path, path) || isWithin(path, change.path))) continue;
      this.#missing.push(path);
      const instead = path === key ? '' : `, or ${path}`;
      this.#problems.push({ key, message: `missing, and EARL has no default for it; set it${instead}` });
    }
  }

  /** EARL has two lists, paths and coefficients. The canonical form has one list of pairs. */
  #sources(to: string, pathsKey: FlatName, coefficientsKey: FlatName): void {
    const paths = this.#earl(pathsKey);
    const coefficients = this.#earl(coefficientsKey) ?? [];
    if (paths === undefined || hasPath(this.#value, to)) return;
    if (!Array.isArray(paths) || !Array.isArray(coefficients)) {
      const [key, found] = Array.isArray(paths) ? [coefficientsKey, coefficients] : [pathsKey, paths];
      this.#problem(key, found, 'a list');
      this.#missing.push(to);
      return;
    }
    if (coefficients.length !== 0 && coefficients.length !== paths.length) {
      this.#problems.push({
        key: coefficientsKey,
        message: `found ${coefficients.length} for ${paths.length} in ${pathsKey}; allowed: one for each, or none (each is then upsampled to the largest)`,
      });
    }
    // In a list with numbers, EARL reads null as 1.
    const besideNumbers = coefficients.some((coefficient) => coefficient !== null) ? 1 : null;
    const pairs = paths.map((path: unknown, index) => ({
      path,
      coefficient: (coefficients[index] as unknown) ?? besideNumbers,
    }));
    if (!this.#put(to, pathsKey, pairs)) return;
    for (const index of pairs.keys()) {
      this.#names.set(`${to}.${index}.path`, `${pathsKey}.${index}`);
      this.#names.set(`${to}.${index}.coefficient`, `${coefficientsKey}.${index}`);
    }
  }

  #models(): void {
    const { model_path, model_revision, tokenizer_path } = this.#all('model_path', 'model_revision', 'tokenizer_path');
    if (this.#put('policy.model', 'model_path', namedModel(model_path, model_revision))) {
      this.#names.set('policy.model.revision', 'model_revision');
    }
    this.#put('policy.tokenizer', 'tokenizer_path', namedModel(tokenizer_path, null));
  }

  /** Only these tokens train in the first `steps` iterations of each cycle, at most in the whole cycle. */
  #trainTokens(): void {
    const on = { text: this.#flag('train_text_tokens_only'), vision: this.#flag('train_vision_tokens_only') };
    if (on.text && on.vision) {
      this.#problem(
        'train_vision_tokens_only',
        true,
        'false beside train_text_tokens_only: true, which leaves no token',
      );
    }
    for (const tokens of ['text', 'vision'] as const) {
      if (!on[tokens]) continue;
      const [stepsKey, cycleKey] = [`${tokens}_only_steps`, `${tokens}_only_cycle_steps`] as const;
      const [steps, cycle] = [this.#earl(stepsKey), this.#earl(cycleKey)];
      const within = typeof steps === 'number' && typeof cycle === 'number' ? Math.min(steps, cycle) : steps;
      const to = 'algorithm.train_tokens';
      if (!this.#put(to, `train_${tokens}_tokens_only`, { tokens, cycle_steps: cycle, steps: within })) return;
      this.#names.set(`${to}.steps`, stepsKey).set(`${to}.cycle_steps`, cycleKey);
    }
  }

  /** The flags must cover the final reward. Further scores are recorded. */
  #reward(): void {
    this.#put('reward.endpoint', 'reward_function_api_base', apiBase(this.#earl('reward_function_api_base')));
    const computed = scores.filter((score) => this.#flag(flags[score]));
    const [givenMode, givenTerms] = [this.#given('reward.mode'), this.#given('reward.terms')];
    const isGiven = givenMode !== undefined || (Array.isArray(givenTerms) && givenTerms.length > 0);
    const mode = rewardForms().canonicalMode(isGiven ? givenMode : this.#earl('reward_final_reward'));
    if (!isGiven) {
      this.#put('reward.mode', 'reward_final_reward', mode);
      for (const score of scoresOf[String(mode)] ?? []) {
        if (this.#earl(flags[score]) !== false) continue;
        this.#problem(flags[score], false, `true, because reward_final_reward '${String(mode)}' needs it`);
      }
    }
    const covered: readonly Score[] = recordedBy[String(mode)] ?? [];
    const besides = computed.filter((score) => !covered.includes(score));
    const key = besides.length === 1 ? flags[besides[0]] : null;
    if (besides.length > 0) this.#put('reward.also_compute', key, besides);
  }

  /** In EARL, null means never to save, and to keep everything that is saved. */
  #checkpoints(): void {
    const [saveKey, keepKey] = ['save_checkpoints_every_n_iterations', 'keep_checkpoints_every_n_iterations'] as const;
    const [save, keep] = [this.#earl(saveKey), this.#earl(keepKey)];
    const [to, keepTo] = ['checkpoint.save_every_n_iterations', 'checkpoint.keep_every_n_iterations'] as const;
    if (save === null && !hasPath(this.#value, to)) {
      this.#warnings.push(`${saveKey} is null, which saves nothing in EARL; here the end of the run is saved`);
      this.#put(to, saveKey, getPath(this.#value, 'num_iterations'));
      this.#put(keepTo, keepKey, null);
      return;
    }
    this.#put(to, saveKey, save);
    this.#put(keepTo, keepKey, keep ?? getPath(this.#value, to));
  }

  /** EARL only publishes if both the interval and the destination are set. */
  #hub(): void {
    const { push_to_hub_every_n_iterations: every, push_to_hub_repo_id: repository } = this.#all(
      'push_to_hub_every_n_iterations',
      'push_to_hub_repo_id',
    );
    const to = 'track.push_to_hub';
    const given = getPath(this.#value, to);
    if (given === null || (given === undefined && (every === null || repository === null))) return;
    this.#put(`${to}.every_n_iterations`, 'push_to_hub_every_n_iterations', every);
    this.#put(`${to}.repo_id`, 'push_to_hub_repo_id', repository);
  }

  /** Paths in flat files are complete. Hashes leave out the data folder, APP__DATA_DIR. */
  #dataDir(): void {
    if (!this.#names.has('data.train.0.path') && !this.#names.has('data.validation.0.path')) return;
    const given = getPath(this.#value, 'data.dir');
    if (given !== undefined && given !== this.source.dataDir) {
      this.#warnings.push(
        'data.dir has no effect, because the paths in train_paths_file and val_paths_file are complete',
      );
    }
    setPath(this.#value, 'data.dir', this.source.dataDir);
  }

  /** EARL always samples with vLLM. Here a run only does if it starts one. */
  #servedMemory(): void {
    const content = this.#earl('vllm_gpu_memory_utilization');
    if (content !== null && this.#isServed()) this.#put(SERVED_MEMORY, 'vllm_gpu_memory_utilization', content);
  }

  #isServed(): boolean {
    return isObject(getPath(this.#value, 'rollout.engine.serve'));
  }

  #warnOfIgnored(): void {
    const found = flatKeys.flatMap((key) => {
      const entry: FlatKey = earlKeys[key];
      return 'ignored' in entry && this.#earl(key) !== null ? [`${key} (${entry.ignored})`] : [];
    });
    if (this.#earl('vllm_gpu_memory_utilization') !== null && !this.#isServed()) {
      found.push(
        "vllm_gpu_memory_utilization (no vLLM is started with this run; rollout.engine: {type: 'vllm', serve: {}} starts one)",
      );
    }
    if (found.length > 0) this.#warnings.push(`ignored, because they have no effect here: ${found.join('; ')}`);
  }

  #flag(key: FlatName): boolean {
    const value = this.#earl(key);
    if (typeof value !== 'boolean') this.#problem(key, value, 'true or false');
    return value === true;
  }
}

type Score = 'viescore' | 'ground_score';
const scores = ['viescore', 'ground_score'] as const;
const flags = { viescore: 'reward_compute_viescore', ground_score: 'reward_compute_ground_score' } as const;

/** The scores in each of EARL's final rewards. Their flags must be set. */
const scoresOf: Readonly<Record<string, readonly Score[]>> = {
  viescore: ['viescore'],
  ground_score: ['ground_score'],
  'sqrt(viescore_pqxground_score)': ['viescore', 'ground_score'],
};

/** The scores that are fully recorded with a final reward. The third one does not need semantic consistency. */
const recordedBy: Readonly<Record<string, readonly Score[]>> = {
  ...scoresOf,
  'sqrt(viescore_pqxground_score)': ['ground_score'],
};

function isNone(value: unknown): boolean {
  return value === null || (typeof value === 'string' && value.toLowerCase() === 'none');
}

/** A URL stays unchanged. Anything that exists or looks like a path is a file with the judge's host name. */
function apiBase(value: unknown): unknown {
  if (isNone(value)) return '';
  if (typeof value !== 'string' || /^https?:\/\//.test(value)) return value;
  return /^\.{0,2}\//.test(value) || existsSync(value) ? { node_file: value, port: 4877 } : value;
}

/** A model in EARL's notation: `owner/name` is on the Hub unless such a folder exists. */
function namedModel(value: unknown, revision: unknown): unknown {
  if (typeof value !== 'string') return value;
  const isHub = /^[\w.-]+\/[\w.-]+$/.test(value) && !value.startsWith('.') && !existsSync(value);
  if (!isHub) return value;
  return revision === null ? { hub: value } : { hub: value, revision };
}

/** Maps canonical keys back to flat keys. */
export class FlatWords {
  constructor(
    private readonly names: ReadonlyMap<string, string>,
    /** Canonical paths that stay empty, which has been reported. */
    private readonly missing: readonly string[],
    /** Changes from `--set`. Values that they set at canonical paths keep the names of these paths. */
    private readonly changes: readonly Change[],
  ) {}

  /** Reworded problems, without those that only repeat that a key is missing. */
  problems(found: readonly Problem[]): Problem[] {
    return found
      .filter(
        ({ key, message }) => !(message.startsWith('missing') && this.missing.some((path) => isWithin(path, key))),
      )
      .map(({ key, message }) => ({ key: this.key(key), message: this.text(message) }));
  }

  /** Rewords a sentence that names canonical keys. */
  text(sentence: string): string {
    return sentence.replace(/(?<![\w.])\w+(?:\.\w+)+/g, (path) => this.names.get(path) ?? path);
  }

  /** The flat key that gave the value at a canonical path, or else the path itself. */
  key(path: string): string {
    if (this.changes.some((change) => isWithin(path, change.path))) return path;
    const parts = path.split('.');
    const upTo = parts.map((_, depth) => parts.slice(0, parts.length - depth).join('.'));
    const known = upTo.find((above) => this.names.has(above));
    return known === undefined ? path : (this.names.get(known) ?? path);
  }
}

/** Whether a dotted path equals another one or is inside it. */
export function isWithin(path: string, outer: string): boolean {
  return path === outer || path.startsWith(`${outer}.`);
}
