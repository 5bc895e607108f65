/**
 * The text encoders in a pipeline folder of FLUX or Stable Diffusion 3, computed with their own weights: one or two
 * CLIPs, whose summaries are concatenated, and T5.
 * Stable Diffusion 3 also uses the CLIPs' tokens, concatenated, padded with zeros to T5's width, and placed before T5's
 * tokens. FLUX.2-klein has Qwen3 alone and uses its states after three layers.
 */
import { join } from 'node:path';
import { CheckpointError } from '../../core/errors.js';
import type { FloatTensor, StorageDtype } from '../../core/safetensors.js';
import { FrozenGraph, Lazy, type OpenedGraph } from '../../compute/onnx/frozen_graph.js';
import type { ModelFileOptions } from '../../compute/onnx/model_file.js';
import { Graph, type Shape, sizeOf, type Value } from '../../compute/graph/ir.js';
import {
  checkWeights,
  CONFIG_FILE,
  readConfig,
  readWeights,
  rejectUnread,
  tensorFiles,
  type TensorFiles,
} from '../../models/files.js';
import type { ChatTemplate } from '../../models/chat/template.js';
import { checkDecoder, describeDecoder, storedNames } from '../../models/networks/decoder.js';
import { partFolder, type Pipeline, requireParts, type StatesPart, type TextPart } from '../../models/pipeline.js';
import { openTokenizer } from '../../models/tokenizer/open.js';
import { openChatTemplate } from '../../models/tokenizer/texts.js';
import type { Tokenizer } from '../../models/tokenizer/tokenizer.js';
import { layerStates } from '../../compute/nets/decoder/decoder.js';
import { encodeClipText, readClipText, summaryWidth } from '../../compute/nets/clip/clip.js';
import { describeFlowTransformer } from '../../models/networks/flow.js';
import { encodeT5, readT5Config } from '../../compute/nets/t5.js';
import {
  PaddedTokenizer,
  type TextReader as TextTokenizer,
  type TextTokens,
} from '../../rewards/terms/clip/tokenizer.js';
import { PADDING } from '../policies/tokens/batch.js';
import type { EncodedPrompt, PromptEncoder } from './word_encoder.js';

type Output = 'states' | 'summary';

/** An encoder's graph for ids [1, T], and the files of its weights. */
interface Described {
  readonly graph: Graph;
  readonly outputs: Readonly<Partial<Record<Output, Value>>>;
  readonly files: TensorFiles;
  readonly stored: (name: string) => string;
  /** Whether the graph has the input padding [1, T]: 0 for tokens, a large negative number after them. */
  readonly masksPadding: boolean;
  /** Widths of its states and of its summary. 0 for none. */
  readonly width: number;
  readonly summary: number;
  readonly vocabulary: number;
}

const IDS = 'ids';
const PADDED = 'padding';

const shapesOf = ({ graph }: Pick<Described, 'graph'>): Map<string, Shape> =>
  new Map([...graph.parameters].map(([name, { shape }]) => [name, shape]));

function describeClip(folder: string, projects: boolean, length: number, readsStates: boolean): Described {
  const config = readClipText(readConfig(folder), join(folder, CONFIG_FILE), projects);
  if (length > config.max_position_embeddings) {
    throw new CheckpointError(
      `this CLIP has ${config.max_position_embeddings} places, and its tokenizer gives ${length} tokens`,
      {
        where: folder,
      },
    );
  }
  const graph = new Graph('clip_text');
  const { states, summary } = encodeClipText(config, graph.input(IDS, [1, length], 'int64'));
  const files = tensorFiles(folder);
  const isBare = files.has('embeddings.token_embedding.weight');
  const stored = (name: string): string => (isBare ? name.replace(/^text_model\./, '') : name);
  const known = new Set([...shapesOf({ graph }).keys()].map(stored));
  rejectUnread(folder, files, (name) => known.has(name) || /(^|\.)embeddings\.position_ids$/.test(name));
  const outputs = { ...(readsStates ? { states } : {}), summary };
  const widths = { width: config.hidden_size, summary: summaryWidth(config), vocabulary: config.vocab_size };
  return { graph, outputs, files, stored, masksPadding: false, ...widths };
}

