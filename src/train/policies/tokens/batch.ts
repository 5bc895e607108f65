/** Packs prompts and answers into the decoder's arrays. */
import { InternalError, must } from '../../../core/errors.js';
import type { VisionInput } from '../../../models/images/vision_input.js';
import type { BatchShape, TokenRows } from '../../../compute/nets/decoder/inputs.js';
import type { Answer, Group } from '../policy.js';
import { createHash } from 'node:crypto';
import type { TokenPrompt } from '../../../models/tokenizer/format.js';

/** Added to attention scores of padding. It acts like minus infinity but is finite. */
export const PADDING = -1e9;

/** A task's request to a token policy. Prompts of tasks have more fields. */
export interface TokenRequest<P extends TokenPrompt = TokenPrompt> {
  readonly tokens: P;
}

export interface TokenAnswer extends Answer {
  /** Includes the end token if it was reached. */
  readonly ids: Int32Array;
  /** Identifies the weights that sampled it, if a training server sampled. */
  readonly sampledBy?: string;
}

/** A prompt with some of its answers. The unit of packing. */
export type TokenGroup = Group<TokenRequest, Pick<TokenAnswer, 'ids'>>;

/** The arrays of a whole-sequence graph. `targets` is int64 [P * G * Ta], padded with 0. */
export interface PackedBatch {
  readonly prompt_ids: BigInt64Array;
  readonly prompt_padding: Float32Array;
  readonly answer_ids: BigInt64Array;
  readonly targets: BigInt64Array;
}

/** The smallest step between sizes. */
const GRANULE = 4;

/**
 * Rounds a size up, so that few different graphs are compiled. There are eight equal steps between powers of two, and
 * no size is below 4. At most an eighth of a large size is padding.
 */
export function roundUp(size: number): number {
  const below = 2 ** (31 - Math.clz32(Math.max(1, size - 1)));
  const granule = Math.max(GRANULE, below / 8);
  return Math.max(GRANULE, Math.ceil(size / granule) * granule);
}

/** Number of prompt columns. Excludes each prompt's last token, which is in the answers' columns. */
export function promptColumns(prompts: readonly TokenPrompt[]): number {
  return roundUp(Math.max(...prompts.map((prompt) => prompt.ids.length - 1)));
}

/** Fills [P, Tp] with prompts without their last token, aligned right. Rows without a prompt are all padding. */
export function packPrompts(
  prompts: readonly TokenPrompt[],
  count: number,
  columns: number,
): Pick<PackedBatch, 'prompt_ids' | 'prompt_padding'> {
  const ids = new BigInt64Array(count * columns);
  const padding = new Float32Array(count * columns).fill(PADDING);
  prompts.forEach((prompt, row) => {
    const start = (row + 1) * columns - (prompt.ids.length - 1);
    if (start < row * columns) throw new InternalError(`a prompt of ${prompt.ids.length} tokens in ${columns} columns`);
    for (let i = 0; i + 1 < prompt.ids.length; i++) {
      ids[start + i] = BigInt(prompt.ids[i]);
      padding[start + i] = 0;
    }
  });
  return { prompt_ids: ids, prompt_padding: padding };
}

/** Packs groups for a graph of `shape`. Missing groups and answers are padding. */
export function packSequences(groups: readonly TokenGroup[], shape: BatchShape): PackedBatch {
  const { prompts, answersPerPrompt, promptColumns: tp, answerColumns: ta } = shape;
  const size = prompts * answersPerPrompt * ta;
  const answerIds = new BigInt64Array(size);
  const targets = new BigInt64Array(size);
  groups.forEach(({ prompt, answers }, p) => {
    const last = prompt.tokens.ids.at(-1);
    if (last === undefined || answers.length > answersPerPrompt) {
      throw new InternalError('a group does not fit its batch');
    }
    answers.forEach(({ ids }, g) => {
      if (ids.length > ta) throw new InternalError(`an answer of ${ids.length} tokens in ${ta} columns`);
      const at = (p * answersPerPrompt + g) * ta;
      answerIds[at] = BigInt(last);
      for (let t = 0; t < ids.length; t++) {
        targets[at + t] = BigInt(ids[t]);
        if (t + 1 < ids.length) answerIds[at + t + 1] = BigInt(ids[t]);
      }
    });
  });
  return {
    ...packPrompts(
      groups.map(({ prompt }) => prompt.tokens),
      prompts,
      tp,
    ),
    answer_ids: answerIds,
    targets,
  };
}

/** Maps rows to columns for one part of a batch: its prompts or its answers. */
export class RowTables {
  /** The column of each row. Rows without a token map to a padding column. */
  readonly columnOf: Int32Array;
  /** The row of each column. Padding columns map to a row without a token. */
  readonly rowOf: Int32Array;

