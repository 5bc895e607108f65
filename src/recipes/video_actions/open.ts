/** Opens `video_actions`: a vision-language model that answers questions about videos in words. */
import type { TrainingContext, OpenRecipe } from '../../train/context.js';
import type { Training } from '../../train/loop.js';
import { startingSeeingModel } from '../shared/images/vision.js';
import { openWordsTraining } from '../shared/words/training.js';
import { clipData } from '../../data/tiny/clips.js';
import type { VideoActionsSettings } from './settings.js';
import { openVideoTask, sampleQuestions } from './task.js';

async function open(settings: VideoActionsSettings, context: TrainingContext): Promise<Training> {
  const { task, seeing } = await openVideoTask(settings, context.resolveRun);
  return openWordsTraining(settings, context, task, {
    model: () => startingSeeingModel(settings, task.format, seeing, context.resolveRun),
    sight: seeing,
  });
}

export const videoActions: OpenRecipe<VideoActionsSettings> = {
  makeData: clipData.make,
  open,
  promptRoom: async (settings, resolveRun) => (await openVideoTask(settings, resolveRun)).task.room(),
  openTask: async (settings, resolveRun) => (await openVideoTask(settings, resolveRun)).task,
  sampleRows: sampleQuestions,
};
