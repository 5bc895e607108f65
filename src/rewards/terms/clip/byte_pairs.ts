/** CLIP's tokenizer for captions of one's own: byte pairs are learnt from their words (Sennrich et al., 2016), the most frequent first. */
import { END, END_OF_WORD, lettersOf, LETTERS, START, wordsOf } from './tokenizer.js';

/** A `tokenizer.json` that ClipTokenizer reads. Words of the captions become one token each where `most` merges are enough. */
export function clipTokenizerJson(captions: Iterable<string>, most: number): string {
  const counts = new Map<string, number>();
  for (const caption of captions) for (const word of wordsOf(caption)) counts.set(word, (counts.get(word) ?? 0) + 1);
  const words = [...counts].map(([word, count]) => ({ count, tokens: lettersOf(word) }));
  const merges: [string, string][] = [];
  while (merges.length < most) {
    const best = mostFrequent(words);
    if (best === null) break;
    merges.push(best);
    for (const word of words) word.tokens = joined(word.tokens, best);
  }
  const alphabet = [...LETTERS, ...LETTERS.map((letter) => letter + END_OF_WORD)];
  const all = new Set([...alphabet, ...merges.map((pair) => pair.join('')), START, END]);
  const vocab = Object.fromEntries([...all].map((token, id) => [token, id]));
  const model = { type: 'BPE', end_of_word_suffix: END_OF_WORD, unk_token: END, vocab, merges };
  return `${JSON.stringify({ version: '1.0', model })}\n`;
}

/** The pair that stands most often side by side; of several the first in the alphabet. Null where every word is one token. */
function mostFrequent(
  words: readonly { readonly count: number; readonly tokens: readonly string[] }[],
): [string, string] | null {
  const counts = new Map<string, number>();
  for (const { count, tokens } of words) {
    for (let i = 0; i + 1 < tokens.length; i++) {
      const pair = `${tokens[i]} ${tokens[i + 1]}`;
      counts.set(pair, (counts.get(pair) ?? 0) + count);
    }
  }
  let best: string | null = null;
  for (const [pair, count] of counts) {
    const most = best === null ? 0 : counts.get(best)!;
    if (count > most || (count === most && best !== null && pair < best)) best = pair;
  }
  return best === null ? null : (best.split(' ') as [string, string]);
}

function joined(tokens: readonly string[], [first, second]: readonly [string, string]): string[] {
  const out: string[] = [];
  for (let i = 0; i < tokens.length; i++) {
    const isPair = tokens[i] === first && tokens[i + 1] === second;
    out.push(isPair ? tokens[i] + tokens[++i] : tokens[i]);
  }
  return out;
}
