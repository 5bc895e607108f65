/**
 * A Llama/Qwen2-style decoder. One description of a block makes three graphs: whole sequences (training and
 * log-probabilities), the prefill of prompts, and one cached decoding step. They differ only in the attention of a
 * block.
 */
import { must } from '../../../core/errors.js';
import { add, concat, mul, reshape, slice } from '../../graph/build.js';
import type { Graph, Shape, Value } from '../../graph/ir.js';
import { type BlockWrapper, embedding, geglu, linear, rmsNorm, swiglu } from '../layers.js';
import {
  attendAnswers,
  attendPrompts,
  attendSequences,
  causalMask,
  promptWindowMask,
  rotaryOf,
  swapLastAxes,
} from './attention.js';
import {
  type BatchShape,
  givenAngles,
  type GivenAngles,
  type LayerCache,
  type PromptShape,
  rowsOf,
  type SequenceInputs,
  type StepInputs,
} from './inputs.js';
import { type Activation, blockNorms, type DecoderConfig, hasVision, windowOf } from './config.js';
import { HeadOrder, headsOf, keysOf } from './heads.js';
import { type Product, productsOf, sumOf } from '../lora.js';
import { type SeenRows, withImageTokens } from '../vision/encoder.js';

/**
 * Values that layers with the same window share. They are made before the layers, because a layer may be recomputed.
 */
function perWindow<T>(
  config: DecoderConfig,
  columns: number,
  make: (window: number | null) => T,
): (layer: number) => T {
  // Computed at once: a layer's first use may be within a checkpointed block, whose inner values other layers cannot
  // use.
  const layers = Array.from({ length: config.num_hidden_layers }, (_, layer) => windowOf(config, layer, columns));
  const made = new Map([...new Set(layers)].map((window) => [window, make(window)]));
  return (layer) => must(made.get(layers[layer] ?? null), `the window of layer ${layer}`);
}

/** Attention of one block: from normalized rows to mixed rows, before the output projection. */
type Attend = (layer: string, index: number, normalized: Value) => Value;

const plain: BlockWrapper = (_name, x, build) => build(x);

/** The product of a gate and its rows. */
const gates: Readonly<Record<Activation, (gate: Value, up: Value) => Value>> = { silu: swiglu, gelu_tanh: geglu };

function norm(config: DecoderConfig, x: Value, name: string): Value {
  return rmsNorm(x, name, config.rms_norm_eps, config.norm_scale);
}

/** x + attention, then x + gated feed-forward. `keep` first drops the rows that no later layer reads. */
function block(config: DecoderConfig, index: number, x: Value, attend: Attend, keep: (rows: Value) => Value): Value {
  const layer = `model.layers.${index}`;
  const { adapter } = config;
  return x.graph.scope(`layers.${index}`, () => {
    const norms = blockNorms[config.block_norms ?? 'before'];
    const normed = (rows: Value, name: string | null): Value =>
      name === null ? rows : norm(config, rows, `${layer}.${name}`);
    const mixed = attend(layer, index, normed(x, norms.attention[0]));
    const kept = keep(x);
    const out = linear(mixed, `${layer}.self_attn.o_proj`, config.hidden_size, config.attention_output_bias, adapter);
    const attended = add(kept, normed(out, norms.attention[1]));
    const [gate, up] = gateAndUp(config, layer, normed(attended, norms.feedForward[0]));
    const inner = gates[config.activation ?? 'silu'](gate, up);
    const down = linear(inner, `${layer}.mlp.down_proj`, config.hidden_size, config.mlp_bias, adapter);
    return add(attended, normed(down, norms.feedForward[1]));
  });
}

/** The gate and the rows that it multiplies. */
function gateAndUp(config: DecoderConfig, layer: string, rows: Value): readonly [Value, Value] {
  const { intermediate_size: inner, mlp_bias, adapter } = config;
  const of = (name: string, width = inner): Value => linear(rows, `${layer}.mlp.${name}`, width, mlp_bias, adapter);
  if (config.fused_projections !== true) return [of('gate_proj'), of('up_proj')];
  const both = of('gate_up_proj', 2 * inner);
  return [slice(both, 1, 0, inner), slice(both, 1, inner, 2 * inner)];
}

