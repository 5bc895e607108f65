/** CLIP's tokenizer for captions of one's own: byte pairs are learnt from their words (Sennrich et al., 2016), the most frequent first. */
import { END, END_OF_WORD, lettersOf, LETTERS, START, wordsOf } from './tokenizer.js';

/** A `tokenizer.json` that ClipTokenizer reads. Words of the captions become one token each where `most` merges are enough. */
export function clipTokenizerJson(captions: Iterable<string>, most: number): string {
  const counts = new Map<string, number>();
  for (const caption of captions) for (const word of wordsOf(caption)) counts.set(word, (counts.get(word) ?? 0) + 1);
  const pairs = new Pairs([...counts].map(([word, count]) => ({ count, tokens: lettersOf(word) })));
  const merges: [string, string][] = [];
  while (merges.length < most) {
    const best = pairs.mostFrequent();
    if (best === null) break;
    merges.push(best.split(' ') as [string, string]);
    pairs.join(best);
  }
  const alphabet = [...LETTERS, ...LETTERS.map((letter) => letter + END_OF_WORD)];
  const all = new Set([...alphabet, ...merges.map((pair) => pair.join('')), START, END]);
  const vocab = Object.fromEntries([...all].map((token, id) => [token, id]));
  const model = { type: 'BPE', end_of_word_suffix: END_OF_WORD, unk_token: END, vocab, merges };
  return `${JSON.stringify({ version: '1.0', model })}\n`;
}

interface CountedWord {
  readonly count: number;
  tokens: readonly string[];
}

/** How often two tokens stand side by side in words. A merge changes the counts of those words alone that it is found in. */
class Pairs {
  readonly #counts = new Map<string, number>();
  /** The words that a pair stands in, or has stood in. */
  readonly #words = new Map<string, Set<CountedWord>>();

  constructor(words: readonly CountedWord[]) {
    for (const word of words) this.#count(word, 1);
  }

  /** Of several the first in the alphabet. Null where every word is one token. */
  mostFrequent(): string | null {
    let best: string | null = null;
    let most = 0;
    for (const [pair, count] of this.#counts) {
      if (count > most || (count === most && best !== null && pair < best)) [best, most] = [pair, count];
    }
    return best;
  }

  /** Makes one token of a pair, wherever it stands. */
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
