/** Opens `text_answers`: a language model that answers in words. */
import type { TrainingContext, OpenRecipe } from '../../train/context.js';
import type { Training } from '../../train/loop.js';
import { openWordsTraining } from '../shared/words/training.js';
import { wordData } from '../../data/tiny/words.js';
import type { TextAnswersSettings } from './settings.js';
import { openTextTask, sampleWords } from './task.js';

async function open(settings: TextAnswersSettings, context: TrainingContext): Promise<Training> {
  return openWordsTraining(settings, context, await openTextTask(settings, context.resolveRun));
}

export const textAnswers: OpenRecipe<TextAnswersSettings> = {
  makeData: wordData.make,
  open,
  openTask: openTextTask,
  sampleRows: sampleWords,
  promptRoom: async (settings, resolveRun) => (await openTextTask(settings, resolveRun)).room(),
};