/** Names of the same table in different files. */
const T5_TABLES = ['shared.weight', 'encoder.embed_tokens.weight'];

function describeT5(folder: string, length: number): Described {
  const config = readT5Config(readConfig(folder), join(folder, CONFIG_FILE));
  const graph = new Graph('t5');
  const states = encodeT5(config, graph.input(IDS, [1, length], 'int64'));
  const files = tensorFiles(folder);
  const table = T5_TABLES.find((name) => files.has(name)) ?? T5_TABLES[0];
  const known = shapesOf({ graph });
  rejectUnread(folder, files, (name) => known.has(name) || T5_TABLES.includes(name));
  const stored = (name: string): string => (name === T5_TABLES[0] ? table : name);
  return {
    graph,
    outputs: { states },
    files,
    stored,
    masksPadding: false,
    width: config.d_model,
    summary: 0,
    vocabulary: config.vocab_size,
  };
}

/** Numbers of Qwen3's blocks after which FLUX.2-klein uses the states. Their widths are concatenated. */
const QWEN3_LAYERS = [9, 18, 27];

function describeQwen3(folder: string, length: number): Described {
  const { config } = describeDecoder(folder);
  const most = Math.max(...QWEN3_LAYERS);
  if (config.num_hidden_layers <= most) {
    throw new CheckpointError(
      `the model has ${config.num_hidden_layers} layers, and FLUX.2 reads the states after layer ${most}, which must not be the last`,
      { where: folder, next: 'Name the text encoder that the model was trained with.' },
    );
  }
  checkDecoder(folder);
  const graph = new Graph('qwen3');
  const promptIds = graph.input(IDS, [1, length], 'int64');
  const promptPadding = graph.input(PADDED, [1, length]);
  const states = layerStates(config, { prompts: 1, promptColumns: length }, { promptIds, promptPadding }, QWEN3_LAYERS);
  const files = tensorFiles(folder);
  return {
    graph,
    outputs: { states },
    files,
    stored: storedNames(files, folder),
    masksPadding: true,
    width: QWEN3_LAYERS.length * config.hidden_size,
    summary: 0,
    vocabulary: config.vocab_size,
  };
}

/**
 * Writes a prompt as the only message of a conversation, with an opened answer without thinking, padded on the right.
 * This is the encoding of diffusers' Flux2KleinPipeline. A long prompt loses its last tokens.
 */
class ChatTokenizer implements TextTokenizer {
  readonly #padding: bigint;

  /** Raises CheckpointError for a folder without a template or a padding token. */
  constructor(
    private readonly tokenizer: Tokenizer,
    private readonly template: ChatTemplate,
    readonly context: number,
    padding: string,
  ) {
    this.#padding = BigInt(tokenizer.id(padding));
  }

  static read(folder: string, context: number): ChatTokenizer {
    const tokenizer = openTokenizer(folder);
    const template = openChatTemplate(folder, tokenizer);
    const padding = tokenizer.special['pad_token'];
    if (template !== null && padding !== undefined) return new ChatTokenizer(tokenizer, template, context, padding);
    throw new CheckpointError(`the tokenizer has no ${template === null ? 'chat template' : 'padding token'}`, {
      where: folder,
      next: 'Copy all files of the tokenizer that the model was trained with.',
    });
  }

  get size(): number {
    return this.tokenizer.size;
  }

