/**
 * The flat dialect of prompt enhancement: the parameters of a program that wraps a language model which rewrites prompts. Canonical keys stand
 * beside them, in the file, in overlays and in `--set`, and win: the image model (environment) and whatever else is not said there.
 */
import { existsSync } from 'node:fs';
import { promptEnhance } from '../recipes/prompt_enhance/settings.js';
import type { Problem } from '../recipes/rules.js';
import { nearest } from '../core/nearest.js';
import { hasPath, setPath } from '../schema/paths.js';
import type { Translation } from './flat.js';
import { canonicalKeyOf, isFlatKey } from './flat_keys.js';
import { FlatWords } from './flat_words.js';
import { applyChanges, type Change } from './sets.js';

/** Where a key's value goes. */
const keys = {
  model_name: 'policy.model',
  device: 'policy.engine.provider',
  max_new_tokens: 'rollout.max_response_tokens',
  temperature: 'rollout.temperature',
} as const;
type EnhanceName = keyof typeof keys;

/** Those that no other dialect has. */
const OWN: readonly EnhanceName[] = ['model_name', 'max_new_tokens'];
const sections = Object.keys(promptEnhance.schema.shape);
const isOwnKey = (key: string): key is EnhanceName => Object.hasOwn(keys, key);

/** What computes, by what the program calls it. */
const PROVIDERS: ReadonlyMap<unknown, string> = new Map([
  ['auto', 'auto'],
  ['cuda', 'cuda'],
  ['mps', 'webgpu'],
  ['cpu', 'cpu'],
]);

/** The model where the file names none, the reward that the program has in its code, and what it logs besides. */
const MODEL = 'Qwen/Qwen2-VL-7B-Instruct';
const REWARD = [{ name: 'clip', weight: 1, model: { hub: 'openai/clip-vit-base-patch32' } }];
const RECORDED = ['prompt_quality'];

/** A file is in the dialect when it names no task and has a key that is the dialect's alone, and none that is EARL's. */
export function isFlatEnhance(raw: Readonly<Record<string, unknown>>): boolean {
  const isEarls = (key: string): boolean => isFlatKey(key) && !isOwnKey(key) && canonicalKeyOf(key) !== key;
  return raw['task'] === undefined && OWN.some((key) => key in raw) && !Object.keys(raw).some(isEarls);
}

export interface EnhanceSource {
  readonly runName: string;
  readonly dataDir: string;
  /** Whether anything was merged over the file. */
  readonly overlaid: boolean;
  readonly changes: readonly Change[];
}

/** Translates such a file to the canonical form; `raw` is changed. */
export function translateFlatEnhance(raw: Record<string, unknown>, source: EnhanceSource): Translation {
  const isOwn = ({ path }: Change): boolean => isOwnKey(path.split('.')[0]);
  const problems: Problem[] = [...(source.overlaid ? [] : bothForms(raw))];
  problems.push(...applyChanges(raw, source.changes.filter(isOwn)), ...unknown(raw));
  const value = structuredClone(
    Object.fromEntries(Object.entries(raw).filter(([key]) => !isOwnKey(key) && sections.includes(key))),
  );
  problems.push(
    ...applyChanges(
      value,
      source.changes.filter((change) => !isOwn(change)),
    ),
  );
  const names = new Map<string, string>();
  const warnings: string[] = [];
  const put = (path: string, content: unknown, name?: EnhanceName): void => {
    if (name !== undefined) names.set(path, name);
    if (!hasPath(value, path)) setPath(value, path, content);
  };
  put('task', promptEnhance.name);
  put('run_name', source.runName);
  put('data.dir', source.dataDir);
  put('algorithm.type', 'grpo');
  put('policy.model', referenceOf(raw['model_name'] ?? MODEL), 'model_name');
  const { device = 'auto' } = raw;
  const provider = PROVIDERS.get(device);
  if (provider === undefined) {
    const allowed = [...PROVIDERS.keys()].join(', ');
    problems.push({ key: 'device', message: `found ${JSON.stringify(device)}; allowed: ${allowed}` });
  } else {
    put(keys.device, provider, 'device');
    if (device === 'mps') warnings.push("device 'mps' means WebGPU here (policy.engine.provider: 'webgpu')");
  }
  for (const name of ['max_new_tokens', 'temperature'] as const) if (name in raw) put(keys[name], raw[name], name);
  if (!hasPath(value, 'reward.terms') && !hasPath(value, 'reward.mode')) put('reward.terms', REWARD);
  put('reward.also_compute', RECORDED);
  return {
    value,
    problems,
    warnings,
    words: new FlatWords(
      names,
      [],
      source.changes.map(({ path }) => path),
    ),
  };
}

/** A name of the Hub, where no folder has it. */
function referenceOf(name: unknown): unknown {
  return typeof name === 'string' && /^[\w.-]+\/[\w.-]+$/.test(name) && !existsSync(name) ? { hub: name } : name;
}

function bothForms(raw: Readonly<Record<string, unknown>>): Problem[] {
  return Object.entries(keys).flatMap(([key, to]) =>
    key in raw && hasPath(raw, to) ? [{ key, message: `also given as ${to}; keep one of the two` }] : [],
  );
}

function unknown(raw: Readonly<Record<string, unknown>>): Problem[] {
  const known = [...Object.keys(keys), ...sections];
  return Object.keys(raw).flatMap((key) => {
    if (known.includes(key)) return [];
    const close = nearest(key, known);
    const hint = close === null ? `allowed: ${known.sort().join(', ')}` : `did you mean ${close}?`;
    return [{ key, message: `unknown key; ${hint}` }];
  });
}
