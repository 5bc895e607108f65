/** Leaves padding out of whole sequences: rows for tokens alone, in the order of their columns, and the tables that lead from one to the other. */
import { InternalError, must } from '../../core/errors.js';
import type { BatchShape, TokenRows } from '../../nets/decoder/inputs.js';
import { roundUp, type PackedBatch, type TokenGroup } from './batch.js';

/** The rows of one part of a batch, its prompts or its answers. */
export class RowTables {
  /** The column of each row; that of a row without a token is padding. */
  readonly columnOf: Int32Array;
  /** The row of each column; that of padding has no token. */
  readonly rowOf: Int32Array;

  /** @param tokens the columns that hold tokens, in ascending order. Raises InternalError where rows or padding do not suffice. */
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

  /** One value for each row, from one for each column. */
  ofRows<T extends Float32Array | BigInt64Array>(ofColumns: T): T {
    return taken(ofColumns, this.columnOf);
  }

  /** One value for each column, from one for each row; those of padding mean nothing. */
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

/** The tables of a micro-batch in a graph of this shape. */
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

/** A batch's arrays with a value for each row, and the tables as a graph's inputs. */
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
 * Rows that hold any `count` of these pieces, with one to spare: prompts with some of their answers. It does not depend on which pieces are computed
 * together, so that a token has the same bits in every micro-batch.
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
