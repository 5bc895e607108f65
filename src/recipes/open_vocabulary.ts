/** Opens a policy's vocabulary: a tokenizer with the tokens that end an answer, and a chat template. */
import { DataError } from '../core/errors.js';
import type { Reader } from '../models/chat/prompt.js';
import { modelFolder, type RunResolver } from '../models/reference.js';
import { endTokens, openTokenizer } from '../models/tokenizer/open.js';
import { openChatTemplate } from '../models/tokenizer/texts.js';
import type { Tokenizer } from '../models/tokenizer/tokenizer.js';
import { WordTokenizer, wordTokenizerJson } from '../models/tokenizer/words.js';
import type { ModelReference } from '../schema/model.js';

/** A tokenizer with the tokens that end an answer. */
export interface AnswerTokenizer extends Reader {
  readonly ends: readonly number[];
  /** The end token that labels use. */
  readonly end: number;
}

/** The settings that its words come from. */
export interface WordsOf {
  readonly policy: { readonly tokenizer: ModelReference | null; readonly model: ModelReference | null };
  readonly prompt: { readonly chat: boolean };
}

/** Ends an answer of a model that was made here. */
export const END = '<|end|>';

/** The vocabulary of a model with random weights in the tiny world. */
export interface WorldWords {
  readonly words: readonly string[];
  /** The settings' own texts, whose words it also needs. */
  readonly texts: readonly string[];
  /** Tokens that are not words, besides the one that ends an answer. */
  readonly special: readonly string[];
}

/**
 * The tokenizer that the settings name, the model's own, or else one of the tiny world's words. Raises DataError or
 * CheckpointError naming what is missing.
 */
export function openWords(
  { policy, prompt }: WordsOf,
  resolveRun: RunResolver,
  world: () => WorldWords,
): AnswerTokenizer {
  const reference = policy.tokenizer ?? policy.model;
  if (reference === null) {
    if (prompt.chat) {
      throw new DataError('the words of the tiny world have no chat template', {
        where: 'prompt.chat',
        next: 'Set prompt.chat to false, or name a tokenizer with a template in policy.tokenizer.',
      });
    }
    const { words, texts, special } = world();
    const own = texts.flatMap((text) => text.split(/\s+/)).filter((word) => word !== '');
    const json = wordTokenizerJson([END, ...special], [...words, ...own]);
    const tokenizer = new WordTokenizer(json, 'the words of the tiny world');
    const end = tokenizer.id(END);
    return { tokenizer, template: null, ends: [end], end };
  }
  const folder = modelFolder(reference, resolveRun);
  const tokenizer: Tokenizer = openTokenizer(folder);
  const template = prompt.chat ? openChatTemplate(folder, tokenizer) : null;
  if (prompt.chat && template === null) {
    throw new DataError('the model has no chat template', {
      where: folder,
      next: 'Set prompt.chat to false for a model that goes on with bare words, or add chat_template.jinja to its folder.',
    });
  }
  const ends = endTokens(folder, tokenizer);
  const own = tokenizer.special['eos_token'];
  return { tokenizer, template, ends, end: own === undefined ? ends[0] : tokenizer.id(own) };
}
