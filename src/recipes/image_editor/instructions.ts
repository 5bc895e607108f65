/** The text input of an editing model: hidden states of a vision-language model, or the tokens of a text encoder. */
import { CheckpointError, DataError } from '../../core/errors.js';
import type { FlowTransformerConfig } from '../../compute/nets/flow/config.js';
import { sessionOptions } from '../../compute/onnx/session.js';
import type { Datasets } from '../../data/datasets.js';
import { tinyVocabulary } from '../../data/tiny/edits.js';
import { modelFolder, type RunResolver } from '../../models/reference.js';
import { WordEncoder, wordsIn, type PromptEncoder } from '../../train/environments/word_encoder.js';
import { requireReadsEncoded, requireReadsStates, type EditText } from '../../train/policies/flow/editor.js';
import { Reader, type HiddenStates } from '../../train/policies/tokens/hidden_states.js';
import { loadPolicy } from '../../train/policies/tokens/load.js';
import {
  editOf,
  firstImageToken,
  openVisionEditTask,
  type VisionEditSource,
  type VisionEditTask,
  type VisionEditSettings,
} from '../shared/images/edits.js';
import { openTextEncoder } from '../shared/flow/parts.js';
import type { TextPrompt } from '../shared/words/task.js';
import { NOTHING_TRAINS, TINY_WORDS, type ImageEditorSettings } from './settings.js';

/** An instruction as the model reads it. */
export interface ReadInstruction {
  readonly text: EditText;
  /** The same for a blank instruction, if it was asked for. */
  readonly blank: EditText | null;
  /** The response that the model reads as well, in words. Null for none. */
  readonly response: string | null;
}

/** Reads the instructions of rows. */
export interface Instructions {
  /** Width of a token. */
  readonly width: number;
  /** Raises CheckpointError, naming `where`, for a model that expects another kind of text. */
  requireFit(config: FlowTransformerConfig, where: string): void;
  /** Raises DataError for a row that cannot be read. */
  read(source: VisionEditSource, index: number, withBlank: boolean): Promise<ReadInstruction>;
  dispose(): Promise<void>;
}

/** Opens the reader of the instructions. Raises DataError and CheckpointError for parts that are missing or do not match. */
export async function openInstructions(
  settings: ImageEditorSettings,
  data: Datasets<VisionEditSource>,
  resolveRun: RunResolver,
): Promise<Instructions> {
  const { reader, policy } = settings;
  if (reader !== null) return StatesOfReader.open(settings, reader, data, resolveRun);
  const { text_encoder: encoder } = policy.parts;
  return new TextOfEncoder(
    encoder === null ? wordsOf(settings) : openTextEncoder(encoder, policy.engine, resolveRun),
    encoder === null ? 'the tiny world' : 'policy.parts.text_encoder',
  );
}

/** The words of the tiny world's instructions. */
function wordsOf({ data: { tiny } }: Pick<ImageEditorSettings, 'data'>): WordEncoder {
  if (tiny === null) throw new DataError('found neither a reader nor a text encoder, nor the tiny world');
  const words = tinyVocabulary({ columns: tiny.grid, rows: tiny.grid, cell: tiny.cell }).flatMap(wordsIn);
  return new WordEncoder({ words: [...new Set(words)], length: TINY_WORDS });
}

class TextOfEncoder implements Instructions {
  constructor(
    private readonly encoder: PromptEncoder,
    private readonly name: string,
  ) {}

  get width(): number {
    return this.encoder.width;
  }

  requireFit(config: FlowTransformerConfig, where: string): void {
    requireReadsEncoded(config, this.encoder, where);
    if (config.architecture !== 'qwen_image') return;
    throw new CheckpointError(
      'the model was trained with a reader of image and instruction, and a text encoder reads only words',
      {
        where,
        next: "Name the pipeline's text_encoder folder in reader.model instead, as configs/lib/qwen_image_edit.libsonnet does.",
      },
    );
  }

  async read({ edits }: VisionEditSource, index: number, withBlank: boolean): Promise<ReadInstruction> {
    const { instruction, where } = edits.read(index);
    const text = await this.encoder.encode(instruction);
    if (text.unread > 0) {
      throw new DataError(`the text encoder (${this.name}) cuts the last ${text.unread} tokens of the instruction`, {
        where,
        next: 'Shorten the instruction, or remove this row.',
      });
    }
    return { text, blank: withBlank ? ((await this.encoder.blank?.()) ?? null) : null, response: null };
  }

  dispose(): Promise<void> {
    return this.encoder.dispose();
  }
}

/** Nothing is sampled in words, and only a response of the dataset is read. */
const NOTHING_WRITTEN = { episodes_per_iteration: 1, generations_per_sample: 1, max_response_tokens: 1 } as const;

export class StatesOfReader implements Instructions {
  constructor(
    private readonly task: VisionEditTask<VisionEditSettings>,
    private readonly reader: Reader,
    private readonly readsResponse: boolean,
  ) {}

  static async open(
    settings: ImageEditorSettings,
    { model, pixels, model_context_size, engine, told }: NonNullable<ImageEditorSettings['reader']>,
    data: Datasets<VisionEditSource>,
    resolveRun: RunResolver,
  ): Promise<StatesOfReader> {
    const readsResponse = told === 'response';
    const asking = { model, init: null, tokenizer: null, pixels, model_context_size, assistant_prefill: '' };
    const task = await openVisionEditTask({ ...settings, rollout: NOTHING_WRITTEN, policy: asking }, data, resolveRun);
    if (readsResponse) await task.words.checkPrompts();
    const read = loadPolicy(modelFolder(model, resolveRun), task.words.format, null, NOTHING_TRAINS, engine.dtype);
    return new StatesOfReader(task, new Reader(read, { session: sessionOptions(engine) }), readsResponse);
  }

  get width(): number {
    return this.reader.model.config.hidden_size;
  }

  requireFit(config: FlowTransformerConfig, where: string): void {
    requireReadsStates(config, where);
  }

  async read(source: VisionEditSource, index: number, withBlank: boolean): Promise<ReadInstruction> {
    const textPrompt = await this.task.words.promptOf(source, index);
    return {
      text: await this.#states(textPrompt.tokens, await this.#answerTo(textPrompt)),
      blank: withBlank ? await this.#states(await this.task.blank(textPrompt), null) : null,
      response: this.readsResponse ? editOf(textPrompt).response : null,
    };
  }

  async dispose(): Promise<void> {
    await Promise.all([this.task.words.dispose(), this.reader.dispose()]);
  }

  /** The labeled response in tokens. Null if only the instruction is read. Raises DataError for a row without the label. */
  async #answerTo(textPrompt: TextPrompt): Promise<Int32Array | null> {
    if (!this.readsResponse) return null;
    if (textPrompt.expected !== undefined) return this.task.words.labelIds(textPrompt.expected);
    throw new DataError('the row has no response for the model', {
      where: editOf(textPrompt).where,
      next: "Name its column in data.columns.response, remove such rows, or set reader.told to 'instruction'.",
    });
  }

  /** The states from the first image on: the system message is read, but the editor does not see its states. */
  async #states(prompt: TextPrompt['tokens'], answer: Int32Array | null): Promise<HiddenStates> {
    const from = firstImageToken(prompt.ids, this.task.seeing, this.task.imageName);
    const [states] = await this.reader.read([{ prompt, answer, from }], this.reader.model.weights);
    return states;
  }
}
