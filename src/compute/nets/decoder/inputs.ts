/** The inputs of a decoder's graphs, and the sizes of a batch. */
import type { Graph, Value } from '../../graph/ir.js';
import type { ImageShape } from '../vision/layout.js';
import { type DecoderConfig, windowOf } from './config.js';
import { headsOf, type TokenLayout } from './heads.js';

/** The sizes of a batch: P prompts of Tp columns, G answers of Ta columns for each. */
export interface BatchShape {
  readonly prompts: number;
  readonly answersPerPrompt: number;
  readonly promptColumns: number;
  readonly answerColumns: number;
  /**
   * The number of rows of whole sequences if only tokens have rows. Absent: one for each column, including padding.
   * Any batch has fewer tokens of prompts and of answers than these rows, and any sequence has fewer tokens than
   * columns.
   */
  readonly tokenRows?: TokenRows;
  /** The images of each prompt. Required by a decoder with a vision encoder, absent for others. */
  readonly images?: ImageShape;
}

/** Rows of prompts, and of answers. */
export interface TokenRows {
  readonly prompts: number;
  readonly answers: number;
}

/** The rows of a batch of whole sequences. */
export function rowsOf({ prompts, answersPerPrompt, promptColumns, answerColumns, tokenRows }: BatchShape): TokenRows {
  return tokenRows ?? { prompts: prompts * promptColumns, answers: prompts * answersPerPrompt * answerColumns };
}

/** The part of a batch's shape that prompts have. */
export type PromptShape = Omit<BatchShape, 'answersPerPrompt' | 'answerColumns' | 'tokenRows'>;

/** Inputs of a whole-sequence graph. */
export interface SequenceInputs {
  /** int64 [P, Tp]: prompts without their last token, padded on the left. If only tokens have rows, [rows]. */
  readonly promptIds: Value;
  /** float32 [P, Tp]: 0 on tokens, a large negative number on padding. */
  readonly promptPadding: Value;
  /**
   * int64 [P, G, Ta]: the prompt's last token, then the answer without its last token. [rows] if only tokens have
   * rows.
   */
  readonly answerIds: Value;
  /** Null if every column has a row. */
  readonly places: { readonly prompts: TokenLayout; readonly answers: TokenLayout } | null;
}

export function sequenceInputs(graph: Graph, shape: BatchShape): SequenceInputs {
  const { prompts, answersPerPrompt, promptColumns, answerColumns, tokenRows } = shape;
  const promptPadding = graph.input('prompt_padding', [prompts, promptColumns]);
  if (tokenRows === undefined) {
    return {
      promptIds: graph.input('prompt_ids', [prompts, promptColumns], 'int64'),
      promptPadding,
      answerIds: graph.input('answer_ids', [prompts, answersPerPrompt, answerColumns], 'int64'),
      places: null,
    };
  }
  const places = (part: 'prompt' | 'answer', rows: number, columns: number): TokenLayout => ({
    rows,
    rowOf: graph.input(`${part}_rows`, [columns], 'int64'),
    columnOf: graph.input(`${part}_columns`, [rows], 'int64'),
  });
  return {
    promptIds: graph.input('prompt_ids', [tokenRows.prompts], 'int64'),
    promptPadding,
    answerIds: graph.input('answer_ids', [tokenRows.answers], 'int64'),
    places: {
      prompts: places('prompt', tokenRows.prompts, prompts * promptColumns),
      answers: places('answer', tokenRows.answers, prompts * answersPerPrompt * answerColumns),
    },
  };
}

/** One layer's cache of prompts: keys transposed [P, K, D, Tp], values [P, K, Tp, D]. */
export interface LayerCache {
  readonly keysTransposed: Value;
  readonly values: Value;
}

/**
 * Inputs of a decoding step. The caches are read, never copied: the caller writes the returned columns into its arrays.
 */
export interface StepInputs {
  /** int64 [P, G]: each answer's latest token. */
  readonly ids: Value;
  /**
   * int64 [P * K * G, 1]: the column of that token, counted from the prompt's first column. With a vision encoder: its
   * row in the tables of angles, which then hold only the answers' columns.
   */
  readonly positions: Value;
  /** float32 [P, Tp]. */
  readonly promptPadding: Value;
  /** float32 [Ta]: 0 for the answer's columns before this token, a large negative number from it on. */
  readonly answerPadding: Value;
  /**
   * For layers with a window shorter than the columns: float32 [Tp + Ta], 0 for columns within the token's window, a
   * large negative number for those before it. Null without such layers.
   */
  readonly window: Value | null;
  readonly prompt: readonly LayerCache[];
  /** Per layer keys transposed [P * K * G, D, Ta] and values [P * K * G, Ta, D]. */
  readonly answers: readonly LayerCache[];
}

/** Whether any layer's window is shorter than this many columns. */
export function hasWindow(config: DecoderConfig, columns: number): boolean {
  return Array.from({ length: config.num_hidden_layers }, (_, i) => windowOf(config, i, columns)).some(
    (window) => window !== null,
  );
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
    window: hasWindow(config, promptColumns + answerColumns)
      ? graph.input('window', [promptColumns + answerColumns])
      : null,
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

/** Tables of angles that replace those of the graph's columns: [prompts * columns, depth / 2]. */
export interface GivenAngles {
  readonly cos: Value;
  readonly sin: Value;
  readonly prompts: number;
  readonly columns: number;
}

/** Inputs `rotary_cos` and `rotary_sin`: a row for each column of each prompt. */
export function givenAngles(graph: Graph, config: DecoderConfig, prompts: number, columns: number): GivenAngles {
  const shape = [prompts * columns, config.head_dim / 2];
  return { cos: graph.input('rotary_cos', shape), sin: graph.input('rotary_sin', shape), prompts, columns };
}
