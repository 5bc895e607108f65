/** Finds instructions in words that a policy's vocabulary lacks: the policy reads all such words as one token, and its answers are scored anyway. */
import { DataError } from '../core/errors.js';
import type { Tokenizer } from '../models/tokenizer/tokenizer.js';

/** The instructions of a dataset. */
export interface Instructions {
  /** The dataset's path. */
  readonly name: string;
  readonly length: number;
  readonly at: (index: number) => string;
}

/** Prompts of a dataset that are looked at: they represent the others. */
const MOST_LOOKED_AT = 512;
const MOST_NAMED = 5;

/**
 * A sentence about each dataset with words that the tokenizer does not know; empty for a tokenizer that knows all words. Raises DataError for a dataset
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
    const looked = Math.min(length, MOST_LOOKED_AT);
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
    const some = [...lacking].slice(0, MOST_NAMED).map((word) => `'${word}'`);
    const found = `${prompts} of ${looked} prompts have words that the policy's vocabulary lacks, such as ${some.join(', ')}`;
    if (known > 0) {
      sentences.push(`${name}: ${found}; it reads each of them as the same token`);
      continue;
    }
    throw new DataError(`${found}; it has none of their words`, {
      where: name,
      next: 'Write prompts in words that the policy was trained on, or name another policy.',
    });
  }
  return sentences;
}
