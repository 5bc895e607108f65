/** Settings of video_actions on a few clips of the tiny world: the least that a whole task needs. */
import type { VideoActionsSettings } from '../../../src/recipes/video_actions/settings.js';
import { smallConfig } from '../small_config.js';
import { exactly, smallRun, smallSeeing } from '../small_policy.js';

export const { problemsOf, smallSettings } = smallConfig<VideoActionsSettings>({
  ...smallRun,
  task: 'video_actions',
  policy: {
    init: smallSeeing,
    model_context_size: 96,
    pixels: { image: exactly, video: exactly },
    engine: { provider: 'cpu', threads: 1 },
  },
  prompt: { chat: false },
  data: { train: [], validation: [], tiny: { counts: { labelled: 2, train: 4, validation: 3 } } },
  reward: { mode: 'format_accuracy' },
});
