/** CLIP's tokenizer for the user's own captions: byte pairs are learned from their words (Sennrich et al., 2016), the most frequent first. */
import { Tokenizer as Native } from 'tokenizers';
import { must } from '../../../core/errors.js';
import { clipWords, END, END_OF_WORD, markJson, START } from './tokenizer.js';

/** A letter for every byte, so that vocabularies are plain text: printable bytes represent themselves (GPT-2). */
function byteLetters(): readonly string[] {
  const prints = (byte: number): boolean =>
    (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xff && byte !== 0xad);
  let others = 0;
  return Array.from({ length: 256 }, (_, byte) => String.fromCodePoint(prints(byte) ? byte : 256 + others++));
}

/** The words of a text, with a letter for each byte. */
function wordSplitter(): (text: string) => string[] {
  const empty = Native.fromString(
    JSON.stringify({ version: '1.0', ...clipWords, model: { type: 'BPE', vocab: {}, merges: [] } }),
  );
  const [normalizer, splitter] = [
    must(empty.getNormalizer(), 'a normalizer'),
    must(empty.getPreTokenizer(), 'a splitter'),
  ];
  return (text) => splitter.preTokenizeString(normalizer.normalizeString(text)).map(([word]) => word);
}

/** A word's letters. The last one ends the word. */
function lettersOf(word: string): string[] {
  const letters = [...word];
  letters[letters.length - 1] += END_OF_WORD;
  return letters;
}

/**
 * A `tokenizer.json` that ClipTokenizer and Hugging Face's tokenizers read. Words of the captions become one token each if `most` merges
 * are enough.
 */
export function clipTokenizerJson(captions: Iterable<string>, most: number): string {
  const counts = new Map<string, number>();
  const wordsOf = wordSplitter();
  for (const caption of captions) for (const word of wordsOf(caption)) counts.set(word, (counts.get(word) ?? 0) + 1);
  const pairs = new Pairs([...counts].map(([word, count]) => ({ count, tokens: lettersOf(word) })));
  const merges: [string, string][] = [];
  while (merges.length < most) {
    const best = pairs.mostFrequent();
    if (best === null) break;
    merges.push(best.split(' ') as [string, string]);
    pairs.join(best);
  }
  const letters = byteLetters();
  const alphabet = [...letters, ...letters.map((letter) => letter + END_OF_WORD)];
  const all = new Set([...alphabet, ...merges.map((pair) => pair.join('')), START, END]);
  const vocab = Object.fromEntries([...all].map((token, id) => [token, id]));
  const model = { type: 'BPE', end_of_word_suffix: END_OF_WORD, unk_token: END, vocab, merges };
  const marks = [START, END].map((content) => ({ id: vocab[content], content }));
  const [cls, sep] = marks.map(({ id, content }) => [content, id] as const);
  const json = {
    version: '1.0',
    added_tokens: marks.map(markJson),
    ...clipWords,
    post_processor: { type: 'RobertaProcessing', sep, cls, trim_offsets: false, add_prefix_space: false },
    decoder: { type: 'ByteLevel', add_prefix_space: true, trim_offsets: true, use_regex: true },
    model,
  };
  return `${JSON.stringify(json)}\n`;
}

interface CountedWord {
  readonly count: number;
  tokens: readonly string[];
}

/** Counts of neighboring token pairs in words. A merge changes only the counts of words that contain it. */
class Pairs {
  readonly #counts = new Map<string, number>();
  /** The words that contain or contained a pair. */
  readonly #words = new Map<string, Set<CountedWord>>();

  constructor(words: readonly CountedWord[]) {
    for (const word of words) this.#count(word, 1);
  }

  /** The most frequent pair, or the first in the alphabet on a tie. Null when every word is one token. */
  mostFrequent(): string | null {
    let best: string | null = null;
    let most = 0;
    for (const [pair, count] of this.#counts) {
      if (count > most || (count === most && best !== null && pair < best)) [best, most] = [pair, count];
    }
    return best;
  }

  /** Replaces a pair by one token everywhere. */
  join(pair: string): void {
    const [first, second] = pair.split(' ');
    for (const word of this.#words.get(pair) ?? []) {
      this.#count(word, -1);
      word.tokens = joined(word.tokens, first, second);
      this.#count(word, 1);
    }
    this.#words.delete(pair);
  }

  #count(word: CountedWord, sign: 1 | -1): void {
    const { tokens, count } = word;
    for (let i = 0; i + 1 < tokens.length; i++) {
      const pair = `${tokens[i]} ${tokens[i + 1]}`;
      const left = (this.#counts.get(pair) ?? 0) + sign * count;
      if (left === 0) this.#counts.delete(pair);
      else this.#counts.set(pair, left);
      if (sign === -1) continue;
      const words = this.#words.get(pair);
      if (words === undefined) this.#words.set(pair, new Set([word]));
      else words.add(word);
    }
  }
}

function joined(tokens: readonly string[], first: string, second: string): string[] {
  const out: string[] = [];
  for (let i = 0; i < tokens.length; i++) {
    const isPair = tokens[i] === first && tokens[i + 1] === second;
    out.push(isPair ? tokens[i] + tokens[++i] : tokens[i]);
  }
  return out;
}
