/** Turns a sample of a conversation list into the policy's question. */
import { DataError } from '../../core/errors.js';
import { shownDigest, type Turn, type VideoQuestion, type VideoQuestions } from '../../data/conversations.js';
import type { QuestionSource, Question } from '../open_words_task.js';
import { bareWords } from '../open_seen_words.js';

/** A list with the questions of the recipe's task. `questions` are the samples themselves. */
export interface VideoSource extends QuestionSource {
  readonly questions: VideoQuestions;
}

interface PromptForm {
  /** Whether the model's chat template writes the prompt. */
  readonly chat: boolean;
  /** A system message for samples that have none. */
  readonly system: string | null;
}

export function askedSource(questions: VideoQuestions, form: PromptForm): VideoSource {
  return {
    name: questions.name,
    length: questions.length,
    remark: questions.remark,
    digest: questions.digest,
    id: (index) => questions.id(index),
    place: (index) => questions.place(index),
    questions,
    ask: (index) => questionOf(questions.read(index), form, questions.place(index)),
    row: (index) => rowOf(questions.read(index)),
    shown: (index) => shownDigest(questions.read(index)),
  };
}

/** Raises DataError, naming `where`, for a conversation that cannot be written as bare words. */
export function questionOf({ turns, expected }: VideoQuestion, { chat, system }: PromptForm, where: string): Question {
  const last = turns[turns.length - 1];
  const instruction = wordsOf(last).trim();
  if (chat) {
    const own = turns.map(({ role, parts }) => ({ role, content: [...parts] }));
    const first = system === null || turns[0].role === 'system' ? [] : [{ role: 'system', content: system }];
    return { asked: [...first, ...own], instruction, expected };
  }
  if (turns.length === 1) return { asked: bareWords(last.parts), instruction, expected };
  throw new DataError(`found a conversation of ${turns.length} turns with prompt.chat false; allowed: one question`, {
    where,
  });
}

function wordsOf({ parts }: Turn): string {
  return parts.map((part) => (part.type === 'text' ? part.text : '')).join('');
}

function rowOf({ turns, expected, video, images }: VideoQuestion): Readonly<Record<string, unknown>> {
  return { turns: turns.map((turn) => ({ role: turn.role, text: wordsOf(turn) })), expected, video, images };
}
