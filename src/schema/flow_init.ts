/** A flow transformer from random weights. */
import { z } from 'zod';
import { count, positiveInteger, result } from './mark.js';

export const flowInitDescription =
  "A flow transformer from random weights: its architecture in the words of diffusers' FluxTransformer2DModel.";

/** Fields that every recipe has in common. */
export const flowInitFields = {
  num_layers: result('Joint blocks, over the tokens of picture and text.', positiveInteger),
  num_single_layers: result('Single-stream blocks behind them.', count.default(0)),
  attention_head_dim: result('Width of one head.', positiveInteger),
  num_attention_heads: result('Heads of a block.', positiveInteger),
  patch: result('Side of the square of latents that one token stands for.', positiveInteger),
  prediction: result(
    'What its last layer gives: the velocity, or the clean latents that it leads to.',
    z.enum(['velocity', 'sample']).default('velocity'),
  ),
};
