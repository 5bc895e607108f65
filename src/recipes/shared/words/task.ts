/**
 * The task of policies that answer in words: prompts from any source, a tokenizer with its chat template, and answers
 * as text.
 */
import { DataError, must, RunError } from '../../../core/errors.js';
import type { ListDigest } from '../../../data/datalist.js';
import type { ComparedSample } from '../../../data/overlap.js';
import type { Datasets, TrainingOrder } from '../../../data/datasets.js';
import type { Row } from '../../../data/rows.js';
import type { SamplePlace } from '../../../data/sampler.js';
import { type Message, promptText } from '../../../models/chat/template.js';
import { framesOf, type VisionInput, withImages, withInputWords } from '../../../models/images/vision_input.js';
import type { TokenAnswer, TokenRequest } from '../../../train/policies/tokens/batch.js';
import { FreeText } from '../../../models/tokenizer/format.js';
import type { RewardSettings } from '../../../rewards/schema/reward.js';
import { decidingTerms } from '../../../rewards/score/choice.js';
import type { RecordedEpisode } from '../../../run/episodes.js';
import type { RolloutSettings, ValidationSettings } from '../../../config/schema/training.js';
import type { PromptRoom, RoomLimits } from '../../../train/scoring/prompt_room.js';
import type { Answers, Prompt, PromptSource, Rendered, Task } from '../../../train/scoring/task.js';
import type { VisionInputs } from '../images/vision.js';
import type { AnswerTokenizer } from './vocabulary.js';

/** The question of a sample. */
export interface Question {
  /** A conversation, or plain text without a chat template. */
  readonly prompt: readonly Message[] | string;
  /** The user's last words. */
  readonly instruction: string;
  /** The labeled answer, if there is one. */
  readonly expected?: string;
}

/** A dataset of questions. */
export interface QuestionSource {
  /** The path as given. */
  readonly name: string;
  readonly length: number;
  readonly remark: string | null;
  readonly digest: ListDigest;
  /** Identifies a sample independently of the machine. */
  id(index: number): string;
  /** The place of a sample, for messages. */
  place(index: number): string;
  /** Returns a sample's question. Raises DataError for a sample with another form. */
  ask(index: number): Question;
  /** All columns that rewards may read. */
  row(index: number): Row;
  /** A digest of a sample's images. Absent if questions contain only words. */
  shown?(index: number): Promise<string>;
}

/**
 * A question in the form for comparison with others. Compares whole conversations, because last turns are often alike.
 */
export function comparedQuestion(source: QuestionSource, index: number): ComparedSample {
  const { prompt } = source.ask(index);
  return {
    id: source.id(index),
    words: typeof prompt === 'string' ? prompt : JSON.stringify(prompt),
    image: source.shown === undefined ? null : () => must(source.shown?.(index), 'what is shown'),
  };
}

/** The images of a question. */
export interface ShownImages {
  readonly images: readonly VisionInput[];
  /** A PNG of the image, for people. */
  readonly png: () => Promise<Uint8Array>;
}

/** Shows the images of a recipe's questions to the policy. */
export interface QuestionImages<Source extends QuestionSource = QuestionSource> {
  readonly inputs: Pick<VisionInputs, 'processor' | 'tokens' | 'marks'>;
  /** Upper bound of the tokens of a sample's images and of the words around them, computed without opening the images. */
  maxSideTokens(source: Source, index: number): number;
  /** The images of a sample, in the order of its words. Raises DataError for images that cannot be read. */
  show(source: Source, index: number): Promise<ShownImages>;
}

/** A prompt of the task, ready for the policy. */
export interface TextPrompt extends Prompt, TokenRequest {
  /** The labeled answer, if the sample has one. */
  readonly expected?: string;
  readonly row: Row;
  /** Whether the template has opened the policy's thoughts. */
  readonly thinks: boolean;
}

/** The settings that this task depends on. */
export interface WordsSettings {
  readonly seed: number;
  readonly algorithm: { readonly type: 'grpo' | 'ppo' | 'sft' };
  readonly validation: Pick<ValidationSettings, 'prompts'>;
  readonly rollout: Pick<RolloutSettings, 'episodes_per_iteration' | 'generations_per_sample' | 'max_response_tokens'>;
  readonly reward: RewardSettings;
  readonly policy: {
    readonly model_context_size: number;
    readonly assistant_prefill: string;
    /** Tags around thoughts. If absent or null, rewards read everything that the policy writes. */
    readonly thinking?: { readonly open: string; readonly close: string } | null;
  };
  readonly prompt: { readonly variables: Readonly<Record<string, unknown>> };
}

