/**
 * A Llama/Qwen2-style decoder. One description of a block yields three graphs: whole sequences (training and log-probabilities),
 * the prefill of prompts, and one cached decoding step. They differ only in how a block attends.
 */
import { concat, gemm, reshape, slice, add } from '../../graph/build.js';
import type { Graph, Value } from '../../graph/ir.js';
import { embedding, linear, rmsNorm, swiglu } from '../layers.js';
import {
  answerHeads,
  answerQueries,
  attendAnswers,
  attendPrompts,
  attendSequences,
  causalMask,
  headsOf,
  promptHeads,
  promptQueries,
  RotaryTables,
  swapped,
} from './attention.js';
import type { DecoderConfig } from './config.js';

/** The sizes of a batch: P prompts of Tp columns, G answers of Ta columns for each. */
export interface BatchShape {
  readonly prompts: number;
  readonly answersPerPrompt: number;
  readonly promptColumns: number;
  readonly answerColumns: number;
}

/** Attention of one block: from normalised rows to mixed rows, before the output projection. */
type Attend = (layer: string, index: number, normalised: Value) => Value;

/** Wraps a block, for example to recompute it in the backward pass. */
export type BlockWrapper = (name: string, x: Value, build: (x: Value) => Value) => Value;

const plain: BlockWrapper = (_name, x, build) => build(x);

/** x + attention, then x + SwiGLU. `keep` first drops the rows that nothing later reads. */
function block(config: DecoderConfig, index: number, x: Value, attend: Attend, keep: (rows: Value) => Value): Value {
  const layer = `model.layers.${index}`;
  return x.graph.scope(`layers.${index}`, () => {
    const mixed = attend(layer, index, rmsNorm(x, `${layer}.input_layernorm`, config.rms_norm_eps));
    const attended = add(keep(x), linear(mixed, `${layer}.self_attn.o_proj`, config.hidden_size));
    const normalised = rmsNorm(attended, `${layer}.post_attention_layernorm`, config.rms_norm_eps);
    const gate = linear(normalised, `${layer}.mlp.gate_proj`, config.intermediate_size);
    const up = linear(normalised, `${layer}.mlp.up_proj`, config.intermediate_size);
    return add(attended, linear(swiglu(gate, up), `${layer}.mlp.down_proj`, config.hidden_size));
  });
}

function project(config: DecoderConfig, layer: string, rows: Value, which: 'q_proj' | 'k_proj' | 'v_proj'): Value {
  const heads = which === 'q_proj' ? config.num_attention_heads : config.num_key_value_heads;
  return linear(rows, `${layer}.self_attn.${which}`, heads * config.head_dim, config.attention_bias);
}

function embed(graph: Graph, config: DecoderConfig, ids: Value): Value {
  return embedding(graph, 'model.embed_tokens', ids, config.vocab_size, config.hidden_size);
}

/** Final norm and head: rows [N, width] to logits [N, vocabulary]. */
function logitsOf(config: DecoderConfig, rows: Value): Value {
  const normalised = rmsNorm(rows, 'model.norm', config.rms_norm_eps);
  if (!config.tie_word_embeddings) return linear(normalised, 'lm_head', config.vocab_size);
  const table = rows.graph.parameter('model.embed_tokens.weight', [config.vocab_size, config.hidden_size]);
  return gemm(normalised, table, { transB: true });
}

/** Inputs of a whole-sequence graph. */
export interface SequenceInputs {
  /** int64 [P, Tp]: prompts without their last token, padded on the left. */
  readonly promptIds: Value;
  /** float32 [P, Tp]: 0 on tokens, a large negative number on padding. */
  readonly promptPadding: Value;
  /** int64 [P, G, Ta]: the prompt's last token, then the answer without its last token. */
  readonly answerIds: Value;
}

export function sequenceInputs(graph: Graph, shape: BatchShape): SequenceInputs {
  const { prompts, answersPerPrompt, promptColumns, answerColumns } = shape;
  return {
    promptIds: graph.input('prompt_ids', [prompts, promptColumns], 'int64'),
    promptPadding: graph.input('prompt_padding', [prompts, promptColumns]),
    answerIds: graph.input('answer_ids', [prompts, answersPerPrompt, answerColumns], 'int64'),
  };
}

