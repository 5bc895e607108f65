/** Whether all that a run is made of takes rows of several pictures before the edit. */
import { chosenTerms, SHOWN_ALL, showsOne } from '../../rewards/score/choice.js';
import { measuredReward } from '../../rewards/schema/reward.js';
import { requireOnePicture, type OnePicture, type PicturedTask } from '../open_pictured.js';
import type { Drawing } from './drawing.js';
import type { EditResponseSettings } from './settings.js';

/** Raises DataError, naming the first such row, where what draws, the prompt or a reward takes one picture. */
export function checkSources(
  { words, pictureName }: Pick<PicturedTask<EditResponseSettings>, 'words' | 'pictureName'>,
  settings: EditResponseSettings,
  { onlyOne }: Pick<Drawing, 'onlyOne'>,
): void {
  const one = onlyOne ?? unnamed(settings, pictureName) ?? judged(settings);
  if (one !== null) requireOnePicture(words.asked, one);
}

/** What Qwen-Image-Edit-2509 and -2511 are told before each picture; plain Qwen-Image-Edit knows neither names nor several pictures. */
function unnamed({ prompt, environment }: EditResponseSettings, name: readonly number[]): OnePicture | null {
  if (environment === null || !('picture_names' in environment) || !prompt.chat) return null;
  if (name.length > 0 && environment.picture_names) return null;
  return {
    why: 'pictures are told without names, as plain Qwen-Image-Edit is told its one picture',
    next: 'Leave such rows out, or draw by Qwen-Image-Edit-2509 or -2511, with prompt.variables.add_vision_id and environment.picture_names true.',
  };
}

function judged(settings: EditResponseSettings): OnePicture | null {
  const blind = chosenTerms(measuredReward(settings)).find((term) => showsOne(term, settings.reward));
  if (blind === undefined) return null;
  return {
    why: `what scores for reward '${blind.name}' is shown one`,
    next: SHOWN_ALL,
  };
}
