/** The task of `video_actions`: conversations about videos, what they show, and answers in words. */
import { DataError } from '../../core/errors.js';
import { openQuestions } from '../../data/conversations.js';
import { openPictureProcessor, plainProcessor, type PictureProcessor } from '../../models/pictures/processor.js';
import { modelFolder, type RunResolver } from '../../models/reference.js';
import { nameSources } from '../named_sources.js';
import { openWords, WordsTask } from '../open_words_task.js';
import { END, placesOf, VISION, worldTokenizer } from './data.js';
import { askedSource, type VideoSource } from './questions.js';
import type { VideoActionsSettings } from './settings.js';
import { VideoSight } from './sight.js';

/** Opens datasets, the tokenizer and what turns frames into pixels. Raises DataError or CheckpointError naming what is missing. */
export async function openVideoTask(
  settings: VideoActionsSettings,
  resolveRun: RunResolver,
): Promise<WordsTask<VideoActionsSettings, VideoSource>> {
  const { data, prompt } = settings;
  const place = placesOf(settings);
  const open = ({ path, media }: { readonly path: string; readonly media: string | null }): VideoSource =>
    askedSource(openQuestions(place(path), media), prompt);
  const heldOut = nameSources(
    data.validation.map(({ path }) => path.replace(/\.json$/, '.jsonl')),
    data.validation.map(open),
  );
  const coefficients = data.train.flatMap(({ coefficient }) => (coefficient === null ? [] : [coefficient]));
  const words = openWords(settings, resolveRun, () => ({ tokenizer: worldTokenizer(settings), end: END }));
  const { tokenizer } = words;
  const tokens = { image_token_id: tokenizer.id(VISION.image), video_token_id: tokenizer.id(VISION.video) };
  const { min, max, interval } = data.frames;
  const usual = { minFrames: min, maxFrames: max, interval };
  const sight = new VideoSight(openProcessor(settings, resolveRun), tokens, usual);
  return WordsTask.open(settings, { words, train: data.train.map(open), coefficients, heldOut, sight });
}

function openProcessor({ policy }: VideoActionsSettings, resolveRun: RunResolver): PictureProcessor {
  const { model, init, pixels } = policy;
  if (model !== null) return openPictureProcessor(modelFolder(model, resolveRun), pixels);
  if (init === null) throw new DataError('policy.model and policy.init are both null');
  return plainProcessor(init.vision, pixels.video);
}