  /**
   * @param tokens columns with a token, ascending. Raises InternalError if there are too few rows or padding columns.
   */
  constructor(tokens: readonly number[], columns: number, rows: number) {
    const gap = tokens.findIndex((column, row) => column !== row);
    const padding = gap === -1 ? tokens.length : gap;
    if (tokens.length >= rows || padding >= columns) {
      throw new InternalError(
        `${tokens.length} tokens in ${rows} rows and ${columns} columns: none is left for padding`,
      );
    }
    this.columnOf = new Int32Array(rows).fill(padding);
    this.rowOf = new Int32Array(columns).fill(tokens.length);
    tokens.forEach((column, row) => {
      this.columnOf[row] = column;
      this.rowOf[column] = row;
    });
  }

  /** Gathers one value per row from one value per column. */
  ofRows<T extends Float32Array | BigInt64Array>(ofColumns: T): T {
    return taken(ofColumns, this.columnOf);
  }

  /** Gathers one value per column from one value per row. Values of padding are undefined. */
  ofColumns<T extends Float32Array | BigInt64Array>(ofRows: T): T {
    return taken(ofRows, this.rowOf);
  }
}

function taken<T extends Float32Array | BigInt64Array>(from: T, places: Int32Array): T {
  const out = new (from.constructor as new (length: number) => T)(places.length);
  for (let i = 0; i < places.length; i++) out[i] = from[places[i]];
  return out;
}

export interface SequenceTables {
  readonly prompts: RowTables;
  readonly answers: RowTables;
}

/** The row tables of a micro-batch in a graph of this shape. */
export function sequenceTables(groups: readonly TokenGroup[], shape: BatchShape): SequenceTables {
  const { prompts, answersPerPrompt, promptColumns: tp, answerColumns: ta } = shape;
  const tokenRows = must(shape.tokenRows, 'rows for tokens alone');
  const inPrompts = groups.flatMap(({ prompt }, p) => {
    const tokens = prompt.tokens.ids.length - 1;
    return Array.from({ length: tokens }, (_, i) => (p + 1) * tp - tokens + i);
  });
  const inAnswers = groups.flatMap(({ answers }, p) =>
    answers.flatMap(({ ids }, g) => Array.from(ids, (_, t) => (p * answersPerPrompt + g) * ta + t)),
  );
  return {
    prompts: new RowTables(inPrompts, prompts * tp, tokenRows.prompts),
    answers: new RowTables(inAnswers, prompts * answersPerPrompt * ta, tokenRows.answers),
  };
}

/** A batch's arrays with one value per row, and the tables, as inputs of a graph. */
export function withoutPadding(
  { prompt_ids, prompt_padding, answer_ids, targets }: PackedBatch,
  { prompts, answers }: SequenceTables,
): Record<string, Float32Array | BigInt64Array> {
  return {
    prompt_ids: prompts.ofRows(prompt_ids),
    prompt_padding,
    answer_ids: answers.ofRows(answer_ids),
    targets: answers.ofRows(targets),
    prompt_rows: BigInt64Array.from(prompts.rowOf, BigInt),
    prompt_columns: BigInt64Array.from(prompts.columnOf, BigInt),
    answer_rows: BigInt64Array.from(answers.rowOf, BigInt),
    answer_columns: BigInt64Array.from(answers.columnOf, BigInt),
  };
}

/**
 * Numbers of rows that fit any `count` of these pieces (prompts with some of their answers), plus one.
 * The numbers do not depend on which pieces are computed together, so that a token has the same bits in every
 * micro-batch.
 */
export function rowsFor(pieces: readonly TokenGroup[], count: number): TokenRows {
  const most = (sizes: readonly number[]): number => {
    const largest = [...sizes].sort((a, b) => b - a).slice(0, count);
    return roundUp(1 + largest.reduce((sum, size) => sum + size, 0));
  };
  return {
    prompts: most(pieces.map(({ prompt }) => prompt.tokens.ids.length - 1)),
    answers: most(pieces.map(({ answers }) => answers.reduce((sum, { ids }) => sum + ids.length, 0))),
  };
}

export class ImageDigests {
  readonly #known = new WeakMap<VisionInput, string>();

  /** SHA-256 of everything that the policy sees of a prompt's images. Null without images. */
  of({ images = [] }: Pick<TokenPrompt, 'images'>): string | null {
    if (images.length === 0) return null;
    const hash = createHash('sha256');
    for (const image of images) {
      const known = this.#known.get(image) ?? digestOfImage(image);
      this.#known.set(image, known);
      hash.update(known);
    }
    return hash.digest('hex');
  }
}

function digestOfImage({ kind, frames, grid, secondsPerStep }: VisionInput): string {
  const hash = createHash('sha256').update(JSON.stringify([kind, grid, secondsPerStep, frames.length]));
  for (const { width, height, data } of frames) hash.update(`${width}x${height} `).update(data);
  return hash.digest('hex');
}