/** The norm of queries and keys, if the model has one, by the projection that it follows. */
const headNorms = { q_proj: 'q_norm', k_proj: 'k_norm', v_proj: null } as const;

function project(config: DecoderConfig, layer: string, rows: Value, which: keyof typeof headNorms): Value {
  const heads = which === 'q_proj' ? config.num_attention_heads : config.num_key_value_heads;
  const { attention_bias: bias, adapter } = config;
  const projected =
    config.fused_projections === true
      ? fusedProjections(config, layer, rows)[which]
      : linear(rows, `${layer}.self_attn.${which}`, heads * config.head_dim, bias, adapter);
  const headNorm = headNorms[which];
  if (config.qk_norm === undefined || headNorm === null) return projected;
  if (config.qk_norm === 'projection') return norm(config, projected, `${layer}.self_attn.${headNorm}`);
  const perHead = reshape(projected, [rows.shape[0] * heads, config.head_dim]);
  return reshape(norm(config, perHead, `${layer}.self_attn.${headNorm}`), projected.shape);
}

type Projections = Readonly<Record<keyof typeof headNorms, Value>>;

/** The parts of `qkv_proj` by the rows that it projected. A layer asks for each part, and projects its rows once. */
const fused = new WeakMap<Value, Projections>();

function fusedProjections(config: DecoderConfig, layer: string, rows: Value): Projections {
  const found = fused.get(rows);
  if (found !== undefined) return found;
  const queries = config.num_attention_heads * config.head_dim;
  const keys = config.num_key_value_heads * config.head_dim;
  const end = queries + 2 * keys;
  const all = linear(rows, `${layer}.self_attn.qkv_proj`, end, config.attention_bias, config.adapter);
  const parts = {
    q_proj: slice(all, 1, 0, queries),
    k_proj: slice(all, 1, queries, queries + keys),
    v_proj: slice(all, 1, queries + keys, end),
  };
  fused.set(rows, parts);
  return parts;
}

function embed(graph: Graph, config: DecoderConfig, ids: Value): Value {
  const rows = embedding(graph, 'model.embed_tokens', ids, config.vocab_size, config.hidden_size);
  return config.embedding_scale === undefined ? rows : mul(rows, graph.scalar(config.embedding_scale));
}

/** Rows of ids, prompts first, with their images if the decoder has a vision encoder. */
function embedSeen(config: DecoderConfig, ids: Value, shape: PromptShape, wrap?: BlockWrapper): SeenRows {
  const words = embed(ids.graph, config, ids);
  if (!hasVision(config)) return { rows: words, added: [] };
  return withImageTokens(words, config, shape.prompts, must(shape.images, 'the shape of images'), wrap);
}

/** The input of the block after block `index`, from that block's output. */
function afterBlock({ added }: SeenRows, index: number, rows: Value): Value {
  return index < added.length ? add(rows, added[index]) : rows;
}

/** A decoder with a vision encoder takes the angles of its columns as inputs, because they depend on the images. */
function anglesOf(graph: Graph, config: DecoderConfig, prompts: number, columns: number): GivenAngles | null {
  return hasVision(config) ? givenAngles(graph, config, prompts, columns) : null;
}

/** Final norm and head: rows [N, width] to the products whose sum are the logits [N, vocabulary]. */
function headOf(config: DecoderConfig, rows: Value): readonly Product[] {
  const normalized = norm(config, rows, 'model.norm');
  const { tie_word_embeddings: tied, vocab_size, hidden_size, adapter } = config;
  const table = rows.graph.parameter(tied ? 'model.embed_tokens.weight' : 'lm_head.weight', [vocab_size, hidden_size]);
  return productsOf(normalized, table, 'lm_head', tied ? undefined : adapter);
}

