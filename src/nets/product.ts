/** Matrix products that are described before they are computed, so that one of many columns can be computed piece by piece. */
import { add, gemm } from '../graph/build.js';
import type { Value } from '../graph/ir.js';

/** scale * rows table^T, [N, M]. */
export interface Product {
  /** [N, K] */
  readonly rows: Value;
  /** [M, K], stored as the weights of a linear layer. */
  readonly table: Value;
  readonly scale: number;
}

/** The sum [N, M] of products of the same shape, and of a bias [M] on each row. */
export function sumOf(products: readonly Product[], bias?: Value): Value {
  return products
    .map(({ rows, table, scale }, i) =>
      gemm(rows, table, { transB: true, alpha: scale, ...(i === 0 && bias !== undefined ? { bias } : {}) }),
    )
    .reduce(add);
}
