/** The task of `toy_words`: questions made from the seed, and answers in words. */
import { RunError } from '../../../../src/core/errors.js';
import { RandomStream } from '../../../../src/core/random.js';
import type { TrainingOrder } from '../../../../src/data/datasets.js';
import type { SamplePlace } from '../../../../src/data/sampler.js';
import type { TokenAnswer, TokenRequest } from '../../../../src/train/policies/tokens/batch.js';
import { FreeText } from '../../../../src/models/tokenizer/format.js';
import { WordTokenizer, wordTokenizerJson } from '../../../../src/models/tokenizer/words.js';
import type { RecordedEpisode } from '../../../../src/run/episodes.js';
import type { Answers, Prompt, PromptSource, Rendered, Task } from '../../../../src/train/scoring/task.js';
import type { ToyWordsSettings } from './settings.js';

const END = '<|end|>';
const TAGS = ['<think>', '</think>', '<answer>', '</answer>'];
const WORDS = ['Which', 'of', 'are', 'odd?', 'even?'];
const PARITIES = { odd: 1, even: 0 } as const;

export interface Question extends Prompt, TokenRequest {
  /** The numbers that are right, as an answer names them. */
  readonly expected: string;
}

export class ToyWordsTask implements Task<Question, TokenAnswer> {
  readonly tokenizer: WordTokenizer;
  readonly format: FreeText;
  readonly validation: readonly PromptSource<Question>[];

  constructor(private readonly settings: ToyWordsSettings) {
    const { largest, held_out: length } = settings.questions;
    const numbers = Array.from({ length: largest }, (_, i) => item(i + 1));
    this.tokenizer = new WordTokenizer(wordTokenizerJson([END, ...TAGS, ...numbers], WORDS), 'toy_words');
    this.format = new FreeText(this.tokenizer, new Set([this.tokenizer.id(END)]));
    this.validation = [{ name: 'numbers', length, prompt: async (index) => this.#question('held out', index) }];
  }

  get order(): TrainingOrder {
    return {
      ordinary: (index) => ({ source: 0, index }),
      refill: (index) => ({ source: 1, index }),
      epochLength: Infinity,
    };
  }

  async prompt(position: number | SamplePlace): Promise<Question> {
    const { source, index } = typeof position === 'number' ? this.order.ordinary(position) : position;
    return this.#question(source === 0 ? 'training' : 'refill', index);
  }

  async render(chunk: readonly Answers<Question, TokenAnswer>[]): Promise<Rendered[][]> {
    return chunk.map(({ prompt: { instruction, expected }, answers, keys }) =>
      answers.map(({ ids, finished }, i) => {
        const text = this.tokenizer.decode(finished ? ids.subarray(0, -1) : ids);
        const images = { source: null, edited: null, truth: null };
        return {
          item: { key: keys[i], instruction, ...images, answer: text, expected, finished },
          record: { text },
          caption: instruction,
        };
      }),
    );
  }

  reread({ key, text, finished }: RecordedEpisode): TokenAnswer {
    if (text === undefined) throw new RunError('the record of an episode has no words', { where: key });
    const ids = Int32Array.from([...this.tokenizer.encode(text), ...(finished ? this.format.ends : [])]);
    return { ids, logProbs: new Float32Array(ids.length), finished };
  }

  async labels({ expected }: Question): Promise<{ truth: null; expected: string }> {
    return { truth: null, expected };
  }

  async dispose(): Promise<void> {}

  /** Some of the numbers, at least one of which is right. */
  #question(part: 'training' | 'refill' | 'held out', index: number): Question {
    const random = new RandomStream(this.settings.seed, 'toy_words', part, index);
    const all = Array.from({ length: this.settings.questions.largest }, (_, i) => i + 1);
    const parity = random.integer(2) === 0 ? 'odd' : 'even';
    const isRight = (n: number): boolean => n % 2 === PARITIES[parity];
    const candidates = all.filter(isRight);
    const sure = candidates[random.integer(candidates.length)];
    const asked = all.filter((n) => n === sure || random.integer(2) === 0);
    const instruction = `Which of ${asked.map(item).join(' ')} are ${parity}?`;
    return {
      id: `${part} ${index}`,
      instruction,
      sourcePng: null,
      tokens: { ids: this.tokenizer.encode(instruction) },
      expected: asked.filter(isRight).map(item).join(' '),
    };
  }
}

function item(n: number): string {
  return `(${n})`;
}
