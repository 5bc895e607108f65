/** Settings of edit_response on a few edits of the tiny world: the least that a whole task needs. */
import type { EditResponseSettings } from '../../../src/recipes/edit_response/settings.js';
import type { FluxConfig, QwenImageConfig } from '../../../src/compute/nets/flow/config.js';
import { config as flow, ofQwen } from '../../train/policies/flow/small_flow.js';
import { smallConfig } from '../small_config.js';
import { exactly, smallRun, smallSeeing } from '../small_policy.js';

export const { problemsOf, smallSettings } = smallConfig<EditResponseSettings>({
  ...smallRun,
  task: 'edit_response',
  policy: {
    init: smallSeeing,
    model_context_size: 64,
    pixels: { image: exactly },
    engine: { provider: 'cpu', threads: 1 },
  },
  prompt: { chat: false },
  data: {
    train: [],
    validation: [],
    tiny: { counts: { train: 3, prompts: 4, validation: 3, truth: 2 } },
  },
  environment: { type: 'model', model: 'drawn', num_steps: 2 },
  reward: { endpoint: 'embedded', terms: [{ name: 'align_quality', weight: 1 }] },
});

/** Side of the square of pixels that a token of `drawing` stands for. */
export const PATCH = 4;
/** A flow model that is told by the states of the policy above, and shown the image beside its own pixels. */
export const drawing: FluxConfig = {
  ...flow,
  in_channels: 2 * 3 * PATCH ** 2,
  out_channels: 3 * PATCH ** 2,
  joint_attention_dim: smallSeeing.hidden_size,
  ip_adapter: null,
};
/** One of Qwen-Image-Edit-2511's form, which is shown any number of images as further tokens. */
export const joining: QwenImageConfig = {
  ...ofQwen,
  patch_size: PATCH,
  in_channels: 3 * PATCH ** 2,
  joint_attention_dim: smallSeeing.hidden_size,
  zero_cond_t: true,
};
