/**
 * The flat dialect of prompt enhancement: the parameters of a program around a language model that rewrites prompts. Canonical keys in the file, in
 * overlays and in `--set` take precedence, and give the image model (environment) and whatever else the dialect lacks.
 */
import { promptEnhance } from '../../recipes/prompt_enhance/settings.js';
import { hasPath, setPath } from '../../schema/paths.js';
import { canonicalKeyOf, isFlatKey } from './earl_keys.js';
import {
  namedModel,
  separateForms,
  type Dialect,
  type DialectSource,
  type TableKey,
  type Translation,
} from './dialect.js';
import { FlatWords } from './words.js';

const keys = {
  model_name: { to: 'policy.model', joint: true },
  device: { to: 'policy.engine.provider', joint: true },
  max_new_tokens: { to: 'rollout.max_response_tokens' },
  temperature: { to: 'rollout.temperature' },
} as const satisfies Readonly<Record<string, TableKey>>;
type EnhanceName = keyof typeof keys;

/** Keys that only this dialect has. */
const OWN: readonly EnhanceName[] = ['model_name', 'max_new_tokens'];
const sections = Object.keys(promptEnhance.schema.shape);
const isOwnKey = (key: string): key is EnhanceName => Object.hasOwn(keys, key);

/** Execution providers by the program's names for them. */
const PROVIDERS: ReadonlyMap<unknown, string> = new Map([
  ['auto', 'auto'],
  ['cuda', 'cuda'],
  ['mps', 'webgpu'],
  ['cpu', 'cpu'],
]);

/** Constants in the program's code: the default model, the reward, and what it logs besides. */
const MODEL = 'Qwen/Qwen2-VL-7B-Instruct';
const REWARD = [{ name: 'clip', weight: 1, model: { hub: 'openai/clip-vit-base-patch32' } }];
const RECORDED = ['prompt_quality'];

/** A file is in this dialect if it names no task, has a key that only this dialect has, and none of EARL's. */
function recognises(raw: Readonly<Record<string, unknown>>): boolean {
  const isEarls = (key: string): boolean => isFlatKey(key) && !isOwnKey(key) && canonicalKeyOf(key) !== key;
  return raw['task'] === undefined && OWN.some((key) => key in raw) && !Object.keys(raw).some(isEarls);
}

/** Translates such a file to the canonical form; `raw` is changed. */
function translate(raw: Record<string, unknown>, source: DialectSource): Translation {
  const { value, problems } = separateForms(raw, keys, sections, source);
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
  put('policy.model', namedModel(raw['model_name'] ?? MODEL), 'model_name');
  const { device = 'auto' } = raw;
  const provider = PROVIDERS.get(device);
  if (provider === undefined) {
    const allowed = [...PROVIDERS.keys()].join(', ');
    problems.push({ key: 'device', message: `found ${JSON.stringify(device)}; allowed: ${allowed}` });
  } else {
    put(keys.device.to, provider, 'device');
    if (device === 'mps') warnings.push("device 'mps' means WebGPU here (policy.engine.provider: 'webgpu')");
  }
  for (const name of ['max_new_tokens', 'temperature'] as const) if (name in raw) put(keys[name].to, raw[name], name);
  if (!hasPath(value, 'reward.terms') && !hasPath(value, 'reward.mode')) put('reward.terms', REWARD);
  put('reward.also_compute', RECORDED);
  return {
    value,
    problems,
    warnings,
    words: new FlatWords(names, [], source.changes),
  };
}

export const enhance: Dialect = { recognises, translate };
