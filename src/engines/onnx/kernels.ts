/**
 * The optimizer's two passes over all weights as WebAssembly with SIMD. They take less than half the time of JavaScript loops and need no library.
 * WebAssembly can only access its own memory, so arrays are copied in and out in blocks that fit into a core's cache. It computes in float64, as
 * JavaScript does, and its results are equal to the loops' bit for bit.
 */

type Code = readonly number[];

const I32 = 0x7f;
const F64 = 0x7c;
const V128 = 0x7b;

/** Numbers of any size, seven bits a byte. */
function leb(value: number): Code {
  return value < 128 ? [value] : [(value & 127) | 128, ...leb(value >>> 7)];
}

const text = (name: string): Code => counted([...Buffer.from(name)]);
const counted = (code: Code): Code => [...leb(code.length), ...code];
const list = (entries: readonly Code[]): Code => [...leb(entries.length), ...entries.flat()];
const section = (id: number, entries: readonly Code[]): Code => [id, ...counted(list(entries))];

/** Instructions (WebAssembly core specification 2.0, "Binary format"): each takes its operands' code before its own. */
const get = (local: number): Code => [0x20, ...leb(local)];
const set = (local: number, x: Code): Code => [...x, 0x21, ...leb(local)];
const vector =
  (opcode: number) =>
  (...operands: readonly Code[]): Code => [...operands.flat(), 0xfd, ...leb(opcode)];
const ALIGNED_16 = 4;
const load = (address: number, offset = 0): Code => [...get(address), 0xfd, 0x00, ALIGNED_16, offset];
const store = (address: number, x: Code, offset = 0): Code => [...get(address), ...x, 0xfd, 0x0b, ALIGNED_16, offset];
const splat = (local: number): Code => vector(0x14)(get(local));
const [sqrt, add, sub, mul, div] = [0xef, 0xf0, 0xf1, 0xf2, 0xf3].map(vector);
const shuffled = (a: Code, b: Code, bytes: Code): Code => [...a, ...b, 0xfd, 0x0d, ...bytes];
/** Eight bytes from `first` on. */
const eight = (first: number): Code => Array.from({ length: 8 }, (_, i) => first + i);
/** The first two of four float32 as float64, and the last two. */
const lowHalf = vector(0x5f);
const highHalf = (x: Code): Code => lowHalf(shuffled(x, x, [...eight(8), ...eight(0)]));
/** Two float64 rounded to float32, the first two of four. */
const rounded = vector(0x5e);
const joined = (low: Code, high: Code): Code => shuffled(rounded(low), rounded(high), [...eight(0), ...eight(16)]);
const advance = (address: number): Code => set(address, [...get(address), 0x41, 16, 0x6a]);
/** Repeats `body`, which is run at least once, while `address` is below `end`. */
const repeat = (body: Code, address: number, end: number): Code => [
  ...[0x03, 0x40, ...body],
  ...[...get(address), ...get(end), 0x49, 0x0d, 0, 0x0b],
];

/** A function with this many parameters of each type, followed by this many vector locals. */
interface Kernel {
  readonly parameters: Code;
  readonly results: Code;
  readonly vectors: number;
  readonly body: Code;
}

/**
 * step(w, m, v, g, end, …factors): with d = clip g, rounded, m <- b1 m + (1 - b1) d, v <- b2 v + (1 - b2) d d,
 * w <- remaining w - scale m / (sqrt(v) root + eps), in which m and v are not rounded yet. Addresses in bytes; it ends where w reaches `end`.
 */
function stepKernel(): Kernel {
  const locals = Array.from({ length: 25 }, (_, i) => i);
  const [w, m, v, g, end, clip, beta1, fresh1, beta2, fresh2, scale, root, eps, remaining, ...vectors] = locals;
  const [weights, firsts, seconds, gradients, d, ...results] = vectors;
  const ofHalf = (half: (x: Code) => Code, weight: number, first: number, second: number): Code =>
    [
      set(d, lowHalf(rounded(mul(half(get(gradients)), splat(clip))))),
      set(first, add(mul(half(get(firsts)), splat(beta1)), mul(get(d), splat(fresh1)))),
      set(second, add(mul(half(get(seconds)), splat(beta2)), mul(mul(get(d), splat(fresh2)), get(d)))),
      set(
        weight,
        sub(
          mul(half(get(weights)), splat(remaining)),
          div(mul(get(first), splat(scale)), add(mul(sqrt(get(second)), splat(root)), splat(eps))),
        ),
      ),
    ].flat();
  const [weightLow, firstLow, secondLow, weightHigh, firstHigh, secondHigh] = results;
  const body = [
    ...[set(weights, load(w)), set(firsts, load(m)), set(seconds, load(v)), set(gradients, load(g))],
    ofHalf(lowHalf, weightLow, firstLow, secondLow),
    ofHalf(highHalf, weightHigh, firstHigh, secondHigh),
    store(w, joined(get(weightLow), get(weightHigh))),
    store(m, joined(get(firstLow), get(firstHigh))),
    store(v, joined(get(secondLow), get(secondHigh))),
    ...[w, m, v, g].map(advance),
  ].flat();
  const factors = remaining - end;
  const parameters = [...Array<number>(end + 1).fill(I32), ...Array<number>(factors).fill(F64)];
  return { parameters, results: [], vectors: vectors.length, body: repeat(body, w, end) };
}

