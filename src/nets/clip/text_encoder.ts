/** CLIP's text half as what conditions an image model: the states of its tokens before the last layer, and its summary. */
import { z } from 'zod';
import { CheckpointError } from '../../core/errors.js';
import { gather, reshape } from '../../graph/build.js';
import type { Value } from '../../graph/ir.js';
import { causalMask } from '../decoder/attention.js';
import { layerNorm, linear } from '../layers.js';
import { clipText, fitting } from './architecture.js';
import { endPlaces } from './clip.js';
import type { ClipConfig } from './config.js';
import { towerLayers, wordTokens } from './tower.js';

/** `projection_dim`: width of the summary's projection; null: the summary is not projected. */
export type ClipTextConfig = ClipConfig['text'] & { readonly projection_dim: number | null };

const any = z.unknown().optional();
const fields = clipText.extend({ projection_dim: z.int().positive().default(512) });
const covered = z.strictObject({
  ...fields.shape,
  model_type: z.literal('clip_text_model'),
  // Of training, and of the file itself. Texts are filled up by the tokenizer.
  ...Object.fromEntries(
    [
      '_attn_implementation_autoset',
      '_name_or_path',
      'architectures',
      'attention_dropout',
      'dropout',
      'dtype',
      'initializer_factor',
      'initializer_range',
      'pad_token_id',
      'torch_dtype',
      'transformers_version',
    ].map((key) => [key, any]),
  ),
});

/**
 * Reads the config.json of a CLIPTextModel, or of one with a projection. Raises CheckpointError, naming `where`, for another kind of model and for
 * settings that are not known.
 */
export function readClipText(json: unknown, where: string, projects: boolean): ClipTextConfig {
  const issue = covered.safeParse(json).error?.issues[0] ?? fitting(fields).safeParse(json).error?.issues[0];
  if (issue !== undefined) {
    throw new CheckpointError(`CLIP: ${[...issue.path, issue.message].join(': ')}`, {
      where,
      next: 'Name the text half of a CLIP as transformers saves it.',
    });
  }
  const { projection_dim, ...text } = fields.parse(json);
  return { ...text, projection_dim: projects ? projection_dim : null };
}

/** Width of the summary. */
export function summaryWidth({ projection_dim, hidden_size }: ClipTextConfig): number {
  return projection_dim ?? hidden_size;
}

/** Of ids [1, T]: the states [1, T, W] that go into the last layer, and what that makes of the token that ends the text, [1, E]. */
export function encodeClipText(
  config: ClipTextConfig,
  ids: Value,
): { readonly states: Value; readonly summary: Value } {
  const [, length] = ids.shape as [number, number];
  const { hidden_size: width, num_hidden_layers: layers, layer_norm_eps: eps } = config;
  const mask = causalMask(ids.graph, 1, length);
  const x = wordTokens(config, 'text_model', ids);
  const before = reshape(towerLayers(config, 'text_model', x, mask, 0, layers - 1), [1, length, width]);
  const last = towerLayers(config, 'text_model', before, mask, layers - 1, layers);
  const end = gather(layerNorm(last, 'text_model.final_layer_norm', eps), endPlaces(ids, config.eos_token_id));
  const { projection_dim: space } = config;
  return { states: before, summary: space === null ? end : linear(end, 'text_projection', space) };
}
