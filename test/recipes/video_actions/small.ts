/** Settings of video_actions on a few clips of the tiny world: the least that a whole task needs. */
import { validate } from '../../../src/config/validate.js';
import type { VideoActionsSettings } from '../../../src/recipes/video_actions/settings.js';

type Sections = Readonly<Record<string, unknown>>;

const init = {
  hidden_size: 16,
  intermediate_size: 24,
  num_hidden_layers: 1,
  num_attention_heads: 2,
  num_key_value_heads: 1,
  vision: { depth: 1, hidden_size: 16, intermediate_size: 16, num_heads: 2, patch_size: 4 },
};
const exactly = { min_pixels: 1024, max_pixels: 1024 };

const config: Sections = {
  run_name: 'small',
  task: 'video_actions',
  seed: 5,
  num_iterations: 2,
  algorithm: { type: 'grpo' },
  optimizer: { learning_rate: 0.01, per_device_batch_size: 4 },
  rollout: { episodes_per_iteration: 8, generations_per_sample: 4, max_response_tokens: 8 },
  policy: {
    init,
    model_context_size: 96,
    pixels: { image: exactly, video: exactly },
    engine: { provider: 'cpu', threads: 1 },
  },
  prompt: { chat: false },
  data: { train: [], validation: [], tiny: { counts: { labelled: 2, train: 4, validation: 3 } } },
  reward: { mode: 'format_accuracy' },
};

/** What is wrong with a config of this recipe, sections changed; empty for a valid one. */
export function problemsOf(changes: Readonly<Record<string, Sections>>): string[] {
  const validated = validate(withChanges(changes));
  return 'problems' in validated ? validated.problems.map(({ key, message }) => `${key}: ${message}`) : [];
}

/** The settings of the config with some sections changed. */
export function smallSettings(changes: Readonly<Record<string, Sections>> = {}): VideoActionsSettings {
  const validated = validate(withChanges(changes));
  if ('problems' in validated) throw new Error(JSON.stringify(validated.problems));
  return validated.settings as unknown as VideoActionsSettings;
}

function withChanges(changes: Readonly<Record<string, Sections>>): Sections {
  const changed = Object.entries(changes).map(([name, fields]) => [
    name,
    { ...(config[name] as Sections | undefined), ...fields },
  ]);
  return { ...config, ...(Object.fromEntries(changed) as Sections) };
}