/** Logits [rows of answers, vocabulary] of the answers' tokens, for whole sequences. */
export function sequenceLogits(config: DecoderConfig, shape: BatchShape, inputs: SequenceInputs): Value {
  return sumOf(sequenceHead(config, shape, inputs));
}

/** The products whose sum are the logits of `sequenceLogits`. */
export function sequenceHead(
  config: DecoderConfig,
  shape: BatchShape,
  inputs: SequenceInputs,
  wrap: BlockWrapper = plain,
): readonly Product[] {
  return headOf(config, sequenceRows(config, shape, inputs, 'answers', wrap));
}

/** The head's input for every row, [rows, width]: the prompts', then the answers'. */
export function hiddenStates(config: DecoderConfig, shape: BatchShape, inputs: SequenceInputs): Value {
  return norm(config, sequenceRows(config, shape, inputs, 'all', plain), 'model.norm');
}

/** The rows of the last block: of all tokens or only of the answers. */
function sequenceRows(
  config: DecoderConfig,
  shape: BatchShape,
  inputs: SequenceInputs,
  selected: 'answers' | 'all',
  wrap: BlockWrapper,
): Value {
  const { graph } = inputs.promptIds;
  const { prompts, answersPerPrompt, promptColumns, answerColumns } = shape;
  const heads = headsOf(config);
  const { prompts: promptRows } = rowsOf(shape);
  const columns = promptColumns + answerColumns;
  const rotaryAt = rotaryOf(graph, config, columns, anglesOf(graph, config, prompts, columns));
  const padding = reshape(inputs.promptPadding, [prompts, 1, 1, promptColumns]);
  const masksOf = perWindow(config, columns, (window) => ({
    prompts: causalMask(graph, heads.queriesPerHead, promptColumns, window),
    answers: causalMask(graph, heads.queriesPerHead, answerColumns, window),
    promptsOfAnswers:
      window === null
        ? padding
        : add(padding, promptWindowMask(graph, answersPerPrompt * heads.queriesPerHead * answerColumns, shape, window)),
  }));
  const last = config.num_hidden_layers - 1;
  const answersOnly = (rows: Value): Value => slice(rows, 0, promptRows, rows.shape[0]);

  const k = heads.keyValueHeads;
  const batch = prompts * k * answersPerPrompt;
  const promptPart = { prompts, answers: 1, columns: promptColumns };
  const answerPart = { prompts, answers: answersPerPrompt, columns: answerColumns };
  const { prompts: ofPrompt = null, answers: ofAnswer = null } = inputs.places ?? {};
  const promptKeys = new HeadOrder(graph, promptPart, keysOf(heads), 0, ofPrompt);
  const answerKeys = new HeadOrder(graph, answerPart, keysOf(heads), promptRows, ofAnswer);
  const promptQueries = new HeadOrder(graph, promptPart, heads, 0, ofPrompt);
  const answerQueries = new HeadOrder(graph, answerPart, heads, promptRows, ofAnswer);
  // After the last block only the answers' rows are read, so prompts need no queries there.
  const answerQueriesAlone = new HeadOrder(graph, answerPart, heads, 0, ofAnswer);

  const attend: Attend = (layer, index, normalized) => {
    const masks = masksOf(index);
    const rotary = rotaryAt(index);
    const keyRows = project(config, layer, normalized, 'k_proj');
    const valueRows = project(config, layer, normalized, 'v_proj');
    const promptShape = [prompts, k, promptColumns, heads.depth];
    const keys = rotary.keys(promptKeys.split(keyRows, promptShape), 0);
    const values = promptKeys.split(valueRows, promptShape);
    const answerShape = [batch, answerColumns, heads.depth];
    const ownKeys = rotary.keys(answerKeys.split(keyRows, [batch, 1, answerColumns, heads.depth]), promptColumns);
    const isLast = index === last && selected === 'answers';
    const queryRows = project(config, layer, isLast ? answersOnly(normalized) : normalized, 'q_proj');
    const order = isLast ? answerQueriesAlone : answerQueries;
    const queries = order.split(queryRows, [batch, heads.queriesPerHead, answerColumns, heads.depth]);
    const answers = attendSequences(
      rotary.queries(queries, promptColumns),
      { keys, values, mask: masks.promptsOfAnswers },
      {
        keys: reshape(ownKeys, answerShape),
        values: answerKeys.split(valueRows, answerShape),
        mask: masks.answers,
      },
    );
    if (isLast) return HeadOrder.join([{ order, x: answers }]);
    const ofPrompts = promptQueries.split(queryRows, [prompts * k, heads.queriesPerHead, promptColumns, heads.depth]);
    const mixed = attendPrompts(rotary.queries(ofPrompts, 0), keys, values, padding, masks.prompts);
    return HeadOrder.join([
      { order: promptQueries, x: mixed },
      { order, x: answers },
    ]);
  };

  const ids = concat([reshape(inputs.promptIds, [promptRows]), reshape(inputs.answerIds, [inputs.answerIds.size])], 0);
  const seen = embedSeen(config, ids, shape, wrap);
  let { rows } = seen;
  for (let index = 0; index <= last; index++) {
    const keep = index === last && selected === 'answers' ? answersOnly : (x: Value): Value => x;
    const output = wrap(`layers.${index}`, rows, (x) => block(config, index, x, attend, keep));
    rows = afterBlock(seen, index, output);
  }
  return rows;
}

