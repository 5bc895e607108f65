/** The task of `video_actions`: conversations about videos, what they show, and answers in words. */
import { openQuestions } from '../../data/conversations.js';
import { Datasets } from '../../data/datasets.js';
import type { RunResolver } from '../../models/reference.js';
import { clipData, clipVocabulary } from '../../tiny/world/clips.js';
import { sampledSets, wordAnswers, type SampledSet, type SampleRow } from '../../scoring/sample_rows.js';
import { openVisionInputs, type VisionInputs } from '../open_vision_inputs.js';
import { openWords, type AnswerTokenizer } from '../open_vocabulary.js';
import { WordsTask } from '../open_words_task.js';
import { seenWords } from '../open_seen_words.js';
import { askedSource, type VideoSource } from './questions.js';
import type { VideoActionsSettings } from './settings.js';
import { VideoSight } from './question_pictures.js';

/** The task, and how its policy sees. */
export interface VideoTask {
  readonly task: WordsTask<VideoActionsSettings, VideoSource>;
  readonly seeing: VisionInputs;
}

/** The first questions of each list, with the label, the question itself and an empty text as answers. Raises DataError as `openQuestions` does. */
export function sampleQuestions(settings: VideoActionsSettings, count: number): Promise<SampledSet[]> {
  const { data, prompt } = settings;
  return clipData.sampled(settings, count, (place) =>
    sampledSets(data, async ({ path, media }) => {
      const source = askedSource(openQuestions(place(path), media), prompt);
      return Array.from({ length: Math.min(count, source.length) }, (_, index): SampleRow => {
        const { instruction, expected = '' } = source.ask(index);
        const item = { instruction, expected, source: null, truth: null, row: source.row(index) };
        return { place: source.place(index), item, answers: wordAnswers(item) };
      });
    }),
  );
}

/** How the policy sees. Raises as `openVisionInputs`. */
export function openSight(settings: VideoActionsSettings, resolveRun: RunResolver): VisionInputs {
  return openVisionInputs(settings.policy, wordsOf(settings, resolveRun).tokenizer, resolveRun);
}

function wordsOf(settings: VideoActionsSettings, resolveRun: RunResolver): AnswerTokenizer {
  return openWords(settings, resolveRun, () => seenWords(clipVocabulary(), settings));
}

/** Opens datasets, the tokenizer and the image processor for frames. Raises DataError or CheckpointError naming what is missing. */
export async function openVideoTask(settings: VideoActionsSettings, resolveRun: RunResolver): Promise<VideoTask> {
  const { data, prompt } = settings;
  const place = clipData.placesOf(settings);
  const datasets = await Datasets.open(
    settings,
    async ({ path, media }) => askedSource(openQuestions(place(path), media), prompt),
    // A list of questions is a file of rows, whatever its extension.
    (path) => path.replace(/\.json$/, '.jsonl'),
  );
  const words = wordsOf(settings, resolveRun);
  const seeing = openVisionInputs(settings.policy, words.tokenizer, resolveRun);
  const { min, max, interval, as } = data.frames;
  const usual = { minFrames: min, maxFrames: max, interval };
  const { processor, tokens } = seeing;
  const sight = new VideoSight(processor, tokens, usual, as);
  const task = await WordsTask.open(settings, { words, data: datasets, sight });
  return { task, seeing };
}
