/** Settings of text_answers for a folder of rows: the least that a whole task needs. */
import type { TextAnswersSettings } from '../../../src/recipes/text_answers/settings.js';
import { smallConfig } from '../small_config.js';
import { smallDecoder, smallRun } from '../small_policy.js';

export const { problemsOf, smallSettings } = smallConfig<TextAnswersSettings>({
  ...smallRun,
  task: 'text_answers',
  policy: { init: smallDecoder, model_context_size: 64, engine: { provider: 'cpu', threads: 1 } },
  data: { train: [], validation: [], tiny: {} },
  reward: { mode: 'word_overlap' },
});
