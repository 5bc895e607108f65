/**
 * Computes the inputs of the model's head for prompts and exactly their sampled answers, in one forward pass. Samples
 * nothing.
 */
import { DataError, must } from '../../../core/errors.js';
import { poolFor, type SessionOptions } from '../../../compute/onnx/session.js';
import type { Graph } from '../../../compute/graph/ir.js';
import type { Weights } from '../../../models/files.js';
import { hiddenStates } from '../../../compute/nets/decoder/decoder.js';
import { type BatchShape, sequenceInputs } from '../../../compute/nets/decoder/inputs.js';
import { SessionCache } from '../../../compute/onnx/session_cache.js';
import { packPrompts, promptColumns, roundUp } from './batch.js';
import type { TokenPrompt } from '../../../models/tokenizer/format.js';
import { openVisionTower, type VisionTower } from './vision_tower.js';
import type { PolicyModel } from '../../../models/adapters/policy_model.js';

/** A request for hidden states. */
export interface StatesRequest {
  readonly prompt: TokenPrompt;
  /** All tokens of the answer, including its end. Null reads only the prompt. */
  readonly answer: Int32Array | null;
  /** Index of the first prompt token in the result. Earlier tokens, such as a system message, are read but left out. */
  readonly from: number;
  /** End of the tokens in the result. Default: the end of prompt and answer. Only allowed without an answer. */
  readonly to?: number;
}

/** Hidden states [tokens, width], in order. */
export interface HiddenStates {
  readonly width: number;
  readonly states: Float32Array;
  /** The tokens that the states belong to. */
  readonly ids: Int32Array;
}

/**
 * Computes hidden states with one model and keeps its sessions between calls. Each item is padded separately, so its
 * states have the same bits whatever else is in the request.
 */
export class Reader {
  readonly #sessions: SessionCache;
  readonly #visionTower: VisionTower | null;

  constructor(
    readonly model: PolicyModel,
    readonly options: { readonly session: SessionOptions; readonly visionTower?: VisionTower | null },
  ) {
    this.#sessions = new SessionCache('hidden states', options.session, poolFor(options.session));
    this.#visionTower =
      options.visionTower === undefined ? openVisionTower(model, options.session) : options.visionTower;
  }

  /** Computes states under `weights`, which may belong to another model of the same architecture. */
  async read(items: readonly StatesRequest[], weights: Weights): Promise<HiddenStates[]> {
    const out: HiddenStates[] = [];
    for (const item of items) out.push(await this.#readOne(item, this.#shapeOf(item), weights));
    return out;
  }

  async dispose(): Promise<void> {
    await Promise.all([
      this.#sessions.dispose(),
      this.options.visionTower === undefined ? this.#visionTower?.dispose() : null,
    ]);
  }

  #shapeOf({ prompt, answer }: StatesRequest): BatchShape {
    return {
      prompts: 1,
      answersPerPrompt: 1,
      promptColumns: promptColumns([prompt]),
      answerColumns: roundUp(1 + (answer?.length ?? 0)),
      ...(this.#visionTower === null ? {} : { images: this.#visionTower.shape([prompt]) }),
    };
  }

  async #readOne(
    { prompt, answer, from, to }: StatesRequest,
    shape: BatchShape,
    weights: Weights,
  ): Promise<HiddenStates> {
    const { hidden_size: width } = this.model.config;
    const all = Int32Array.from([...prompt.ids, ...(answer ?? [])]);
    const end = to ?? all.length;
    if (from < 0 || from >= end || (to !== undefined && (answer !== null || to > prompt.ids.length))) {
      throw new DataError(`found tokens ${from} to ${end} of a prompt of ${prompt.ids.length}; allowed: some of them`);
    }
    const answerIds = new BigInt64Array(shape.answerColumns);
    const last = prompt.ids.length - 1;
    all.subarray(last).forEach((id, column) => (answerIds[column] = BigInt(id)));
    const feeds = {
      ...packPrompts([prompt], 1, shape.promptColumns),
      answer_ids: answerIds,
      ...(await this.#visionTower?.feeds([prompt], shape)),
    };
    const build = (graph: Graph) => ({ states: hiddenStates(this.model.config, shape, sequenceInputs(graph, shape)) });
    const run = await this.#sessions.use(shape, build, (session) => session.run(feeds, weights));
    const rows = must(run['states'], 'states') as Float32Array;
    // The prompt's columns end before its last token, which is the first of the answer's columns.
    const first = shape.promptColumns - last + from;
    return { width, states: rows.slice(first * width, (first + end - from) * width), ids: all.slice(from, end) };
  }
}
