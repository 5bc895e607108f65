/** The task of `text_answers`: rows of words. */
import { Datasets } from '../../data/datasets.js';
import { firstRows, openRows, type Row, type RowSource } from '../../data/rows.js';
import type { RunResolver } from '../../models/reference.js';
import { captionVocabulary, wordData } from '../../tiny/world/words.js';
import { openWords, type AnswerTokenizer } from '../open_vocabulary.js';
import { WordsTask, type QuestionSource } from '../open_words_task.js';
import { questionOf } from './conversation.js';
import type { TextSettings } from './settings.js';
import { sampledSets, wordAnswers, type SampledSet, type SampleRow } from '../../scoring/sample_rows.js';

/** Opens datasets and the tokenizer. Raises DataError or CheckpointError naming what is missing. */
export async function openTextTask<S extends TextSettings>(
  settings: S,
  resolveRun: RunResolver,
): Promise<WordsTask<S>> {
  const place = wordData.placesOf(settings);
  const data = await Datasets.open(settings, async ({ path }) => asked(await openRows(place(path)), settings));
  return WordsTask.open(settings, { words: openTextWords(settings, resolveRun), data, sight: null });
}

/** The tokenizer that the settings name, the model's own, or the tiny world's. Raises as `openWords` does. */
export function openTextWords(
  settings: Pick<TextSettings, 'policy' | 'prompt'>,
  resolveRun: RunResolver,
): AnswerTokenizer {
  const { policy, prompt } = settings;
  // The settings' own texts, whose words a model with random weights also needs.
  const own = [prompt.template ?? '', policy.assistant_prefill].map((text) => text.replaceAll(/\{[^}]*\}/g, ' '));
  return openWords(settings, resolveRun, () => ({ words: captionVocabulary(), texts: own, special: [] }));
}

/** The first rows of each dataset, with the label, the prompt itself and an empty text as answers. Raises DataError for a row with another form. */
export function sampleWords(settings: TextSettings, count: number): Promise<SampledSet[]> {
  return sampleRowsOf(settings, count, (row, place) => {
    const { instruction, expected } = questionOf(row, settings, place);
    const labelled = { instruction, ...(expected === undefined ? {} : { expected }) };
    return { place, item: { ...labelled, source: null, truth: null, row }, answers: wordAnswers(labelled) };
  });
}

/** The first rows of each dataset, as `sampleOf` makes them. */
export function sampleRowsOf(
  settings: Pick<TextSettings, 'data'>,
  count: number,
  sampleOf: (row: Row, place: string) => SampleRow,
): Promise<SampledSet[]> {
  return wordData.sampled(settings, count, (place) =>
    sampledSets(settings.data, async ({ path }) =>
      (await firstRows(place(path), count)).map(({ row, place: where }) => sampleOf(row, where)),
    ),
  );
}

/** The questions of rows. */
function asked(rows: RowSource, settings: TextSettings): QuestionSource {
  return {
    ...rows,
    ask: (index) => questionOf(rows.read(index), settings, rows.place(index)),
    row: (index) => rows.read(index),
  };
}
