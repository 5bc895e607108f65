import { describe, expect, it } from 'vitest';
import { RandomStream } from '../../../../src/core/random.js';
import { gradients } from '../../../../src/compute/graph/differentiate.js';
import { mul, sumAll } from '../../../../src/compute/graph/build.js';
import { Graph, type Value } from '../../../../src/compute/graph/ir.js';
import {
  singleLayers,
  type Flux2Config,
  type FlowTransformerConfig,
  type FluxConfig,
  type QwenImageConfig,
} from '../../../../src/compute/nets/flow/config.js';
import {
  flowInputs,
  flowParameters,
  initFlowTransformer,
  isIpAdapter,
  velocity,
  type FlowShape,
} from '../../../../src/compute/nets/flow/transformer.js';
import { evaluate } from '../../graph/reference.js';
import { expectClose, runOnnx } from '../../graph/support.js';

const flux: FluxConfig = {
  architecture: 'flux',
  in_channels: 5,
  out_channels: 3,
  num_layers: 2,
  num_single_layers: 2,
  attention_head_dim: 8,
  num_attention_heads: 2,
  joint_attention_dim: 6,
  pooled_projection_dim: 4,
  guidance_embeds: true,
  prediction: 'velocity',
  condition_dropout: null,
  axes_dims_rope: [2, 4, 2],
  ip_adapter: { tokens: 3, image_embed_dim: 7, scale: 0.6 },
};
const qwen: QwenImageConfig = {
  architecture: 'qwen_image',
  in_channels: 5,
  out_channels: 2,
  patch_size: 2,
  zero_cond_t: false,
  num_layers: 2,
  attention_head_dim: 8,
  num_attention_heads: 2,
  joint_attention_dim: 6,
  axes_dims_rope: [2, 4, 2],
  ip_adapter: null,
  prediction: 'velocity',
  condition_dropout: null,
};
const flux2: Flux2Config = {
  architecture: 'flux2',
  in_channels: 3,
  out_channels: 3,
  num_layers: 2,
  num_single_layers: 2,
  attention_head_dim: 8,
  num_attention_heads: 2,
  joint_attention_dim: 6,
  mlp_ratio: 1.5,
  axes_dims_rope: [2, 2, 2, 2],
  rope_theta: 100,
  guidance_embeds: true,
  ip_adapter: null,
  prediction: 'velocity',
  condition_dropout: null,
};
const shape: FlowShape = { batch: 2, rows: 2, columns: 3, textTokens: 3 };

const configs: [string, FlowTransformerConfig, FlowShape?][] = [
  ['flux', flux],
  [
    'flux of joint blocks alone, without a summary',
    { ...flux, num_single_layers: 0, pooled_projection_dim: 0, guidance_embeds: false },
  ],
  ['flux that predicts the clean sample', { ...flux, prediction: 'sample' }],
  ['flux2', flux2, { ...shape, hasSecond: true, further: [{ rows: 1, columns: 2 }] }],
  ['qwen_image', qwen],
  ['qwen_image beside a picture without noise', { ...qwen, zero_cond_t: true }, { ...shape, hasSecond: true }],
];

interface Described {
  readonly out: Value;
  readonly loss: Value;
  readonly names: readonly string[];
  readonly slopes: readonly Value[];
  /** Data of every input and parameter. */
  readonly feeds: Map<Value, Float32Array>;
}

/**
 * A projection of the velocity, its gradients, and random data; no weight is zero. Noise levels are small, since float32 holds the angle
 * 1000 sigma of larger ones to 3e-5.
 */
function described(config: FlowTransformerConfig, withPrompt = true, of: FlowShape = shape): Described {
  const graph = new Graph('flow');
  const inputs = flowInputs(graph, config, of);
  const out = velocity(graph, config, of, withPrompt ? inputs : { ...inputs, imageFeatures: null });
  const feeds = new Map<Value, Float32Array>();
  for (const input of graph.inputs) {
    const stream = new RandomStream('input', input.name);
    feeds.set(
      input,
      Float32Array.from({ length: input.size }, () => (input.shape.length === 1 ? 0.01 : 1) * stream.normal()),
    );
  }
  const weights = initFlowTransformer(config, 1);
  for (const [name, value] of graph.parameters) {
    const stream = new RandomStream('perturb', name);
    feeds.set(
      value,
      Float32Array.from(weights.get(name)!.data, (x) => x + 0.2 * stream.normal()),
    );
  }
  const direction = new RandomStream('projection');
  const projection = graph.constant(
    Float32Array.from({ length: out.size }, () => direction.normal()),
    out.shape,
  );
  const loss = sumAll(mul(out, projection));
  const names = [...graph.parameters.keys()];
  return { out, loss, names, slopes: gradients(loss, [...graph.parameters.values()]), feeds };
}

