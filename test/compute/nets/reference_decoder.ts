/** A decoder in plain loops over float64, for one unpadded sequence; written from the formulae, shares nothing with src/compute/nets. */
import type { FloatTensor } from '../../../src/core/safetensors.js';
import type { DecoderConfig } from '../../../src/compute/nets/decoder/config.js';

type Row = number[];

/** What pictures change of a prompt. */
export interface ReferenceSeen {
  /** By columns, what stands there in place of a word. */
  readonly rows: ReadonlyMap<number, Row>;
  /** The position in a column that a frequency of a head turns with. */
  readonly position: (column: number, frequency: number) => number;
}

/** Logits at the last `count` positions. */
export function referenceLogits(
  config: DecoderConfig,
  weights: ReadonlyMap<string, FloatTensor>,
  ids: number[],
  count: number,
  { rows: seen, position }: ReferenceSeen = { rows: new Map(), position: (column) => column },
): Row[] {
  const get = (name: string): FloatTensor => {
    const tensor = weights.get(name);
    if (tensor === undefined) throw new Error(name);
    return tensor;
  };
  const linear = (x: Row, name: string): Row => {
    const { shape, data } = get(`${name}.weight`);
    const bias = weights.get(`${name}.bias`);
    return Array.from({ length: shape[0] }, (_, o) =>
      x.reduce((sum, value, i) => sum + value * data[o * x.length + i], bias?.data[o] ?? 0),
    );
  };
  const norm = (x: Row, name: string): Row => {
    const scale = 1 / Math.sqrt(x.reduce((sum, value) => sum + value * value, 0) / x.length + config.rms_norm_eps);
    return x.map((value, i) => value * scale * get(`${name}.weight`).data[i]);
  };
  const depth = config.head_dim;
  const rotate = (x: Row, column: number): Row =>
    x.map((value, i) => {
      const j = i % depth;
      const half = depth / 2;
      const angle = position(column, j % half) * config.rope_theta ** (-(2 * (j % half)) / depth);
      const other = j < half ? -x[i + half] : x[i - half];
      return value * Math.cos(angle) + other * Math.sin(angle);
    });
  const table = get('model.embed_tokens.weight').data;
  let rows = ids.map(
    (id, t) => seen.get(t) ?? [...table.subarray(id * config.hidden_size, (id + 1) * config.hidden_size)],
  );
  for (let l = 0; l < config.num_hidden_layers; l++) {
    const layer = `model.layers.${l}`;
    const normalised = rows.map((row) => norm(row, `${layer}.input_layernorm`));
    const q = normalised.map((row, t) => rotate(linear(row, `${layer}.self_attn.q_proj`), t));
    const k = normalised.map((row, t) => rotate(linear(row, `${layer}.self_attn.k_proj`), t));
    const v = normalised.map((row) => linear(row, `${layer}.self_attn.v_proj`));
    const repeat = config.num_attention_heads / config.num_key_value_heads;
    rows = rows.map((row, t) => {
      const mixed: Row = [];
      for (let head = 0; head < config.num_attention_heads; head++) {
        const kv = Math.floor(head / repeat);
        const scores = Array.from({ length: t + 1 }, (_, s) => {
          let sum = 0;
          for (let d = 0; d < depth; d++) sum += q[t][head * depth + d] * k[s][kv * depth + d];
          return sum / Math.sqrt(depth);
        });
        const top = Math.max(...scores);
        const total = scores.reduce((sum, score) => sum + Math.exp(score - top), 0);
        for (let d = 0; d < depth; d++) {
          mixed.push(scores.reduce((sum, score, s) => sum + (Math.exp(score - top) / total) * v[s][kv * depth + d], 0));
        }
      }
      const attended = linear(mixed, `${layer}.self_attn.o_proj`).map((x, i) => x + row[i]);
      const inner = norm(attended, `${layer}.post_attention_layernorm`);
      const gate = linear(inner, `${layer}.mlp.gate_proj`);
      const up = linear(inner, `${layer}.mlp.up_proj`);
      const down = linear(
        gate.map((x, i) => (x / (1 + Math.exp(-x))) * up[i]),
        `${layer}.mlp.down_proj`,
      );
      return attended.map((x, i) => x + down[i]);
    });
  }
  const head = config.tie_word_embeddings ? 'model.embed_tokens' : 'lm_head';
  return rows.slice(-count).map((row) => linear(norm(row, 'model.norm'), head));
}
