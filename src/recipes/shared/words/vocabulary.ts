/** Opens a policy's vocabulary: a tokenizer with the tokens that end an answer, and a chat template. */
import { DataError } from '../../../core/errors.js';
import type { Reader } from '../../../models/chat/template.js';
import { qwenMarks } from '../../../models/images/vision_input.js';
import { modelFolder, type RunResolver } from '../../../models/reference.js';
import { endTokens, openTokenizer } from '../../../models/tokenizer/open.js';
import { openChatTemplate } from '../../../models/tokenizer/texts.js';
import type { Tokenizer } from '../../../models/tokenizer/tokenizer.js';
import { WordTokenizer, wordTokenizerJson } from '../../../models/tokenizer/words.js';
import type { ModelReference } from '../../../config/schema/model.js';
import type { Part } from '../../../data/conversations.js';

/** A tokenizer with the tokens that end an answer. */
export interface AnswerTokenizer extends Reader {
  readonly ends: readonly number[];
  /** The end token that labels use. */
  readonly end: number;
}

/** The settings that determine the vocabulary. */
export interface WordsOf {
  readonly policy: { readonly tokenizer: ModelReference | null; readonly model: ModelReference | null };
  readonly prompt: { readonly chat: boolean };
}

/** The token that ends an answer of a model with random weights. */
export const END = '<|end|>';

/** The vocabulary of a model with random weights in the tiny world. */
export interface WorldWords {
  readonly words: readonly string[];
  /** Texts in the settings, whose words it also needs. */
  readonly texts: readonly string[];
  /** Special tokens, in addition to the one that ends an answer. */
  readonly special: readonly string[];
}

/**
 * The tokenizer in the settings, the model's own, or else one for the tiny world's words. Raises DataError or
 * CheckpointError for missing files.
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
      next: 'Set prompt.chat to false for a base (non-chat) model, or add chat_template.jinja to its folder.',
    });
  }
  const ends = endTokens(folder, tokenizer);
  const own = tokenizer.special['eos_token'];
  return { tokenizer, template, ends, end: own === undefined ? ends[0] : tokenizer.id(own) };
}

/** Joins the parts into one text. */
export function bareWords(parts: readonly Part[]): string {
  return parts
    .map((part) => (part.type === 'text' ? part.text : `${qwenMarks.start}${qwenMarks[part.type]}${qwenMarks.end}`))
    .join('');
}

/** The tiny world's vocabulary for a vision-language model with random weights. */
export function visionWords(
  words: readonly string[],
  { policy }: { readonly policy: { readonly assistant_prefill: string } },
): WorldWords {
  return { words, texts: [policy.assistant_prefill], special: Object.values(qwenMarks) };
}

/** The instructions of a dataset. */
export interface Instructions {
  /** The dataset's path. */
  readonly name: string;
  readonly length: number;
  readonly at: (index: number) => string;
}

/** Maximum number of prompts of a dataset that are checked. They represent the others. */
const MAX_CHECKED = 512;
const MAX_NAMED = 5;

/**
 * A sentence about each dataset with words that the tokenizer does not know. Empty for a tokenizer that knows all words. Raises DataError for a dataset
 * of which it knows no word.
 */
export async function unknownWords(
  tokenizer: Pick<Tokenizer, 'encode' | 'unknown'>,
  datasets: readonly Instructions[],
): Promise<string[]> {
  const { unknown } = tokenizer;
  if (unknown === null) return [];
  const sentences: string[] = [];
  for (const { name, length, at } of datasets) {
    const looked = Math.min(length, MAX_CHECKED);
    const lacking = new Set<string>();
    let [prompts, known] = [0, 0];
    for (let i = 0; i < looked; i++) {
      const words = new Set(at(Math.floor((i * length) / looked)).split(/\s+/));
      words.delete('');
      let lacks = false;
      for (const word of words) {
        const ids = await tokenizer.encode(word, { addSpecial: false });
        if (!ids.includes(unknown)) known += 1;
        else {
          lacking.add(word);
          lacks = true;
        }
      }
      if (lacks) prompts += 1;
    }
    if (prompts === 0) continue;
    const some = [...lacking].slice(0, MAX_NAMED).map((word) => `'${word}'`);
    const found = `${prompts} of ${looked} prompts have words that the policy's vocabulary lacks, such as ${some.join(', ')}`;
    if (known > 0) {
      sentences.push(`${name}: ${found}; all of them become one token`);
      continue;
    }
    throw new DataError(`${found}; it has none of the words`, {
      where: name,
      next: 'Write prompts in words that the policy was trained on, or name another policy.',
    });
  }
  return sentences;
}
