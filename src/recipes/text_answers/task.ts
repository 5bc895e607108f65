/** The task of `text_answers`: rows of words. */
import { Datasets } from '../../data/datasets.js';
import {
  COLUMNS_ADVICE,
  type Row,
  type RowSource,
  columnNames,
  firstRows,
  isSayable,
  openRows,
  mediaBeside,
  valueAt,
} from '../../data/rows.js';
import type { RunResolver } from '../../models/reference.js';
import { captionVocabulary, wordData } from '../../data/tiny/words.js';
import { openWords, type AnswerTokenizer } from '../shared/words/vocabulary.js';
import { WordsTask, type QuestionSource, type Question } from '../shared/words/task.js';
import { PLACEHOLDER, type TextSettings } from './settings.js';
import { sampledSets, wordAnswers, type SampledSet, type SampleRow } from '../../train/scoring/sample_rows.js';
import { z } from 'zod';
import { DataError } from '../../core/errors.js';
import { inBrief } from '../../core/text.js';
import type { Message } from '../../models/chat/template.js';

/** Opens datasets and the tokenizer. Raises DataError or CheckpointError naming what is missing. */
export async function openTextTask<S extends TextSettings>(
  settings: S,
  resolveRun: RunResolver,
): Promise<WordsTask<S>> {
  const place = wordData.placesOf(settings);
  const data = await Datasets.open(settings, async ({ path }) => asked(await openRows(place(path)), settings));
  return WordsTask.open(settings, { words: openTextWords(settings, resolveRun), data, imageInputs: null });
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

type QuestionSettings = Pick<TextSettings, 'prompt'> & {
  readonly data: Pick<TextSettings['data'], 'columns'>;
};

const message = z.object({
  role: z.string().min(1),
  content: z.union([z.string(), z.array(z.looseObject({ type: z.literal('text'), text: z.string() }))]),
});
const conversation = z.array(message).min(1);

/** Raises DataError, naming `where`, for a row without its columns or with another form, and for one that shows images. */
export function questionOf(row: Row, { prompt, data: { columns } }: QuestionSettings, where: string): Question {
  const turns = prompt.template === null ? turnsOf(valueOf(row, columns.prompt, where), columns.prompt, where) : null;
  const labelled = turns?.at(-1)?.role === 'assistant' ? wordsOf(turns.at(-1)!) : undefined;
  const asked = turns === null ? [] : labelled === undefined ? turns : turns.slice(0, -1);
  if (prompt.template !== null) asked.push({ role: 'user', content: filled(prompt.template, row, where) });
  const last = asked.at(-1);
  if (last?.role !== 'user') {
    throw new DataError(`the last turn of the conversation is '${last?.role ?? 'missing'}'; allowed: 'user'`, {
      where,
    });
  }
  const instruction = wordsOf(last);
  const beside = mediaBeside(row, asked.map(wordsOf).join('\n'));
  if (beside !== null) {
    throw new DataError(`found ${beside}; allowed: only words, because this policy gets no images`, {
      where,
      next: 'Train on a dataset without images, or remove that column if the prompts do not depend on it.',
    });
  }
  const expected = columns.expected === null ? labelled : answerOf(row, columns.expected, where);
  const label = expected === undefined ? {} : { expected };
  if (prompt.chat) return { asked: conversationOf(asked, prompt, where), instruction, ...label };
  if (asked.length === 1) return { asked: instruction, instruction, ...label };
  throw new DataError(
    `found a conversation of ${asked.length} turns with prompt.chat false; allowed: one turn, or plain text`,
    {
      where,
    },
  );
}

/** The system message, the examples, then the row's own turns. */
function conversationOf(
  asked: readonly Message[],
  { system, examples }: TextSettings['prompt'],
  where: string,
): Message[] {
  const [first, ...rest] = asked;
  const own = first.role === 'system' ? [first] : [];
  if (own.length > 0 && system !== null) {
    throw new DataError('found a system message in the row and prompt.system; allowed: one of them', { where });
  }
  return [
    ...(system === null ? own : [{ role: 'system', content: system }]),
    ...examples.flatMap(({ prompt, answer }) => [
      { role: 'user', content: prompt },
      { role: 'assistant', content: answer },
    ]),
    ...(own.length > 0 ? rest : asked),
  ];
}

function turnsOf(value: unknown, column: string, where: string): Message[] {
  if (typeof value === 'string') return [{ role: 'user', content: value }];
  const parsed = conversation.safeParse(value);
  if (parsed.success) return parsed.data.map(({ role, content }) => ({ role, content }));
  throw new DataError(`found ${inBrief(value)} in column '${column}'; allowed: text, or a list of {role, content}`, {
    where,
  });
}

/** A labeled answer: words, a number, or a conversation that is or ends with the answer. Undefined if the row has none. */
function answerOf(row: Row, column: string, where: string): string | undefined {
  const value = valueOf(row, column, where);
  if (value === null) return undefined;
  if (typeof value === 'string') return value;
  if (typeof value === 'number' || typeof value === 'boolean') return String(value);
  const parsed = conversation.safeParse(value);
  const last = parsed.data?.at(-1);
  if (last !== undefined && (parsed.data?.length === 1 || last.role === 'assistant')) return wordsOf(last);
  throw new DataError(
    `found ${inBrief(value)} in column '${column}'; allowed: text, a number, one turn, or a conversation whose last turn is the assistant's`,
    { where },
  );
}

function valueOf(row: Row, column: string, where: string): unknown {
  const value = valueAt(row, column);
  if (value === undefined) {
    throw new DataError(`the row has no column '${column}'; found: ${columnNames(row).join(', ')}`, {
      where,
      next: COLUMNS_ADVICE,
    });
  }
  if (!isSayable(value)) {
    throw new DataError(`found ${inBrief(value)} in column '${column}'; allowed: text, finite numbers, or null`, {
      where,
      next: 'pandas writes a missing number as NaN. Write null, or remove this row.',
    });
  }
  return value;
}

/** The template filled with the row's values. A null value becomes no words. */
function filled(template: string, row: Row, where: string): string {
  return template.replaceAll(PLACEHOLDER, (_, column: string) => {
    const value = valueOf(row, column, where);
    if (value === null) return '';
    return typeof value === 'string' ? value : JSON.stringify(value);
  });
}

function wordsOf({ content }: Message): string {
  return typeof content === 'string' ? content : content.map(({ text = '' }) => text).join('');
}
