/**
 * Low-rank adapters (Hu et al., "LoRA", 2021): a linear layer with frozen weights W computes x W^T + s (x A^T) B^T, where A [rank, in] and B [out,
 * rank] are trained. B starts at zero, so that an adapter changes nothing at first. Names and options are those of PEFT.
 */
import { ConfigError } from '../core/errors.js';
import { RandomStream } from '../core/random.js';
import type { FloatTensor } from '../core/safetensors.js';
import { add, gemm } from '../graph/build.js';
import type { Shape, Value } from '../graph/ir.js';
import type { Product } from './product.js';

export interface LoraSettings {
  readonly rank: number;
  readonly alpha: number;
  /** alpha / sqrt(rank) instead of alpha / rank (Kalajdzievski, "rsLoRA", 2023). */
  readonly rslora: boolean;
  /** `all-linear` (all but the output head), a regular expression of whole names, or names of which a layer's is one or ends in one. */
  readonly targets: string | readonly string[];
}

/** An adapter of one model. */
export interface Adapter {
  readonly rank: number;
  /** s. */
  readonly scale: number;
  /** The layers that it adapts. */
  readonly layers: ReadonlySet<string>;
  /** Whether its change is added to the weights, W + s B A, rather than to what they make of rows: for weights that do not change between runs. */
  readonly merged?: boolean;
}

const WEIGHT = '.weight';

/**
 * The adapter of a model with these parameters, of which `linear` are the weights of linear layers and `head` is the output head. Raises
 * ConfigError for targets that match no layer.
 */
export function adapterOf(
  settings: LoraSettings,
  linear: readonly string[],
  head: string,
  where = 'policy.lora.targets',
): Adapter {
  const { rank, alpha, rslora, targets } = settings;
  const layers = linear.map((name) => name.slice(0, -WEIGHT.length));
  const unmatched = (target: string): ConfigError => {
    const kinds = [...new Set(layers.map((name) => name.split('.').at(-1) ?? name))];
    return new ConfigError(`'${target}' matches no linear layer`, {
      where,
      next: `The model's linear layers are called ${kinds.join(', ')}; 'all-linear' takes all but ${head}.`,
    });
  };
  const chosen = new Set<string>();
  if (typeof targets === 'string') {
    const matches = targets === 'all-linear' ? (name: string) => name !== head : wholeMatch(targets, where);
    layers.filter(matches).forEach((name) => chosen.add(name));
    if (chosen.size === 0) throw unmatched(targets);
  } else {
    for (const target of targets) {
      const found = layers.filter((name) => name === target || name.endsWith(`.${target}`));
      if (found.length === 0) throw unmatched(target);
      found.forEach((name) => chosen.add(name));
    }
  }
  return { rank, scale: alpha / (rslora ? Math.sqrt(rank) : rank), layers: chosen };
}

function wholeMatch(pattern: string, where: string): (name: string) => boolean {
  try {
    const expression = new RegExp(`^(?:${pattern})$`);
    return (name) => expression.test(name);
  } catch (cause) {
    throw new ConfigError(`'${pattern}' is no regular expression`, { where, cause });
  }
}

/** Names and shapes of an adapter's parameters over weights [out, in] by name, layer after layer. */
export function adapterParameters(
  { rank, layers }: Adapter,
  shapeOf: (weight: string) => Shape,
): Map<string, readonly [number, number]> {
  const out = new Map<string, readonly [number, number]>();
  for (const layer of layers) {
    const [outputs, inputs] = shapeOf(`${layer}${WEIGHT}`) as [number, number];
    out.set(`${layer}.lora_A${WEIGHT}`, [rank, inputs]);
    out.set(`${layer}.lora_B${WEIGHT}`, [outputs, rank]);
  }
  return out;
}

/** Whether a parameter is an adapter's. */
export function isAdapters(name: string): boolean {
  return /\.lora_[AB]\.weight$/.test(name);
}

/** A is uniform within 1/sqrt(in) (Kaiming's initialisation with a = sqrt(5), as PEFT's), B is zero. Each has a stream of its own. */
export function initAdapter(
  adapter: Adapter,
  shapeOf: (weight: string) => Shape,
  seed: number,
): Map<string, FloatTensor> {
  const out = new Map<string, FloatTensor>();
  for (const [name, shape] of adapterParameters(adapter, shapeOf)) {
    const data = new Float32Array(shape[0] * shape[1]);
    if (name.endsWith(`.lora_A${WEIGHT}`)) {
      const bound = 1 / Math.sqrt(shape[1]);
      const stream = new RandomStream(seed, 'init', name);
      for (let i = 0; i < data.length; i++) data[i] = bound * (2 * stream.uniform() - 1);
    }
    out.set(name, { shape, data });
  }
  return out;
}

/** A layer's products of rows [N, in]: with its weights [out, in], and with its adapter if it has one. */
export function productsOf(x: Value, weight: Value, layer: string, adapter: Adapter | undefined): readonly Product[] {
  const own = { rows: x, table: weight, scale: 1 };
  if (adapter?.layers.has(layer) !== true) return [own];
  const { graph } = x;
  const [outputs, inputs] = weight.shape;
  const a = graph.parameter(`${layer}.lora_A${WEIGHT}`, [adapter.rank, inputs]);
  const table = graph.parameter(`${layer}.lora_B${WEIGHT}`, [outputs, adapter.rank]);
  if (adapter.merged === true) return [{ ...own, table: add(weight, gemm(table, a, { alpha: adapter.scale })) }];
  return [own, { rows: gemm(x, a, { transB: true }), table, scale: adapter.scale }];
}
