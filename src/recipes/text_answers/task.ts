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

/** Opens datasets and the tokenizer. Raises DataError or CheckpointError for missing files. */
export async function openTextTask<S extends TextSettings>(
  settings: S,
  resolveRun: RunResolver,
): Promise<WordsTask<S>> {
  const place = wordData.placesOf(settings);
  const data = await Datasets.open(settings, async ({ path }) => questionsOf(await openRows(place(path)), settings));
  return WordsTask.open(settings, { words: openTextWords(settings, resolveRun), data, imageInputs: null });
}

/** Opens the tokenizer in the settings, the model's own, or the tiny world's. Raises the errors of `openWords`. */
export function openTextWords(
  settings: Pick<TextSettings, 'policy' | 'prompt'>,
  resolveRun: RunResolver,
): AnswerTokenizer {
  const { policy, prompt } = settings;
  // Text in the settings, whose words a model with random weights also needs.
  const own = [prompt.template ?? '', policy.assistant_prefill].map((text) => text.replaceAll(/\{[^}]*\}/g, ' '));
  return openWords(settings, resolveRun, () => ({ words: captionVocabulary(), texts: own, special: [] }));
}

/**
 * The first rows of each dataset. The answers are the label, the prompt itself and an empty text. Raises DataError for
 * a row with another form.
 */
export function sampleWords(settings: TextSettings, count: number): Promise<SampledSet[]> {
  return sampleRowsOf(settings, count, (row, place) => {
    const { instruction, expected } = questionOf(row, settings, place);
    const labeled = { instruction, ...(expected === undefined ? {} : { expected }) };
    return { place, item: { ...labeled, source: null, truth: null, row }, answers: wordAnswers(labeled) };
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

/** The rows of a dataset as questions. */
function questionsOf(rows: RowSource, settings: TextSettings): QuestionSource {
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

/**
 * Builds the question of a row. Raises DataError, with `where`, for a row that lacks its columns, has another form, or
 * contains images.
 */
export function questionOf(row: Row, { prompt, data: { columns } }: QuestionSettings, where: string): Question {
  const turns = prompt.template === null ? turnsOf(valueOf(row, columns.prompt, where), columns.prompt, where) : null;
  const labeled = turns?.at(-1)?.role === 'assistant' ? wordsOf(turns.at(-1)!) : undefined;
  const messages = turns === null ? [] : labeled === undefined ? turns : turns.slice(0, -1);
  if (prompt.template !== null) messages.push({ role: 'user', content: filled(prompt.template, row, where) });
  const last = messages.at(-1);
  if (last?.role !== 'user') {
    throw new DataError(`the last turn of the conversation is '${last?.role ?? 'missing'}'; allowed: 'user'`, {
      where,
    });
  }
  const instruction = wordsOf(last);
  const beside = mediaBeside(row, messages.map(wordsOf).join('\n'));
  if (beside !== null) {
    throw new DataError(`found ${beside}; allowed: only words, because this policy gets no images`, {
      where,
      next: "Train on a dataset without images, or remove that column if the prompts do not depend on it. Task 'video_actions' shows images to the policy.",
    });
  }
  const expected = columns.expected === null ? labeled : answerOf(row, columns.expected, where);
  const label = expected === undefined ? {} : { expected };
  if (prompt.chat) return { prompt: conversationOf(messages, prompt, where), instruction, ...label };
  if (messages.length === 1) return { prompt: instruction, instruction, ...label };
  throw new DataError(
    `found a conversation of ${messages.length} turns with prompt.chat false; allowed: one turn, or plain text`,
    {
      where,
    },
  );
}

/** The system message, the examples, and then the row's own turns. */
function conversationOf(
  messages: readonly Message[],
  { system, examples }: TextSettings['prompt'],
  where: string,
): Message[] {
  const [first, ...rest] = messages;
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
    ...(own.length > 0 ? rest : messages),
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

/**
 * The labeled answer: words, a number, or a conversation that is or ends with the answer. Undefined if the row has
 * none.
 */
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

/** Fills the template with the row's values. A null value becomes an empty text. */
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
