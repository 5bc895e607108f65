/** A flow transformer at the tiny world's size: training and sampling graphs compared with their matrix products alone, and time by operator. */
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { availableParallelism, cpus, tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { Session } from '../../src/compute/onnx/session.js';
import type { TensorData } from '../../src/compute/onnx/tensors.js';
import { gradients } from '../../src/compute/graph/differentiate.js';
import { Graph, sizeOf, type Value, type ValueType } from '../../src/compute/graph/ir.js';
import type { FluxConfig } from '../../src/compute/nets/flow/config.js';
import { flowInputs, initFlowTransformer, velocity, type FlowShape } from '../../src/compute/nets/flow/transformer.js';
import { meanSquaredError } from '../../src/compute/nets/losses.js';
import { raceIterations } from './flow_iteration.js';
import { besideProducts } from './products.js';

const config: FluxConfig = {
  architecture: 'flux',
  in_channels: 64,
  out_channels: 32,
  num_layers: 4,
  num_single_layers: 0,
  attention_head_dim: 32,
  num_attention_heads: 4,
  joint_attention_dim: 64,
  pooled_projection_dim: 0,
  guidance_embeds: false,
  prediction: 'velocity',
  condition_dropout: null,
  axes_dims_rope: [8, 12, 12],
  ip_adapter: { tokens: 4, image_embed_dim: 64, scale: 1 },
};
const shape: FlowShape = { batch: 32, rows: 8, columns: 8, textTokens: 16 };
const PROFILED_RUNS = 10;
const ROUNDS = 5;

export async function benchFlow(): Promise<void> {
  console.log(
    `${cpus()[0]?.model ?? 'unknown processor'}, ${availableParallelism()} threads, node ${process.version}\n`,
  );
  const weights = initFlowTransformer(config, 1);
  for (const name of ['training', 'sampling'] as const) {
    const graph = new Graph(name);
    const outputs = graphs[name](graph);
    await besideProducts(
      `${name}, ${shape.batch} x ${shape.rows * shape.columns + shape.textTokens} tokens`,
      graph,
      outputs,
      weights,
      zeros,
    );
    await profile(graph, outputs);
  }
  const { values } = parseArgs({
    args: process.argv.slice(3),
    options: { python: { type: 'string', default: 'python3' } },
  });
  await raceIterations(values.python, ROUNDS, 2);
}

const graphs = {
  training: (graph: Graph): Readonly<Record<string, Value>> => {
    const out = velocity(graph, config, shape, flowInputs(graph, config, shape));
    const loss = meanSquaredError(out, graph.input('target', out.shape));
    const names = [...graph.parameters.keys()];
    const slopes = gradients(loss, [...graph.parameters.values()]);
    return { loss, ...Object.fromEntries(names.map((name, i) => [`d:${name}`, slopes[i]])) };
  },
  sampling: (graph: Graph): Readonly<Record<string, Value>> => ({
    velocity: velocity(graph, config, shape, flowInputs(graph, config, shape)),
  }),
};

function zeros(_type: ValueType, size: number): TensorData {
  return Float32Array.from({ length: size }, (_, i) => Math.sin(i));
}

interface ProfileEvent {
  readonly name: string;
  readonly dur: number;
  readonly args?: { readonly op_name?: string };
}

/** Milliseconds of a run by operator, the largest first, from onnxruntime's profile. */
async function profile(graph: Graph, outputs: Readonly<Record<string, Value>>): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), 'editrl-profile-'));
  try {
    const session = await Session.compile(graph, outputs, { profilePrefix: join(folder, 'run') });
    const feeds = Object.fromEntries(
      [...session.inputs].map(([name, type]) => [name, zeros(type, sizeOf(type.shape))]),
    );
    const weights = initFlowTransformer(config, 1);
    const into = await session.run(feeds, weights);
    for (let i = 1; i < PROFILED_RUNS; i++) await session.run(feeds, weights, into);
    await session.dispose();
    const file = readdirSync(folder).map((name) => join(folder, name))[0];
    const events = JSON.parse(readFileSync(file, 'utf8')) as ProfileEvent[];
    const byOperator = new Map<string, { ms: number; count: number }>();
    for (const { name, dur, args } of events) {
      if (args?.op_name === undefined || !name.endsWith('_kernel_time')) continue;
      const known = byOperator.get(args.op_name) ?? { ms: 0, count: 0 };
      byOperator.set(args.op_name, {
        ms: known.ms + dur / 1000 / PROFILED_RUNS,
        count: known.count + 1 / PROFILED_RUNS,
      });
    }
    const sorted = [...byOperator].sort(([, a], [, b]) => b.ms - a.ms);
    for (const [operator, { ms, count }] of sorted.slice(0, 14)) {
      console.log(`    ${operator.padEnd(24)} ${ms.toFixed(2).padStart(8)} ms  ${count.toFixed(0)} nodes`);
    }
    console.log();
  } finally {
    rmSync(folder, { recursive: true });
  }
}
