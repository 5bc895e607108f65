/** Opens `text_answers`: a language model that answers in text. */
import type { TrainingContext } from '../../train/context.js';
import type { OpenRecipe } from '../recipe.js';
import type { Training } from '../../train/loop.js';
import { openWordsTraining } from '../shared/words/training.js';
import { wordData } from '../../data/tiny/words.js';
import { datasetChecks, languageModelChecks, rowsCheck } from '../shared/checks.js';
import { columnsOf, type TextAnswersSettings } from './settings.js';
import { openTextTask, sampleWords } from './task.js';

async function open(settings: TextAnswersSettings, context: TrainingContext): Promise<Training> {
  return openWordsTraining(settings, context, await openTextTask(settings, context.resolveRun));
}

export const textAnswers: OpenRecipe<TextAnswersSettings> = {
  makeData: wordData.make,
  checks: (settings) => [
    ...datasetChecks(settings, (path) => rowsCheck(path, columnsOf(settings))),
    ...languageModelChecks(settings.policy, settings.prompt),
  ],
  open,
  openTask: openTextTask,
  sampleRows: sampleWords,
  promptRoom: async (settings, resolveRun) => (await openTextTask(settings, resolveRun)).room(),
};