type PromptInputs = Pick<SequenceInputs, 'promptIds' | 'promptPadding'>;

/** Keys [P, K, Tp, D] and values of one layer. */
interface KeysAndValues {
  readonly keys: Value;
  readonly values: Value;
}

/** The attention of prompts without answers, in two halves. */
function promptAttention(config: DecoderConfig, shape: PromptShape, { promptIds, promptPadding }: PromptInputs) {
  const { graph } = promptIds;
  const { prompts, promptColumns: columns } = shape;
  const heads = headsOf(config);
  const rotaryAt = rotaryOf(graph, config, columns, anglesOf(graph, config, prompts, columns));
  const causalOf = perWindow(config, columns, (window) => causalMask(graph, heads.queriesPerHead, columns, window));
  const padding = reshape(promptPadding, [prompts, 1, 1, columns]);
  const k = heads.keyValueHeads;
  const part = { prompts, answers: 1, columns };
  const keyOrder = new HeadOrder(graph, part, keysOf(heads), 0);
  const queryOrder = new HeadOrder(graph, part, heads, 0);
  return {
    keysAndValues: (index: number, normalized: Value): KeysAndValues => {
      const split = (which: 'k_proj' | 'v_proj'): Value =>
        keyOrder.split(project(config, `model.layers.${index}`, normalized, which), [prompts, k, columns, heads.depth]);
      return { keys: rotaryAt(index).keys(split('k_proj'), 0), values: split('v_proj') };
    },
    attend: (index: number, normalized: Value, { keys, values }: KeysAndValues): Value => {
      const rows = project(config, `model.layers.${index}`, normalized, 'q_proj');
      const queries = queryOrder.split(rows, [prompts * k, heads.queriesPerHead, columns, heads.depth]);
      const mixed = attendPrompts(rotaryAt(index).queries(queries, 0), keys, values, padding, causalOf(index));
      return HeadOrder.join([{ order: queryOrder, x: mixed }]);
    },
  };
}