/** Logits [P * G * Ta, vocabulary] of the answers' tokens, given whole sequences. */
export function sequenceLogits(
  config: DecoderConfig,
  shape: BatchShape,
  inputs: SequenceInputs,
  wrap: BlockWrapper = plain,
): Value {
  const { graph } = inputs.promptIds;
  const { prompts, answersPerPrompt, promptColumns, answerColumns } = shape;
  const heads = headsOf(config);
  const promptRows = prompts * promptColumns;
  const rotary = new RotaryTables(graph, config, promptColumns + answerColumns);
  const promptCausal = causalMask(graph, heads.queriesPerHead, promptColumns);
  const answerCausal = causalMask(graph, heads.queriesPerHead, answerColumns);
  const padding = reshape(inputs.promptPadding, [prompts, 1, 1, promptColumns]);
  const last = config.num_hidden_layers - 1;
  const answersOnly = (rows: Value): Value => slice(rows, 0, promptRows, rows.shape[0]);

  // After the last block only the answers' rows are read, so that prompts need no queries there.
  const attend: Attend = (layer, index, normalised) => {
    const split = (rows: Value): [Value, Value] => [slice(rows, 0, 0, promptRows), answersOnly(rows)];
    const [promptK, answerK] = split(project(config, layer, normalised, 'k_proj'));
    const [promptV, answerV] = split(project(config, layer, normalised, 'v_proj'));
    const keys = rotary.keys(promptHeads(promptK, prompts, heads), 0);
    const values = promptHeads(promptV, prompts, heads);
    const batch = prompts * heads.keyValueHeads * answersPerPrompt;
    const ownKeys = rotary.keys(answerHeads(answerK, prompts, answersPerPrompt, heads), promptColumns);
    const ownValues = answerHeads(answerV, prompts, answersPerPrompt, heads);
    const queryRows = project(config, layer, index === last ? answersOnly(normalised) : normalised, 'q_proj');
    const answerQ = index === last ? queryRows : answersOnly(queryRows);
    const answers = attendSequences(
      rotary.queries(answerQueries(answerQ, prompts, answersPerPrompt, heads), promptColumns),
      { keys, values, mask: padding },
      {
        keys: reshape(ownKeys, [batch, answerColumns, heads.depth]),
        values: reshape(ownValues, [batch, answerColumns, heads.depth]),
        mask: answerCausal,
      },
      heads,
    );
    if (index === last) return answers;
    const promptQ = rotary.queries(promptQueries(slice(queryRows, 0, 0, promptRows), prompts, heads), 0);
    return concat([attendPrompts(promptQ, keys, values, padding, promptCausal, heads), answers], 0);
  };

  const ids = concat([reshape(inputs.promptIds, [promptRows]), reshape(inputs.answerIds, [inputs.answerIds.size])], 0);
  let rows = embed(graph, config, ids);
  for (let index = 0; index <= last; index++) {
    const keep = index === last ? answersOnly : (x: Value): Value => x;
    rows = wrap(`layers.${index}`, rows, (x) => block(config, index, x, attend, keep));
  }
  return logitsOf(config, rows);
}

/** One layer's cache of prompts: keys transposed [P, K, D, Tp], values [P, K, Tp, D]. */
export interface LayerCache {
  readonly keysTransposed: Value;
  readonly values: Value;
}

/** Keys and values of prompts (without their last token) for every layer. */
export function prefill(config: DecoderConfig, promptIds: Value, promptPadding: Value): LayerCache[] {
  const { graph } = promptIds;
  const [prompts, columns] = promptIds.shape as [number, number];
  const heads = headsOf(config);
  const rotary = new RotaryTables(graph, config, columns);
  const causal = causalMask(graph, heads.queriesPerHead, columns);
  const padding = reshape(promptPadding, [prompts, 1, 1, columns]);
  const caches: LayerCache[] = [];
  const cache = (layer: string, normalised: Value): { keys: Value; values: Value } => {
    const keys = rotary.keys(promptHeads(project(config, layer, normalised, 'k_proj'), prompts, heads), 0);
    const values = promptHeads(project(config, layer, normalised, 'v_proj'), prompts, heads);
    caches.push({ keysTransposed: swapped(keys), values });
    return { keys, values };
  };
  let rows = embed(graph, config, promptIds);
  for (let index = 0; index < config.num_hidden_layers - 1; index++) {
    const attend: Attend = (layer, _index, normalised) => {
      const { keys, values } = cache(layer, normalised);
      const queries = rotary.queries(promptQueries(project(config, layer, normalised, 'q_proj'), prompts, heads), 0);
      return attendPrompts(queries, keys, values, padding, causal, heads);
    };
    rows = block(config, index, rows, attend, (x) => x);
  }
  const lastLayer = `model.layers.${config.num_hidden_layers - 1}`;
  cache(lastLayer, rmsNorm(rows, `${lastLayer}.input_layernorm`, config.rms_norm_eps));
  return caches;
}

