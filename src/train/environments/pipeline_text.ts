/**
 * The text encoders of FLUX and Stable Diffusion 3 as they are in the folder of a pipeline, computed from their own weights: one or two CLIPs, whose
 * summaries are joined, and T5. Stable Diffusion 3 also reads the CLIPs' tokens, joined and filled up with zeros to the width of T5's, before these.
 */
import { join } from 'node:path';
import { CheckpointError } from '../../core/errors.js';
import type { FloatTensor, HeldDtype } from '../../core/safetensors.js';
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
import { partFolder, type Pipeline, requireParts, type TextPart } from '../../models/pipeline.js';
import { encodeClipText, readClipText, summaryWidth } from '../../compute/nets/clip/clip.js';
import { describeFlowTransformer } from '../../models/networks/flow.js';
import { encodeT5, readT5Config } from '../../compute/nets/t5.js';
import { PaddedTokenizer } from '../../rewards/terms/clip/tokenizer.js';
import type { EncodedPrompt, PromptEncoder } from './word_encoder.js';

type Output = 'states' | 'summary';

/** An encoder's graph over ids [1, T], and where its weights are. */
interface Described {
  readonly graph: Graph;
  readonly outputs: Readonly<Partial<Record<Output, Value>>>;
  readonly files: TensorFiles;
  readonly stored: (name: string) => string;
  /** Widths of its states, and of its summary. 0 for none. */
  readonly width: number;
  readonly summary: number;
  readonly vocabulary: number;
}

const IDS = 'ids';

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
  return { graph, outputs, files, stored, ...widths };
}

/** The same table once more, as some files have it. */
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
    width: config.d_model,
    summary: 0,
    vocabulary: config.vocab_size,
  };
}

/** An encoder behind its tokenizer. Its weights are read when it is first asked. */
class TextReader {
  readonly width: number;
  readonly summary: number;
  readonly parameters: number;
  readonly widest: number;
  readonly #model: Lazy<FrozenGraph<Output>>;

  constructor(
    private readonly tokenizer: PaddedTokenizer,
    private readonly described: Described,
    folder: string,
    options: ModelFileOptions,
    private readonly held: HeldDtype,
  ) {
    // On one thread: otherwise the last bits depend on the number of threads.
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
    const { ids } = await this.tokenizer.encode(prompt);
    const found = await (await this.#model.get()).run({ [IDS]: ids });
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

export class PipelineTextEncoder implements PromptEncoder {
  readonly width: number;
  readonly pooledWidth: number;
  /** Numbers that its encoders read from files. */
  readonly parameters: number;
  /** Those of the largest. */
  readonly largest: number;
  /** Those of the largest matrix of all. */
  readonly widest: number;
  readonly #clips: readonly TextReader[];
  readonly #t5: TextReader | null;
  #blank: Promise<EncodedPrompt> | null = null;

  /**
   * Weights are read when it is first asked; `held` in float16, matrices in half of the memory. Raises CheckpointError for parts that are missing, of
   * another form, or that do not go together.
   */
  constructor(
    private readonly pipeline: Pipeline,
    options: ModelFileOptions = {},
    held: HeldDtype = 'float32',
  ) {
    const { form, t5 } = pipeline;
    requireParts(pipeline);
    const projects = form.clip === 'CLIPTextModelWithProjection';
    const open = (
      part: TextPart,
      length: { readonly tokens: number; readonly isMost: boolean },
      describe: (folder: string, length: number) => Described,
    ): TextReader => {
      const folder = partFolder(pipeline, part.encoder);
      const tokenizer = PaddedTokenizer.read(partFolder(pipeline, part.tokenizer), length.tokens, length.isMost);
      return new TextReader(tokenizer, describe(folder, tokenizer.context), folder, options, held);
    };
    this.#clips = form.clips.map((part) =>
      open(part, { tokens: CLIP_LENGTH, isMost: true }, (folder, length) =>
        describeClip(folder, projects, length, this.#readsClips),
      ),
    );
    // diffusers tells T5's tokenizer the length, whatever its folder says.
    this.#t5 = t5 === null ? null : open(t5, { tokens: form.t5Length, isMost: false }, describeT5);
    this.width = this.#t5?.width ?? describeFlowTransformer(partFolder(pipeline, 'transformer')).joint_attention_dim;
    this.pooledWidth = this.#clips.reduce((sum, { summary }) => sum + summary, 0);
    const readers = [...this.#clips, ...(this.#t5 === null ? [] : [this.#t5])];
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

  /** A token counts as read if any of the tokenizers reads it. */
  async encode(prompt: string): Promise<EncodedPrompt> {
    const clips = [];
    for (const clip of this.#clips) clips.push(await clip.encode(prompt));
    const t5 = (await this.#t5?.encode(prompt))?.states ?? new Float32Array(this.pipeline.form.t5Length * this.width);
    const pooled = Float32Array.from(clips.flatMap(({ summary = [] }) => [...summary]));
    const text = this.#readsClips
      ? this.#joined(
          clips.map(({ states }) => states ?? new Float32Array(0)),
          t5,
        )
      : t5;
    return { text, pooled, unread: await this.unread(prompt) };
  }

  /** What guidance is measured from: a prompt of no words. */
  blank(): Promise<EncodedPrompt> {
    if (this.#blank === null) {
      this.#blank = this.encode('');
      // As of a model that could not be opened, a failure is not kept.
      this.#blank.catch(() => (this.#blank = null));
    }
    return this.#blank;
  }

  async unread(prompt: string): Promise<number> {
    const readers = this.#t5 === null ? this.#clips : [...this.#clips, this.#t5];
    return Math.min(...(await Promise.all(readers.map((reader) => reader.unread(prompt)))));
  }

  async dispose(): Promise<void> {
    const readers = this.#t5 === null ? this.#clips : [...this.#clips, this.#t5];
    await Promise.all(readers.map((reader) => reader.dispose()));
  }

  get #readsClips(): boolean {
    return this.pipeline.form.family === 'sd3';
  }

  #joined(clips: readonly Float32Array[], t5: Float32Array): Float32Array {
    const { length } = this.#clips[0];
    const out = new Float32Array(length * this.width + t5.length);
    for (let token = 0; token < length; token++) {
      let at = token * this.width;
      clips.forEach((states, c) => {
        const { width } = this.#clips[c];
        out.set(states.subarray(token * width, (token + 1) * width), at);
        at += width;
      });
    }
    out.set(t5, length * this.width);
    return out;
  }
}

/** Tokens that a CLIP reads, where its tokenizer does not say less. */
const CLIP_LENGTH = 77;
