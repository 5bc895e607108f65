/** Helpers that networks made of blocks share. */
import type { Value } from '../graph/ir.js';

/** Wraps a block, for example to recompute it in the backward pass. */
export type BlockWrapper = (name: string, x: Value, build: (x: Value) => Value) => Value;
