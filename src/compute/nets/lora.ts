/**
 * Linear layers as sums of matrix products, and low-rank adapters (Hu et al., "LoRA", 2021). A linear layer with frozen
 * weights W computes x W^T + s (x A^T) B^T with trained A [rank, in] and B [out, rank]. B starts at zero, so an adapter
 * changes nothing at first. Names and options are those of PEFT.
 */
import { ConfigError } from '../../core/errors.js';
import { RandomStream } from '../../core/random.js';
import type { FloatTensor } from '../../core/safetensors.js';
import { add, gemm } from '../graph/build.js';
import type { Shape, Value } from '../graph/ir.js';

/** scale * rows table^T, [N, M]. */
export interface Product {
  /** [N, K] */
  readonly rows: Value;
  /** [M, K], stored as the weights of a linear layer. */
  readonly table: Value;
  readonly scale: number;
}

/** The sum [N, M] of products of the same shape, and of a bias [M] on each row. */
export function sumOf(products: readonly Product[], bias?: Value): Value {
  return products
    .map(({ rows, table, scale }, i) =>
      gemm(rows, table, { transB: true, alpha: scale, ...(i === 0 && bias !== undefined ? { bias } : {}) }),
    )
    .reduce(add);
}

export interface LoraSettings {
  readonly rank: number;
  readonly alpha: number;
  /** alpha / sqrt(rank) instead of alpha / rank (Kalajdzievski, "rsLoRA", 2023). */
  readonly rslora: boolean;
  /**
   * `all-linear` (all except the output head), a regular expression that matches whole names, or a list of names that
   * match whole names or their ends.
   */
  readonly targets: string | readonly string[];
  /** Layers that `targets` match but that get no adapter. Absent: none. */
  readonly excluded?: string | readonly string[];
  /**
   * The only indexes of layers with an adapter, and the names of the lists that they count in (empty: any), for targets
   * given as a list. Absent: all.
   */
  readonly transformed?: { readonly indexes: readonly number[]; readonly patterns: readonly string[] };
}

/** s, the factor of B A. */
export function loraScale({ rank, alpha, rslora }: Pick<LoraSettings, 'rank' | 'alpha' | 'rslora'>): number {
  return alpha / (rslora ? Math.sqrt(rank) : rank);
}

/** Maps the name of a layer or parameter here to its name in another program's model. */
export type ModuleNames = (name: string) => string;

/** An adapter of one model. */
export interface Adapter {
  readonly rank: number;
  /** s. */
  readonly scale: number;
  /** The layers that it adapts. */
  readonly layers: ReadonlySet<string>;
}

const WEIGHT = '.weight';

/**
 * The adapter of a model with these parameters, of which `linear` are the weights of linear layers and `head` is the
 * output head. `namings` are alternative namings of layers. The first under which a target matches counts. Raises
 * ConfigError for targets that match no layer.
 */
export function adapterOf(
  settings: LoraSettings,
  linear: readonly string[],
  head: string,
  where = 'policy.lora.targets',
  namings: readonly [ModuleNames, ...ModuleNames[]] = [(name) => name],
): Adapter {
  const { rank, alpha, rslora, targets, excluded = [], transformed } = settings;
  const layers = linear.map((name) => name.slice(0, -WEIGHT.length));
  const [nameOf] = namings;
  const isExcluded =
    typeof excluded === 'string' ? wholeMatch(excluded, where) : (name: string) => excluded.some(endOf(name));
  const isTransformed = transformed === undefined ? () => true : indexMatch(transformed, where);
  const chosen = new Set<string>();
  for (const target of typeof targets === 'string' ? [targets] : targets) {
    const matches = typeof targets === 'string' ? wholeMatch(target, where) : (name: string) => endOf(name)(target);
    const found =
      targets === 'all-linear'
        ? layers.filter((layer) => layer !== head)
        : namings.map((names) => layers.filter((layer) => matches(names(layer)))).find(({ length }) => length > 0);
    if (found === undefined) {
      const kinds = [...new Set(layers.map((name) => name.split('.').at(-1) ?? name))];
      throw new ConfigError(`'${target}' matches no linear layer`, {
        where,
        next: `The model's linear layers are ${kinds.join(', ')}; 'all-linear' takes all except ${head}.`,
      });
    }
    for (const layer of found) {
      const name = nameOf(layer);
      if (!isExcluded(name) && (name === target || isTransformed(name))) chosen.add(layer);
    }
  }
  if (chosen.size === 0) {
    throw new ConfigError('exclude_modules and layers_to_transform leave no layer', { where });
  }
  return { rank, scale: loraScale({ rank, alpha, rslora }), layers: chosen };
}

/** Whether a target names a layer: by its whole name, or by the end of it. */
const endOf =
  (name: string) =>
  (target: string): boolean =>
    name === target || name.endsWith(`.${target}`);

function wholeMatch(pattern: string, where: string): (name: string) => boolean {
  const expression = expressionOf(`^(?:${pattern})$`, pattern, where);
  return (name) => expression.test(name);
}

/** Whether a layer's index, the first number after a list's name, is one of the given indexes. */
function indexMatch(
  { indexes, patterns }: NonNullable<LoraSettings['transformed']>,
  where: string,
): (name: string) => boolean {
  const expressions =
    patterns.length === 0
      ? [/^.*?\.[^.]*\.(\d+)\./]
      : patterns.map((pattern) => expressionOf(`^(?:.*?\\.)?(?:${pattern})\\.(\\d+)\\.`, pattern, where));
  return (name) => {
    const index = expressions.map((expression) => expression.exec(name)?.at(-1)).find((found) => found !== undefined);
    return index !== undefined && indexes.includes(Number(index));
  };
}

/** Python's spelling of some expressions, and JavaScript's. */
const PYTHON: readonly (readonly [RegExp, string])[] = [
  [/\(\?P</g, '(?<'],
  [/\(\?P=(\w+)\)/g, '\\k<$1>'],
  [/\\Z/g, '$'],
  [/\\A/g, '^'],
];

function expressionOf(source: string, pattern: string, where: string): RegExp {
  try {
    return new RegExp(PYTHON.reduce((text, [python, own]) => text.replace(python, own), source));
  } catch (cause) {
    throw new ConfigError(`'${pattern}' is not a regular expression: ${(cause as Error).message}`, {
      where,
      next: 'Write it without features that only Python has, or list the names of the layers.',
    });
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

/**
 * A is uniform within 1/sqrt(in) (Kaiming initialization with a = sqrt(5), as in PEFT), B is zero. Each has its own
 * random stream.
 */
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
  return [own, { rows: gemm(x, a, { transB: true }), table, scale: adapter.scale }];
}