/** Inputs of a decoding step; the caches are read, never copied: the caller writes the returned columns into its arrays. */
export interface StepInputs {
  /** int64 [P, G]: each answer's latest token. */
  readonly ids: Value;
  /** int64 [P * K * G, 1]: the column of that token, counted from the prompt's first column. */
  readonly positions: Value;
  /** float32 [P, Tp]. */
  readonly promptPadding: Value;
  /** float32 [Ta]: 0 for the answer's columns before this token, a large negative number from it on. */
  readonly answerPadding: Value;
  readonly prompt: readonly LayerCache[];
  /** Per layer keys transposed [P * K * G, D, Ta] and values [P * K * G, Ta, D]. */
  readonly answers: readonly LayerCache[];
}

export function stepInputs(graph: Graph, config: DecoderConfig, shape: BatchShape): StepInputs {
  const { prompts, answersPerPrompt, promptColumns, answerColumns } = shape;
  const { keyValueHeads: k, depth } = headsOf(config);
  const layers = Array.from({ length: config.num_hidden_layers }, (_, i) => i);
  const batch = prompts * k * answersPerPrompt;
  return {
    ids: graph.input('ids', [prompts, answersPerPrompt], 'int64'),
    positions: graph.input('positions', [batch, 1], 'int64'),
    promptPadding: graph.input('prompt_padding', [prompts, promptColumns]),
    answerPadding: graph.input('answer_padding', [answerColumns]),
    prompt: layers.map((i) => ({
      keysTransposed: graph.input(`prompt_keys.${i}`, [prompts, k, depth, promptColumns]),
      values: graph.input(`prompt_values.${i}`, [prompts, k, promptColumns, depth]),
    })),
    answers: layers.map((i) => ({
      keysTransposed: graph.input(`answer_keys.${i}`, [batch, depth, answerColumns]),
      values: graph.input(`answer_values.${i}`, [batch, answerColumns, depth]),
    })),
  };
}

/** Logits [P * G, vocabulary] of the next token, and per layer this column's keys and values [P * K * G, 1, D]. */
export function decodeStep(
  config: DecoderConfig,
  shape: BatchShape,
  inputs: StepInputs,
): { logits: Value; keys: Value[]; values: Value[] } {
  const { graph } = inputs.ids;
  const { prompts, answersPerPrompt, promptColumns, answerColumns } = shape;
  const heads = headsOf(config);
  const batch = prompts * heads.keyValueHeads * answersPerPrompt;
  const rotary = new RotaryTables(graph, config, promptColumns + answerColumns);
  const { positions } = inputs;
  const padding = reshape(inputs.promptPadding, [prompts, 1, 1, promptColumns]);
  const keys: Value[] = [];
  const values: Value[] = [];
  const attend: Attend = (layer, index, normalised) => {
    const split = (which: 'k_proj' | 'v_proj'): Value =>
      answerHeads(project(config, layer, normalised, which), prompts, answersPerPrompt, heads);
    const key = reshape(rotary.keys(split('k_proj'), positions), [batch, 1, heads.depth]);
    const value = reshape(split('v_proj'), [batch, 1, heads.depth]);
    keys.push(key);
    values.push(value);
    const queries = answerQueries(project(config, layer, normalised, 'q_proj'), prompts, answersPerPrompt, heads);
    return attendAnswers(
      rotary.queries(queries, positions),
      { ...inputs.prompt[index], padding },
      [
        { ...inputs.answers[index], mask: inputs.answerPadding },
        { keysTransposed: reshape(key, [batch, heads.depth, 1]), values: value, mask: null },
      ],
      heads,
    );
  };
  let rows = embed(graph, config, inputs.ids);
  for (let index = 0; index < config.num_hidden_layers; index++) rows = block(config, index, rows, attend, (x) => x);
  return { logits: logitsOf(config, rows), keys, values };
}