/** squares(g, end, sums): adds the squares of the elements to the four float64 at `sums`; element i goes to sum i modulo 4. */
function squaresKernel(): Kernel {
  const [g, end, sums, low, high, x] = Array.from({ length: 6 }, (_, i) => i);
  const second = 16;
  const grown = (sum: number, half: Code): Code => set(sum, add(get(sum), mul(half, half)));
  const loop = [set(x, load(g)), grown(low, lowHalf(get(x))), grown(high, highHalf(get(x))), advance(g)].flat();
  const body = [
    set(low, load(sums)),
    set(high, load(sums, second)),
    repeat(loop, g, end),
    store(sums, get(low)),
    store(sums, get(high), second),
  ].flat();
  return { parameters: [I32, I32, I32], results: [], vectors: 3, body };
}

/** Elements of an array that are brought over at a time: four such blocks are a quarter of a megabyte. */
const BLOCK = 2 ** 14;
const PAGE_BYTES = 2 ** 16;

interface Exports {
  readonly memory: { readonly buffer: ArrayBuffer };
  step(w: number, m: number, v: number, g: number, end: number, ...factors: readonly number[]): void;
  squares(g: number, end: number, sums: number): void;
}

/** The types of Node have it not. */
declare const WebAssembly: {
  readonly Module: new (binary: Uint8Array) => object;
  readonly Instance: new (module: object) => { readonly exports: object };
};

function instantiate(): Exports {
  const kernels = Object.entries({ step: stepKernel(), squares: squaresKernel() });
  const bodies = kernels.map(([, { vectors, body }]) => counted([1, ...leb(vectors), V128, ...body, 0x0b]));
  const binary = [
    ...[0x00, 0x61, 0x73, 0x6d, 0x01, 0x00, 0x00, 0x00],
    ...section(
      1,
      kernels.map(([, { parameters, results }]) => [0x60, ...counted(parameters), ...counted(results)]),
    ),
    ...section(
      3,
      kernels.map((_, i) => [i]),
    ),
    ...section(5, [[0x00, ...leb((4 * 4 * BLOCK) / PAGE_BYTES)]]),
    ...section(7, [[...text('memory'), 2, 0], ...kernels.map(([name], i) => [...text(name), 0, i])]),
    ...section(10, bodies),
  ];
  return new WebAssembly.Instance(new WebAssembly.Module(Uint8Array.from(binary))).exports as Exports;
}

const kernels = instantiate();
const memory = new Float32Array(kernels.memory.buffer);

/** Factors of one step, the same for all parameters. */
export interface StepFactors {
  /** The factor that gradients are multiplied by first. */
  readonly clip: number;
  readonly beta1: number;
  readonly beta2: number;
  /** The learning rate over the bias correction of the first moment. */
  readonly scale: number;
  /** One over the root of the bias correction of the second moment. */
  readonly rootCorrection: number;
  readonly eps: number;
  /** The share of a weight that remains after its decay. */
  readonly remaining: number;
}

/** One step of AdamW over arrays of the same length; weights and moments are changed in place. */
export function stepInPlace(
  weights: Float32Array,
  first: Float32Array,
  second: Float32Array,
  gradient: Float32Array,
  { clip, beta1, beta2, scale, rootCorrection, eps, remaining }: StepFactors,
): void {
  const factors = [clip, beta1, 1 - beta1, beta2, 1 - beta2, scale, rootCorrection, eps, remaining];
  const [w, m, v, g] = [0, 1, 2, 3].map((i) => i * BLOCK);
  for (let start = 0; start < weights.length; start += BLOCK) {
    const end = Math.min(start + BLOCK, weights.length);
    const changed = [
      [weights.subarray(start, end), w],
      [first.subarray(start, end), m],
      [second.subarray(start, end), v],
    ] as const;
    for (const [part, at] of changed) memory.set(part, at);
    memory.set(gradient.subarray(start, end), g);
    kernels.step(4 * w, 4 * m, 4 * v, 4 * g, 4 * (end - start), ...factors);
    for (const [part, at] of changed) part.set(memory.subarray(at, at + part.length));
  }
}

/** The kernel keeps its sums behind the block that it reads. */
const SUMS = 4 * BLOCK;
const sums = new Float64Array(kernels.memory.buffer, SUMS, 4);

/** The sum of squares in float64, by four interleaved sums, so that the order is fixed. */
export function sumOfSquares(g: Float32Array): number {
  sums.fill(0);
  const whole = g.length - (g.length % 4);
  for (let start = 0; start < whole; start += BLOCK) {
    const part = g.subarray(start, Math.min(start + BLOCK, whole));
    memory.set(part);
    kernels.squares(0, 4 * part.length, SUMS);
  }
  for (const x of g.subarray(whole)) sums[0] += x * x;
  return sums[0] + sums[1] + (sums[2] + sums[3]);
}
