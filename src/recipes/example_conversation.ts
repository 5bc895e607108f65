/** A conversation like those of a run, before any row of its data is read: some templates refuse a system message, or turns of some kind. */
import type { Message, MessageContent } from '../models/chat/template.js';

export interface ExampleConversation {
  readonly messages: readonly Message[];
  readonly variables: Readonly<Record<string, unknown>>;
}

/** The settings around every question. */
interface Prompt {
  readonly chat: boolean;
  readonly system: string | null;
  readonly examples?: readonly { readonly prompt: string; readonly answer: string }[];
  readonly variables: Readonly<Record<string, unknown>>;
}

const QUESTION = 'a question';

/** Only words, or words after a picture. */
const questions = {
  words: QUESTION,
  'words and pictures': [{ type: 'image' }, { type: 'text', text: QUESTION }],
} as const satisfies Readonly<Record<string, MessageContent>>;

/** Null if the prompts are bare words. */
export function exampleConversation(
  { chat, system, examples = [], variables }: Prompt,
  asks: keyof typeof questions,
): ExampleConversation | null {
  if (!chat) return null;
  const messages = [
    ...(system === null ? [] : [{ role: 'system', content: system }]),
    ...examples.flatMap(({ prompt, answer }) => [
      { role: 'user', content: prompt },
      { role: 'assistant', content: answer },
    ]),
    { role: 'user', content: questions[asks] },
  ];
  return { messages, variables };
}
