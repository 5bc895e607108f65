/** Adapters in PEFT's files, as the stand-in of vLLM reads them. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { readSafetensors, type FloatTensor } from '../../../../src/core/safetensors.js';
import type { StubParameters } from './stub_model.js';

/** Why an adapter is refused; null where it is taken. Layers that see have none in vLLM. */
export function wrongWith(folder: string, base: StubParameters, maxLoraRank: number): string | null {
  const config = readConfig(folder);
  if (config.peft_type !== 'LORA') return 'PEFT type is not LORA';
  if (config.r > maxLoraRank) return `LoRA rank ${config.r} is greater than max_lora_rank ${maxLoraRank}.`;
  if (config.bias !== 'none' || config.modules_to_save !== null) return 'bias or modules_to_save are not supported';
  if (!Array.isArray(config.target_modules)) return 'target_modules is no list';
  for (const [name, { shape }] of tensorsOf(folder)) {
    const found = /^base_model\.model\.(.+)\.lora_([AB])\.weight$/.exec(name);
    const adapted = found === null ? undefined : base.get(`${found[1]}.weight`);
    if (found === null || adapted === undefined || found[1].startsWith('visual.')) {
      return `${name} is unsupported LoRA weight`;
    }
    const last = found[1].split('.').at(-1) as string;
    if (!config.target_modules.includes(last)) return `${name} is not among the target modules`;
    const wanted = found[2] === 'A' ? [config.r, adapted.shape[1]] : [adapted.shape[0], config.r];
    if (shape.join() !== wanted.join()) return `${name} has shape ${shape.join()}`;
  }
  return null;
}

/** The weights with an adapter in them. */
export function adaptedWeights(folder: string, base: StubParameters): StubParameters {
  const { r, lora_alpha: alpha, use_rslora: rslora } = readConfig(folder);
  const scale = alpha / (rslora ? Math.sqrt(r) : r);
  const found = tensorsOf(folder);
  const weights = new Map(base);
  for (const [name, b] of found) {
    if (!name.endsWith('.lora_B.weight')) continue;
    const a = found.get(name.replace('lora_B', 'lora_A')) as FloatTensor;
    const module = `${name.slice('base_model.model.'.length, -'.lora_B.weight'.length)}.weight`;
    const { shape, data } = base.get(module) as FloatTensor;
    const [outputs, inputs] = shape;
    const sum = data.slice();
    for (let o = 0; o < outputs; o++) {
      for (let k = 0; k < r; k++) {
        for (let i = 0; i < inputs; i++) sum[o * inputs + i] += scale * b.data[o * r + k] * a.data[k * inputs + i];
      }
    }
    weights.set(module, { shape, data: sum });
  }
  return weights;
}

/** An adapter's tensors under the names that training has for them. */
function tensorsOf(folder: string): StubParameters {
  const own = (name: string): string =>
    name
      .replace(/^base_model\.model\.model\.language_model\./, 'base_model.model.model.')
      .replace(/^base_model\.model\.model\.visual\./, 'base_model.model.visual.');
  const tensors = readSafetensors(join(folder, 'adapter_model.safetensors'));
  return new Map([...tensors].map(([name, tensor]) => [own(name), tensor]));
}

interface PeftConfig {
  readonly peft_type: string;
  readonly r: number;
  readonly lora_alpha: number;
  readonly use_rslora: boolean;
  readonly bias: string;
  readonly modules_to_save: null;
  readonly target_modules: unknown;
}

function readConfig(folder: string): PeftConfig {
  return JSON.parse(readFileSync(join(folder, 'adapter_config.json'), 'utf8')) as PeftConfig;
}