interface Parts<Source extends QuestionSource> {
  readonly words: AnswerTokenizer;
  readonly data: Datasets<Source>;
  /** Null if questions contain only words. */
  readonly imageInputs: QuestionImages<Source> | null;
}

/** Maximum number of rows per dataset whose length is checked. They represent the others. */
const MAX_CHECKED = 512;
/** Maximum number of tokens that a tokenizer adds around a text. */
const MAX_AROUND = 8;

export class WordsTask<
  S extends WordsSettings = WordsSettings,
  Source extends QuestionSource = QuestionSource,
> implements Task<TextPrompt, TokenAnswer> {
  readonly validation: readonly PromptSource<TextPrompt>[];
  readonly format: FreeText;
  /** One if questions contain images or clips, whose frames are counted only when they are opened. Else undefined. */
  readonly sources?: number;

  private constructor(
    readonly settings: S,
    readonly words: AnswerTokenizer,
    /** The tokens with which every answer begins. */
    private readonly prefill: readonly number[],
    readonly data: Datasets<Source>,
    private readonly imageInputs: QuestionImages<Source> | null,
  ) {
    if (imageInputs !== null) this.sources = 1;
    this.format = new FreeText(words.tokenizer, new Set(words.ends));
    this.validation = data.prompts((source, index) => this.promptOf(source, index));
  }

  static async open<S extends WordsSettings, Source extends QuestionSource>(
    settings: S,
    { words, data, imageInputs }: Parts<Source>,
  ): Promise<WordsTask<S, Source>> {
    const prefill = await words.tokenizer.encode(settings.policy.assistant_prefill, { addSpecial: false });
    return new WordsTask(settings, words, prefill, data, imageInputs);
  }

  /**
   * Number of rows of each source that a run uses, from the first one. Held-out sources have as many as are evaluated.
   */
  get rowsUsed(): ReadonlyMap<Source, number> {
    const { prompts } = this.settings.validation;
    return new Map([
      ...this.data.train.map((source) => [source, source.length] as const),
      ...this.data.validation.map((source) => [source, Math.min(source.length, prompts)] as const),
    ]);
  }

  get order(): TrainingOrder {
    return this.data.order;
  }

  prompt(position: number | SamplePlace): Promise<TextPrompt> {
    const { source, index } = this.data.at(position);
    return this.promptOf(source, index);
  }

  /**
   * Builds a prompt. Raises DataError for a row with another form, a failing template, or a context without room for an
   * answer.
   */
  async promptOf(source: Source, index: number): Promise<TextPrompt> {
    const { instruction, expected, text, addSpecial } = await this.#textOf(source, index);
    const place = source.place(index);
    const shown = await this.imageInputs?.show(source, index);
    const ids = await this.#encode(text, addSpecial, place, shown?.images);
    if (!this.#leavesRoom(ids)) throw this.#tooLong(`a prompt of ${ids.length} tokens leaves`, place);
    const label = expected === undefined ? {} : { expected };
    const { thinking = null, assistant_prefill: prefill } = this.settings.policy;
    const thinks = opensThought(text, prefill, thinking);
    const tokens = shown === undefined ? { ids } : { ids, images: shown.images };
    const row = source.row(index);
    return { id: source.id(index), instruction, sourcePng: shown?.png ?? null, tokens, thinks, ...label, row };
  }

  /** A labeled answer as the policy would write it, after the prefill, with its end token. */
  async labelIds(expected: string): Promise<Int32Array> {
    const prefill = this.settings.policy.assistant_prefill;
    const words = expected.startsWith(prefill) ? expected.slice(prefill.length) : expected;
    return Int32Array.from([...(await this.words.tokenizer.encode(words, { addSpecial: false })), this.words.end]);
  }

  /**
   * Checks every prompt that a run may use.
   * Raises DataError for the first invalid prompt, for a missing label that is needed, and for a label that the reward
   * cannot compare with. Also raises it, with their number and the first one, if the context leaves some prompts no
   * room for an answer or for the label.
   */
  async checkPrompts(): Promise<void> {
    let first: { readonly place: string; readonly tokens: number } | null = null;
    let [looked, tooLong] = [0, 0];
    const { policy, algorithm } = this.settings;
    const isSupervised = algorithm.type === 'sft';
    const reward = isSupervised
      ? undefined
      : decidingTerms(this.settings.reward).find(({ kind }) => kind.needs.words === true);
    const compares = isSupervised ? 'supervised training' : reward && `reward '${reward.name}'`;
    for (const [source, length] of this.rowsUsed) {
      for (let index = 0; index < length; index++) {
        const { text, addSpecial, expected } = await this.#textOf(source, index);
        looked += 1;
        if (expected === undefined && compares !== undefined) throw unlabeledRow(compares, source.place(index));
        const wrong = reward?.kind.wrongLabel?.(expected ?? '', reward.fields) ?? null;
        if (wrong !== null) throw wrongLabel(wrong, source.place(index));
        const label = isSupervised ? (expected ?? '') : '';
        const over = await this.#beyond(source, index, { text, addSpecial }, policy.model_context_size - 1, label);
        if (over === null) continue;
        tooLong += 1;
        first ??= { place: source.place(index), tokens: over.prompt + over.answer };
      }
    }
    if (first === null) return;
    const found = `${tooLong} of ${looked} prompts${isSupervised ? ' with their labeled answers' : ''} are too long`;
    throw this.#tooLong(`${found}: the first, of ${first.tokens} tokens, leaves`, first.place);
  }

  /**
   * The ids of a question with these images that belongs to no sample, without the prefill. Raises the DataErrors of
   * `promptOf`.
   */
  async idsOf(
    conversation: Question['prompt'],
    where: string,
    images?: readonly VisionInput[],
  ): Promise<readonly number[]> {
    const options = { addGenerationPrompt: true, variables: this.settings.prompt.variables };
    const { text, addSpecial } = await promptText(this.words, conversation, options);
    return this.#encode(text, addSpecial, where, images);
  }

  /**
   * Context left for answers, in each dataset whose prompts are answered: only held-out ones in supervised training.
   * Raises the errors of `checkPrompts` for an invalid prompt.
   */
  async room(): Promise<PromptRoom[]> {
    const { algorithm } = this.settings;
    const { context, answer } = this.roomLimits;
    const answered = [...this.rowsUsed].filter(
      ([source]) => algorithm.type !== 'sft' || !this.data.train.includes(source),
    );
    const rooms: PromptRoom[] = [];
    for (const [source, length] of answered) {
      const looked = Math.min(length, MAX_CHECKED);
      const left: number[] = [];
      for (let i = 0; i < looked; i++) {
        const index = Math.floor((i * length) / looked);
        const over = await this.#beyond(source, index, await this.#textOf(source, index), context, answer);
        if (over !== null) left.push(Math.max(0, context - over.prompt));
      }
      const ends = left.length === 0 ? { least: 0, most: 0 } : { least: Math.min(...left), most: Math.max(...left) };
      rooms.push({ name: source.name, checked: looked, short: left.length, ...ends });
    }
    return rooms;
  }

  /**
   * The number of tokens of a row's prompt and answer if together they exceed `limit`, else null. The answer is a label
   * or a number of tokens. Opens images only if they might not fit.
   */
  async #beyond(
    source: Source,
    index: number,
    { text, addSpecial }: { readonly text: string; readonly addSpecial: boolean },
    limit: number,
    label: string | number,
  ): Promise<{ readonly prompt: number; readonly answer: number } | null> {
    const imageTokens = this.imageInputs?.maxSideTokens(source, index) ?? 0;
    // A token represents at least one byte, except for tokens that a tokenizer adds around a text.
    const bytes = typeof label === 'number' ? label : Buffer.byteLength(label);
    if (text.trim() !== '' && Buffer.byteLength(text) + bytes + MAX_AROUND + imageTokens <= limit) return null;
    const textIds = await this.#encode(text, addSpecial, source.place(index));
    // The last token of a label is written but never read.
    const answer = typeof label === 'number' ? label : label === '' ? 0 : (await this.labelIds(label)).length - 1;
    if (textIds.length + imageTokens + answer <= limit) return null;
    const shown = await this.imageInputs?.show(source, index);
    const prompt = (await this.#encode(text, addSpecial, source.place(index), shown?.images)).length;
    return prompt + answer > limit ? { prompt, answer } : null;
  }

  get roomLimits(): RoomLimits {
    const { policy, rollout } = this.settings;
    return { context: policy.model_context_size, answer: rollout.max_response_tokens };
  }

  /**
   * The ids of a text, with the tokens of its images and the words around them if they are given. Raises DataError for a
   * text without tokens, which cannot be continued, and for images that do not match the text.
   */
  async #encode(
    text: string,
    addSpecial: boolean,
    where: string,
    images?: readonly VisionInput[],
  ): Promise<readonly number[]> {
    const { inputs = null } = this.imageInputs ?? {};
    const isShown = inputs !== null && images !== undefined;
    const whole = isShown ? withInputWords(text, images, inputs.marks, where) : text;
    const ids = await this.words.tokenizer.encode(whole, { addSpecial });
    if (ids.length > 0) {
      return isShown ? withImages(ids, images, inputs.tokens, inputs.processor.settings.sizes, where) : ids;
    }
    throw new DataError('the prompt is empty', { where, next: 'Remove this row.' });
  }

  /** A row's question and the text that the policy reads. */
  async #textOf(source: Source, index: number): Promise<Question & Awaited<ReturnType<typeof promptText>>> {
    const { prompt, policy } = this.settings;
    const where = source.place(index);
    const question = source.ask(index);
    const options = { addGenerationPrompt: true, variables: prompt.variables };
    try {
      return { ...question, ...(await promptText(this.words, question.prompt, options, policy.assistant_prefill)) };
    } catch (cause) {
      if (!(cause instanceof DataError)) throw cause;
      const details = cause.next === undefined ? { cause } : { next: cause.next, cause };
      throw new DataError(`${cause.message} (${cause.where ?? 'no template'})`, { where, ...details });
    }
  }

  #leavesRoom(ids: readonly number[]): boolean {
    return ids.length < this.settings.policy.model_context_size;
  }

  #tooLong(found: string, where: string): DataError {
    const size = this.settings.policy.model_context_size;
    return new DataError(`${found} no room for an answer: model_context_size is ${size}`, {
      where,
      next: 'Raise policy.model_context_size, or remove such rows.',
    });
  }

  async render(chunk: readonly Answers<TextPrompt, TokenAnswer>[]): Promise<Rendered[][]> {
    return chunk.map(({ prompt: { instruction, expected, thinks, row, tokens }, answers, keys }) => {
      const seen = tokens.images === undefined ? {} : { seen: framesOf(tokens.images) };
      return answers.map(({ ids, finished }, i): Rendered => {
        const text = this.textOf({ ids, finished });
        const { thought, answer } = splitThought(text, this.settings.policy.thinking ?? null, thinks);
        const thinking = thought === null ? {} : { thought };
        const images = { source: null, edited: null, truth: null, ...seen };
        const label = expected === undefined ? {} : { expected };
        return {
          item: { key: keys[i], instruction, ...images, answer, ...label, row, finished },
          record: { text, ...thinking, ...(thought === null ? {} : { answer }), ...label, tokens: [...ids] },
          caption: instruction,
          ...thinking,
        };
      });
    });
  }

  /**
   * The text of an answer including its prefill. Both are decoded together, because a tokenizer may drop the space
   * before a first word.
   */
  textOf({ ids, finished }: Pick<TokenAnswer, 'ids' | 'finished'>): string {
    const ownIds = finished ? ids.subarray(0, -1) : ids;
    return this.words.tokenizer.decode([...this.prefill, ...ownIds], { skipSpecial: true });
  }

  reread({ key, tokens, finished }: RecordedEpisode): TokenAnswer {
    if (tokens === undefined) throw new RunError('the episode record has no tokens', { where: key });
    return { ids: Int32Array.from(tokens), logProbs: new Float32Array(tokens.length), finished };
  }

  async labels({ expected }: TextPrompt): Promise<{ truth: null; expected?: string }> {
    return { truth: null, ...(expected === undefined ? {} : { expected }) };
  }

  async dispose(): Promise<void> {}
}