/** Keys and values of prompts (without their last token) for every layer. */
export function prefill(config: DecoderConfig, shape: PromptShape, inputs: PromptInputs): LayerCache[] {
  const { keysAndValues, attend } = promptAttention(config, shape, inputs);
  const caches: LayerCache[] = [];
  const cache = (index: number, normalized: Value): KeysAndValues => {
    const found = keysAndValues(index, normalized);
    caches.push({ keysTransposed: swapLastAxes(found.keys), values: found.values });
    return found;
  };
  const last = config.num_hidden_layers - 1;
  const seen = embedSeen(config, inputs.promptIds, shape);
  let { rows } = seen;
  for (let index = 0; index < last; index++) {
    const mix: Attend = (_layer, _index, normalized) => attend(index, normalized, cache(index, normalized));
    rows = afterBlock(
      seen,
      index,
      block(config, index, rows, mix, (x) => x),
    );
  }
  const [before] = blockNorms[config.block_norms ?? 'before'].attention;
  cache(last, before === null ? rows : norm(config, rows, `model.layers.${last}.${before}`));
  return caches;
}

/**
 * The rows of whole prompts after each of these numbers of blocks, joined along the width: [P Tp, width * numbers].
 * Numbers ascend. Prompts may be padded on either side. Later blocks and the final norm are no part of the graph.
 */
export function layerStates(
  config: DecoderConfig,
  shape: PromptShape,
  inputs: PromptInputs,
  numbers: readonly number[],
): Value {
  const { keysAndValues, attend } = promptAttention(config, shape, inputs);
  const mix: Attend = (_layer, index, normalized) => attend(index, normalized, keysAndValues(index, normalized));
  const found: Value[] = [];
  const seen = embedSeen(config, inputs.promptIds, shape);
  let { rows } = seen;
  for (let done = 1; done <= Math.max(...numbers); done++) {
    const output = block(config, done - 1, rows, mix, (x) => x);
    // As transformers' `hidden_states`: before images are added.
    if (numbers.includes(done)) found.push(output);
    rows = afterBlock(seen, done - 1, output);
  }
  return concat(found, 1);
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
  const angles = anglesOf(graph, config, prompts, answerColumns);
  const rotaryAt = rotaryOf(graph, config, promptColumns + answerColumns, angles);
  const { positions } = inputs;
  const padding = reshape(inputs.promptPadding, [prompts, 1, 1, promptColumns]);
  const masksOf = perWindow(config, promptColumns + answerColumns, (window) => {
    if (window === null || inputs.window === null) return { padding, answers: inputs.answerPadding };
    return {
      padding: add(padding, slice(inputs.window, 0, 0, promptColumns)),
      answers: add(inputs.answerPadding, slice(inputs.window, 0, promptColumns, promptColumns + answerColumns)),
    };
  });
  const part = { prompts, answers: answersPerPrompt, columns: 1 };
  const keyOrder = new HeadOrder(graph, part, keysOf(heads), 0);
  const queryOrder = new HeadOrder(graph, part, heads, 0);
  const keys: Value[] = [];
  const values: Value[] = [];
  const attend: Attend = (layer, index, normalized) => {
    const split = (which: 'k_proj' | 'v_proj', shape: Shape): Value =>
      keyOrder.split(project(config, layer, normalized, which), shape);
    const rotary = rotaryAt(index);
    const key = reshape(rotary.keys(split('k_proj', [batch, 1, 1, heads.depth]), positions), [batch, 1, heads.depth]);
    const value = split('v_proj', [batch, 1, heads.depth]);
    keys.push(key);
    values.push(value);
    const rows = project(config, layer, normalized, 'q_proj');
    const queries = queryOrder.split(rows, [batch, heads.queriesPerHead, 1, heads.depth]);
    const { padding: visible, answers } = masksOf(index);
    const mixed = attendAnswers(rotary.queries(queries, positions), { ...inputs.prompt[index], padding: visible }, [
      { ...inputs.answers[index], mask: answers },
      { keysTransposed: reshape(key, [batch, heads.depth, 1]), values: value, mask: null },
    ]);
    return HeadOrder.join([{ order: queryOrder, x: mixed }]);
  };
  let rows = embed(graph, config, inputs.ids);
  for (let index = 0; index < config.num_hidden_layers; index++) rows = block(config, index, rows, attend, (x) => x);
  return { logits: sumOf(headOf(config, rows)), keys, values };
}
