/** Helpers that networks made of blocks share. */
import { checkpoint } from '../graph/checkpoint.js';
import type { Value } from '../graph/ir.js';

/** Wraps a block, for example to recompute it in the backward pass. */
export type BlockWrapper = (name: string, x: Value, build: (x: Value) => Value) => Value;

/** Keeps a block's input alone, and computes the block again in the backward pass. */
export const computedTwice: BlockWrapper = (name, x, build) => checkpoint(name, [x], ([inner]) => build(inner));
