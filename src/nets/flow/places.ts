/** Positions that are added to the image's tokens: those of Stable Diffusion 3, of which a picture has the middle of a square table. */
import { add, gather, reshape } from '../../graph/build.js';
import type { Value } from '../../graph/ir.js';
import { GraphError } from '../../core/errors.js';
import { innerWidth, type Sd3Config } from './config.js';
import { POSITION_TABLE } from './names.js';

const THETA = 10_000;

/**
 * The table [size^2, W] of a fresh model, as diffusers begins it: a quarter each of sines and cosines of the column, then of the row. Places are
 * counted in those of a picture of `sample_size`, by which it is as wide as the table.
 */
export function placesTable(config: Sd3Config): Float32Array {
  const { pos_embed_max_size: size, sample_size, patch_size } = config;
  const width = innerWidth(config);
  const quarter = width / 4;
  const scale = Math.floor(sample_size / patch_size) / size;
  const table = new Float32Array(size ** 2 * width);
  for (let at = 0; at < size ** 2; at++) {
    [at % size, Math.floor(at / size)].forEach((place, axis) => {
      for (let i = 0; i < quarter; i++) {
        const angle = place * scale * THETA ** (-i / quarter);
        const from = at * width + 2 * axis * quarter + i;
        table[from] = Math.sin(angle);
        table[from + quarter] = Math.cos(angle);
      }
    });
  }
  return table;
}

/** Tokens [B, N, W] of a picture of rows x columns, with their positions. Raises GraphError for a picture that is larger than the table. */
export function addPlaces(
  config: Sd3Config,
  tokens: Value,
  { rows, columns }: { readonly rows: number; readonly columns: number },
): Value {
  const { graph } = tokens;
  const { pos_embed_max_size: size } = config;
  const width = innerWidth(config);
  if (Math.max(rows, columns) > size) {
    throw new GraphError(`a picture of ${rows} x ${columns} tokens, and the model has positions for ${size} x ${size}`);
  }
  const table = reshape(graph.parameter(POSITION_TABLE, [1, size ** 2, width]), [size ** 2, width]);
  const [top, left] = [Math.floor((size - rows) / 2), Math.floor((size - columns) / 2)];
  const chosen = BigInt64Array.from({ length: rows * columns }, (_, n) =>
    BigInt((top + Math.floor(n / columns)) * size + left + (n % columns)),
  );
  return add(tokens, reshape(gather(table, graph.constant(chosen, [chosen.length])), [1, rows * columns, width]));
}
