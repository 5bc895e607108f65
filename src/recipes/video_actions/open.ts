/** Opens `video_actions`: a vision-language model that answers questions about videos in text. */
import type { TrainingContext } from '../../train/context.js';
import type { OpenRecipe } from '../recipe.js';
import type { Training } from '../../train/loop.js';
import { startingVisionModel } from '../shared/images/vision.js';
import { openWordsTraining } from '../shared/words/training.js';
import { clipData } from '../../data/tiny/clips.js';
import { checkFirstVideo, openQuestions } from '../../data/conversations.js';
import { hasFfmpeg, requireFfmpeg } from '../../data/video/ffmpeg.js';
import { checkOf, datasetChecks, languageModelChecks } from '../shared/checks.js';
import type { VideoActionsSettings } from './settings.js';
import { openVideoTask, sampleQuestions } from './task.js';

async function open(settings: VideoActionsSettings, context: TrainingContext): Promise<Training> {
  const { task, seeing } = await openVideoTask(settings, context.resolveRun);
  return openWordsTraining(settings, context, task, {
    model: () => startingVisionModel(settings, task.format, seeing, context.resolveRun),
    imageInputs: seeing,
  });
}

const ffmpegCheck = checkOf('ffmpeg', requireFfmpeg);

/** Checks that the samples of a list are complete, and opens the first sample's video. */
export const questionsCheck = checkOf(
  'questions',
  (path: string, media: string | null, { min, max, interval }: VideoActionsSettings['data']['frames']) => {
    const questions = openQuestions(path, media);
    // Another check reports a missing ffmpeg.
    if (hasFfmpeg()) checkFirstVideo(questions, { minFrames: min, maxFrames: max, interval });
  },
);

export const videoActions: OpenRecipe<VideoActionsSettings> = {
  makeData: clipData.make,
  checks: (settings) => {
    const { data, policy, prompt } = settings;
    return [
      ffmpegCheck(),
      ...[...data.train, ...data.validation].flatMap((source) =>
        datasetChecks(settings, (path) => questionsCheck(path, source.media, data.frames), [source]),
      ),
      ...languageModelChecks(policy, prompt),
    ];
  },
  open,
  promptRoom: async (settings, resolveRun) => (await openVideoTask(settings, resolveRun)).task.room(),
  openTask: async (settings, resolveRun) => (await openVideoTask(settings, resolveRun)).task,
  sampleRows: sampleQuestions,
};