describe.each(configs)('a flow transformer: %s', (_name, config, of) => {
  const { out, loss, names, slopes, feeds } = described(config, true, of);

  it('has parameters of the names and shapes that are listed', () => {
    const listed = flowParameters(config);
    for (const [value] of feeds) {
      if (value.origin.kind === 'parameter') expect(listed.get(value.name), value.name).toEqual(value.shape);
    }
    const last = config.num_layers - 1;
    const unread = new RegExp(
      `^transformer_blocks\\.${last}\\.(attn\\.(add_q_proj|norm_added_q|to_add_out)|ff_context|txt_mlp)`,
    );
    const isRead = (name: string): boolean => singleLayers(config) > 0 || !unread.test(name);
    expect([...names].sort()).toEqual([...listed.keys()].filter(isRead).sort());
  });

  it('gradients agree with finite differences in float64', () => {
    const values = evaluate([...slopes], feeds);
    const parameters = names.map((name) => slopes[0].graph.parameters.get(name)!);
    for (const draw of ['first', 'second']) {
      const directions = parameters.map((parameter) => {
        const stream = new RandomStream('direction', draw, parameter.name);
        return Float64Array.from({ length: parameter.size }, () => stream.normal());
      });
      const moved = (step: number): number => {
        const there = parameters.map((parameter, i): [Value, Float64Array] => [
          parameter,
          directions[i].map((x, k) => feeds.get(parameter)![k] + step * x),
        ]);
        return evaluate([loss], new Map<Value, ArrayLike<number>>([...feeds, ...there]))[0][0];
      };
      const numeric = (moved(3e-6) - moved(-3e-6)) / 6e-6;
      const exact = directions.flatMap((direction, i) => [...direction.map((x, k) => x * values[i][k])]);
      const sum = exact.reduce((total, x) => total + x, 0);
      expect(Math.abs(numeric - sum)).toBeLessThan(1e-6 * Math.abs(sum));
    }
  });

  it('is computed by the runtime as in float64', async () => {
    const [velocityThere, ...slopesThere] = await runOnnx(out.graph, [out, ...slopes], feeds);
    const [velocityHere, ...slopesHere] = evaluate([out, ...slopes], feeds);
    expectClose(velocityThere, velocityHere, 2e-5, 'velocity');
    // Divided by the noise level, float32's error is as many times as large.
    const within = config.prediction === 'sample' ? 1e-3 : 1e-4;
    names.forEach((name, i) => expectClose(slopesThere[i], slopesHere[i], within, name));
  });
});

describe('an IP-Adapter', () => {
  it('begins as none', () => {
    const graph = new Graph('flow');
    const inputs = flowInputs(graph, flux, shape);
    const weights = initFlowTransformer(flux, 1);
    const [bare, adapted] = [
      velocity(graph, flux, shape, { ...inputs, imageFeatures: null }),
      velocity(graph, flux, shape, inputs),
    ];
    const feeds = new Map<Value, Float32Array>(
      graph.inputs.map((input) => [input, new Float32Array(input.size).fill(0.3)]),
    );
    for (const [name, value] of graph.parameters) {
      const stream = new RandomStream('perturb', name);
      const own = weights.get(name)!.data;
      feeds.set(value, isIpAdapter(name) ? own : own.map((x) => x + 0.2 * stream.normal()));
    }
    const [without, beside] = evaluate([bare, adapted], feeds);
    expect(beside).toEqual(without);
    expect(without.some((x) => Math.abs(x) > 0.1)).toBe(true);
  });

  it('is left out of a graph without image features', () => {
    expect(described(flux, false).names.filter(isIpAdapter)).toEqual([]);
    expect(described(flux).names.filter(isIpAdapter)).toHaveLength(4 + 4 * flux.num_layers);
  });
});

it('a flow transformer begins as zero', () => {
  const graph = new Graph('flow');
  const out = velocity(graph, flux, shape, flowInputs(graph, flux, shape));
  const weights = initFlowTransformer(flux, 1);
  const feeds = new Map<Value, Float32Array>([
    ...graph.inputs.map((input): [Value, Float32Array] => [input, new Float32Array(input.size).fill(0.3)]),
    ...[...graph.parameters].map(([name, value]): [Value, Float32Array] => [value, weights.get(name)!.data]),
  ]);
  expect([...evaluate([out], feeds)[0]].every((x) => x === 0)).toBe(true);
});

describe.each([
  ['flux', { ...flux, ip_adapter: null }],
  ['flux2', flux2],
  ['qwen_image', qwen],
])('padding behind a text: %s', (_name, config) => {
  const weights = initFlowTransformer(config, 1);
  /** The velocity for a text of three tokens, with so many further ones behind it; `mask` says that these are none. */
  const withFurther = (further: number, mask: boolean): Float64Array => {
    const graph = new Graph('flow');
    const own = { ...shape, textTokens: shape.textTokens + further, ...(mask ? { hasPadding: true } : {}) };
    const out = velocity(graph, config, own, flowInputs(graph, config, own));
    const feeds = new Map<Value, Float32Array>();
    for (const input of graph.inputs) {
      const [, tokens] = input.shape;
      if (input.name === 'text_padding') {
        feeds.set(
          input,
          Float32Array.from({ length: input.size }, (_, i) => (i % tokens < shape.textTokens ? 0 : -1e9)),
        );
      } else if (input.name === 'text') {
        // What lies behind the text is anything.
        const width = input.size / shape.batch;
        const said = shape.textTokens * config.joint_attention_dim;
        const stream = (b: number, i: number) => new RandomStream('text', b, i, i < said ? 0 : further).normal();
        feeds.set(
          input,
          Float32Array.from({ length: input.size }, (_, i) => stream(Math.floor(i / width), i % width)),
        );
      } else {
        const stream = new RandomStream('input', input.name);
        feeds.set(
          input,
          Float32Array.from({ length: input.size }, () => 0.1 * stream.normal()),
        );
      }
    }
    for (const [name, value] of graph.parameters) {
      const stream = new RandomStream('perturb', name);
      feeds.set(
        value,
        weights.get(name)!.data.map((x) => x + 0.2 * stream.normal()),
      );
    }
    return Float64Array.from(evaluate([out], feeds)[0]);
  };

  it('has no effect, and further tokens have one', () => {
    const bare = withFurther(0, false);
    expectClose(withFurther(5, true), bare, 1e-9, 'padded');
    expect(Math.max(...withFurther(5, false).map((x, i) => Math.abs(x - bare[i])))).toBeGreaterThan(1e-3);
  });
});
