/** Angles of rotary positions that are fed to a graph: with pictures they follow from a prompt's tokens, not from its columns alone. */
import type { Graph, Value } from '../../graph/ir.js';
import type { DecoderConfig } from './config.js';

/** Tables of angles given to a graph in place of those of its columns: [prompts * columns, depth / 2]. */
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