  async encode(prompt: string): Promise<TextTokens> {
    const kept = (await this.#all(prompt)).slice(0, this.context);
    const ids = new BigInt64Array(this.context).fill(this.#padding);
    kept.forEach((id, at) => (ids[at] = BigInt(id)));
    return { ids, mask: new BigInt64Array(this.context).fill(1n, 0, kept.length) };
  }

  async unread(prompt: string): Promise<number> {
    return Math.max(0, (await this.#all(prompt)).length - this.context);
  }

  async #all(prompt: string): Promise<readonly number[]> {
    const text = await this.template.render([{ role: 'user', content: prompt }], {
      addGenerationPrompt: true,
      variables: { enable_thinking: false },
    });
    return this.tokenizer.encode(text, { addSpecial: true });
  }
}

/** An encoder with its tokenizer. Its weights are read on first use. */
class TextReader {
  readonly width: number;
  readonly summary: number;
  readonly parameters: number;
  readonly widest: number;
  readonly #model: Lazy<FrozenGraph<Output>>;

  constructor(
    private readonly tokenizer: TextTokenizer,
    private readonly described: Described,
    folder: string,
    options: ModelFileOptions,
    private readonly held: StorageDtype,
  ) {
    // One thread, because the last bits depend on the number of threads.
    this.#model = new Lazy(() => FrozenGraph.open(this.#read(), { ...options, threads: 1 }));
    this.width = described.width;
    this.summary = described.summary;
    const sizes = [...shapesOf(described).values()].map(sizeOf);
    this.parameters = sizes.reduce((sum, size) => sum + size, 0);
    this.widest = Math.max(...sizes);
    if (tokenizer.size > described.vocabulary) {
      throw new CheckpointError(`its tokenizer has ${tokenizer.size} tokens, and the model ${described.vocabulary}`, {
        where: folder,
        next: 'Name the tokenizer that the model was trained with.',
      });
    }
    checkWeights(described.files, shapesOf(described), described.stored);
  }

  get length(): number {
    return this.tokenizer.context;
  }

  unread(prompt: string): Promise<number> {
    return this.tokenizer.unread(prompt);
  }

  async encode(prompt: string): Promise<Partial<Record<Output, Float32Array>>> {
    const { ids, mask } = await this.tokenizer.encode(prompt);
    const padding = this.described.masksPadding ? { [PADDED]: Float32Array.from(mask, paddingOf) } : {};
    const found = await (await this.#model.get()).run({ [IDS]: ids, ...padding });
    return Object.fromEntries(Object.entries(found).map(([name, data]) => [name, data.slice()]));
  }

  #read(): OpenedGraph<Output> {
    const { graph, outputs, files, stored } = this.described;
    const weights: Map<string, FloatTensor> = readWeights(files, shapesOf(this.described), stored, this.held);
    return { graph, outputs: outputs as OpenedGraph<Output>['outputs'], weights };
  }

  dispose(): Promise<void> {
    return this.#model.dispose();
  }
}

const paddingOf = (isToken: bigint): number => (isToken === 0n ? PADDING : 0);

/** How the encoders of prompt tokens are opened. */
const statesReaders: Readonly<
  Record<
    StatesPart['kind'],
    {
      readonly tokenizer: (folder: string, length: number) => TextTokenizer;
      readonly describe: (folder: string, length: number) => Described;
    }
  >
> = {
  // diffusers overrides the length in the folder of T5's tokenizer.
  t5: { tokenizer: (folder, length) => PaddedTokenizer.read(folder, length, { isMost: false }), describe: describeT5 },
  qwen3: { tokenizer: (folder, length) => ChatTokenizer.read(folder, length), describe: describeQwen3 },
};

export class PipelineTextEncoder implements PromptEncoder {
  readonly width: number;
  readonly pooledWidth: number;
  /** Number of values that its encoders read from files. */
  readonly parameters: number;
  /** Number of values of the largest encoder. */
  readonly largest: number;
  /** Number of values of the largest matrix. */
  readonly widest: number;
  readonly #clips: readonly TextReader[];
  /** Null if zeros replace its states. */
  readonly #states: TextReader | null;
  #blank: Promise<EncodedPrompt> | null = null;

  /**
   * Reads weights on first use. With `held` float16, matrices take half the memory. Raises CheckpointError for parts
   * that are missing, unsupported or do not match.
   */
  constructor(
    private readonly pipeline: Pipeline,
    options: ModelFileOptions = {},
    held: StorageDtype = 'float32',
  ) {
    const { form, states } = pipeline;
    requireParts(pipeline);
    const projects = form.clip === 'CLIPTextModelWithProjection';
    const open = (
      part: TextPart,
      tokenizer: TextTokenizer,
      describe: (folder: string, length: number) => Described,
    ): TextReader => {
      const folder = partFolder(pipeline, part.encoder);
      return new TextReader(tokenizer, describe(folder, tokenizer.context), folder, options, held);
    };
    this.#clips = form.clips.map((part) =>
      open(part, PaddedTokenizer.read(partFolder(pipeline, part.tokenizer), CLIP_LENGTH), (folder, length) =>
        describeClip(folder, projects, length, this.#readsClips),
      ),
    );
    if (states === null) this.#states = null;
    else {
      const { tokenizer, describe } = statesReaders[states.kind];
      this.#states = open(states, tokenizer(partFolder(pipeline, states.tokenizer), states.length), describe);
    }
    this.width =
      this.#states?.width ?? describeFlowTransformer(partFolder(pipeline, 'transformer')).joint_attention_dim;
    this.pooledWidth = this.#clips.reduce((sum, { summary }) => sum + summary, 0);
    const readers = this.#readers;
    const numbers = readers.map(({ parameters }) => parameters);
    this.parameters = numbers.reduce((sum, one) => sum + one, 0);
    this.largest = Math.max(...numbers);
    this.widest = Math.max(...readers.map(({ widest }) => widest));
    const joined = this.#clips.reduce((sum, { width }) => sum + width, 0);
    if (this.#readsClips && joined > this.width) {
      throw new CheckpointError(`its CLIPs make ${joined} numbers of a token, and the model reads ${this.width}`, {
        where: pipeline.folder,
      });
    }
    const lengths = new Set(this.#clips.map(({ length }) => length));
    if (lengths.size > 1) {
      throw new CheckpointError(`its CLIPs read ${[...lengths].join(' and ')} tokens, which cannot be joined`, {
        where: pipeline.folder,
      });
    }
  }

  /** Encodes a prompt. A token counts as read if any tokenizer reads it. */
  async encode(prompt: string): Promise<EncodedPrompt> {
    const clips = [];
    for (const clip of this.#clips) clips.push(await clip.encode(prompt));
    const { length } = this.pipeline.form.states;
    const states = (await this.#states?.encode(prompt))?.states ?? new Float32Array(length * this.width);
    const pooled = clips.length === 0 ? null : Float32Array.from(clips.flatMap(({ summary = [] }) => [...summary]));
    const text = this.#readsClips
      ? this.#joined(
          clips.map((clip) => clip.states ?? new Float32Array(0)),
          states,
        )
      : states;
    return { text, pooled, unread: await this.unread(prompt) };
  }

  /** The empty prompt of classifier-free guidance. */
  blank(): Promise<EncodedPrompt> {
    if (this.#blank === null) {
      this.#blank = this.encode('');
      // A failure is not cached, as for a model that could not be opened.
      this.#blank.catch(() => (this.#blank = null));
    }
    return this.#blank;
  }

  async unread(prompt: string): Promise<number> {
    return Math.min(...(await Promise.all(this.#readers.map((reader) => reader.unread(prompt)))));
  }

  async dispose(): Promise<void> {
    await Promise.all(this.#readers.map((reader) => reader.dispose()));
  }

  get #readers(): readonly TextReader[] {
    return [...this.#clips, ...(this.#states === null ? [] : [this.#states])];
  }

  get #readsClips(): boolean {
    return this.pipeline.form.family === 'sd3';
  }

  #joined(clips: readonly Float32Array[], states: Float32Array): Float32Array {
    const { length } = this.#clips[0];
    const out = new Float32Array(length * this.width + states.length);
    for (let token = 0; token < length; token++) {
      let at = token * this.width;
      clips.forEach((clip, c) => {
        const { width } = this.#clips[c];
        out.set(clip.subarray(token * width, (token + 1) * width), at);
        at += width;
      });
    }
    out.set(states, length * this.width);
    return out;
  }
}

/** Number of tokens that a CLIP reads if its tokenizer states no other limit. */
const CLIP_LENGTH = 77;
