/** Settings of edit_response on a few edits of the tiny world: the least that a whole task needs. */
import { validate } from '../../../src/config/validate.js';
import type { EditResponseSettings } from '../../../src/recipes/edit_response/settings.js';

type Sections = Readonly<Record<string, unknown>>;
type Changes = Readonly<Record<string, Sections | null>>;

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
  task: 'edit_response',
  seed: 5,
  num_iterations: 2,
  algorithm: { type: 'grpo' },
  optimizer: { learning_rate: 0.01, per_device_batch_size: 4 },
  rollout: { episodes_per_iteration: 8, generations_per_sample: 4, max_response_tokens: 8 },
  policy: { init, model_context_size: 64, pixels: { image: exactly }, engine: { provider: 'cpu', threads: 1 } },
  prompt: { chat: false },
  data: {
    train: [],
    validation: [],
    tiny: { counts: { train: 3, prompts: 4, validation: 3, truth: 2 } },
  },
  environment: { type: 'model', model: 'drawn', num_steps: 2 },
  reward: { endpoint: 'embedded', terms: [{ name: 'align_quality', weight: 1 }] },
};

/** What is wrong with a config of this recipe, sections changed; empty for a valid one. */
export function problemsOf(changes: Changes): string[] {
  const validated = validate(withChanges(changes));
  return 'problems' in validated ? validated.problems.map(({ key, message }) => `${key}: ${message}`) : [];
}

/** The settings of the config with some sections changed. */
export function smallSettings(changes: Changes = {}): EditResponseSettings {
  const validated = validate(withChanges(changes));
  if ('problems' in validated) throw new Error(JSON.stringify(validated.problems));
  return validated.settings as unknown as EditResponseSettings;
}

function withChanges(changes: Changes): Sections {
  const changed = Object.entries(changes).map(([name, fields]) => [
    name,
    fields === null ? null : { ...(config[name] as Sections | undefined), ...fields },
  ]);
  return { ...config, ...(Object.fromEntries(changed) as Sections) };
}