/** The error for a missing label. `needs` is what requires it. */
export function unlabeledRow(needs: string, where: string): DataError {
  return new DataError(`the row has no labeled answer, and ${needs} needs one`, {
    where,
    next: 'Name its column in data.columns.expected, or remove such rows.',
  });
}

function wrongLabel(wrong: string, where: string): DataError {
  return new DataError(wrong, { where, next: 'Correct this label, or remove the row.' });
}

/** An answer split into its thought, or null, and the text that rewards read. */
export interface SplitText {
  readonly thought: string | null;
  readonly answer: string;
}

/** Whether the template has opened a thought, in a text that ends with the prefill. */
export function opensThought(text: string, prefill: string, thinking: { readonly open: string } | null): boolean {
  return (
    thinking !== null &&
    text
      .slice(0, text.length - prefill.length)
      .trimEnd()
      .endsWith(thinking.open)
  );
}

/**
 * Splits a text at its thinking tags. `opened` means that the prompt contains the opening tag. A thought that is never
 * closed leaves no answer.
 */
export function splitThought(
  text: string,
  thinking: NonNullable<WordsSettings['policy']['thinking']> | null,
  opened = false,
): SplitText {
  if (thinking === null) return { thought: null, answer: text.trim() };
  const { open, close } = thinking;
  const end = text.lastIndexOf(close);
  if (end >= 0) {
    const before = text.slice(0, end);
    const start = before.indexOf(open);
    const thought = start < 0 ? before : before.slice(start + open.length);
    return { thought: thought.trim(), answer: text.slice(end + close.length).trim() };
  }
  const start = text.indexOf(open);
  if (start < 0 && !opened) return { thought: null, answer: text.trim() };
  return { thought: (start < 0 ? text : text.slice(start + open.length)).trim(), answer: '' };
}
