/**
 * A session on a server of the Tinker training API: one model in training, and sampling sessions of its weights and of
 * the base model.
 */
import { z } from 'zod';
import { type Deadline, sleep } from '../../../core/clock.js';
import { EditrlError, InternalError } from '../../../core/errors.js';
import type { PiecewiseBody } from '../../../core/http/request.js';
import { type Reply, type TinkerConnection, TinkerError } from './connection.js';
import {
  bytesOf,
  checkData,
  checkPrompt,
  type Chunk,
  type Datum,
  type Pass,
  type PassResult,
  type SampleResult,
  parseForm,
  passFromJson,
  sampleFromJson,
  passFromProto,
  sampleFromProto,
  inputJson,
  toJson,
  toProto,
} from './wire.js';

/** Losses that every server has. */
export type Loss = 'cross_entropy' | 'importance_sampling';
export type Dialect = 'auto' | 'proto' | 'json';

export interface SessionOptions {
  readonly connection: TinkerConnection;
  readonly dialect: Dialect;
  readonly baseModel: string;
  readonly lora: { readonly rank: number; readonly seed: number };
  /** Shown by the server to identify the session's owner. */
  readonly tags: readonly string[];
  readonly version: string;
  /** Receives the numbers of tokens read, written and trained on, after each operation. */
  readonly count?: (kind: 'prefill' | 'sampled' | 'trained', tokens: number) => void;
}

export interface AdamParams {
  readonly learning_rate: number;
  readonly beta1: number;
  readonly beta2: number;
  readonly eps: number;
  readonly weight_decay: number;
  /** 0 means no limit. */
  readonly grad_clip_norm: number;
}

export interface SampleRequest {
  readonly prompt: readonly Chunk[];
  readonly count: number;
  readonly maxTokens: number;
  readonly temperature: number;
  readonly seed: number;
  readonly stop: readonly number[];
  readonly promptLogProbs?: boolean;
}

/** Servers release a session after five minutes of silence. */
const HEARTBEAT_MS = 10_000;
/** Milliseconds between checks of whether a server has room for an adapter. */
const [FIRST_PAUSE_MS, MAX_PAUSE_MS] = [500, 5000];
/** Limits of one training request. A datum is never split. */
const MAX_BYTES = 5_000_000;
const MAX_DATUMS = 1024;
/** Seeds below this number work with every server. */
const SEEDS = 2 ** 30;
/** Statuses of a server that does not support the dialect. */
const OTHER_DIALECT: ReadonlySet<number> = new Set([400, 415, 422]);
/** The status of a server that does not accept JSON for an operation. */
const UNKNOWN_FORM = 415;

const sessionReply = z.object({ session_id: z.string() });
const modelReply = z.object({ model_id: z.string() });
const samplingReply = z.object({ sampling_session_id: z.string() });
const pathReply = z.object({ path: z.string().min(1) });
const stepReply = z.object({ metrics: z.record(z.string(), z.number().nullable()).nullish() });

/** A model in training, with the number of its next operation. */
interface Model {
  readonly id: string;
  seqId: number;
}

/** A sampling session for one version of the weights, with the number of its next request. */
interface Sampling {
  readonly id: string;
  seqId: number;
}

export class TinkerSession {
  #sessionId: string | null = null;
  #models = 0;
  #samplings = 0;
  #model: Model | null = null;
  #sampling: Sampling | null = null;
  #base: Promise<Sampling> | null = null;
  #dialect: Dialect;
  #heartbeat: NodeJS.Timeout | null = null;

  constructor(private readonly options: SessionOptions) {
    this.#dialect = options.dialect;
  }

  /** Opens a model in place of the open one. Raises EndpointError, and CheckpointError if `from` no longer exists. */
  async begin(from: string | null, within: Deadline): Promise<void> {
    const { connection, baseModel, lora } = this.options;
    const session_id = await this.#session(within);
    await this.#unload(within);
    // If the reply to the submission is lost, the operation is submitted again. An unused adapter then stays until the
    // session ends.
    const made = await this.#whenRoom(
      () =>
        this.#run(
          '/create_model',
          { session_id, model_seq_id: this.#models++, base_model: baseModel, lora_config: { ...lora } },
          within,
        ),
      within,
    );
    const { model_id: id } = connection.understood('/create_model', () => parseForm(modelReply, made));
    this.#model = { id, seqId: 1 };
    if (from !== null) await this.#operate('/load_weights', { path: from, optimizer: true }, within);
  }

  /**
   * The log-probabilities of the targets, per datum. Adds to the gradient unless `forwardOnly`. Raises EndpointError
   * for invalid results.
   */
  async train(
    data: readonly Datum[],
    loss: Loss,
    within: Deadline,
    { forwardOnly = false } = {},
  ): Promise<Float32Array[]> {
    const logProbs: Float32Array[] = [];
    for (const part of chunks(data)) {
      checkData(part);
      const result = await this.#passed({ data: part, loss, forwardOnly }, within);
      const read = part.reduce((sum, { lossInputs }) => sum + lossInputs['target_tokens'].length, 0);
      this.options.count?.(forwardOnly ? 'prefill' : 'trained', read);
      logProbs.push(...this.#logProbsOf(part, result));
    }
    return logProbs;
  }

  /**
   * Takes an optimizer step. Returns the norm of the gradient before clipping, or null if the server does not report
   * it.
   */
  async step(adam: AdamParams, within: Deadline): Promise<number | null> {
    const reply = await this.#operate('/optim_step', { adam_params: adam }, within);
    const { metrics } = this.options.connection.understood('/optim_step', () => parseForm(stepReply, reply));
    const found = Object.entries(metrics ?? {}).find(([name]) => /grad_norm/.test(name));
    return found?.[1] ?? null;
  }

  /** Saves weights and optimizer under a name. Returns the path for loading them. A name is used for one state only. */
  async save(name: string, within: Deadline): Promise<string> {
    return this.#saved('/save_weights', name, `tinker://${this.#trainedModel().id}/weights/${name}`, within);
  }

  /**
   * Saves the current weights under a name and returns the server's archive of them. Raises EndpointError if the server
   * returns none.
   */
  async archive(name: string, within: Deadline): Promise<Uint8Array> {
    const { connection } = this.options;
    const model = this.#trainedModel();
    const saved = await this.#saved('/save_weights_for_sampler', name, `tinker://${model.id}/${name}`, within);
    // The rest of the path is the server's name, with or without the kind of checkpoint before it.
    const id = saved.replace(/^[a-z]+:\/\/[^/]+\//, '');
    const archive = await connection.download(`/training_runs/${model.id}/checkpoints/${id}/archive`, within);
    // No one samples from it. A server that cannot delete it reports that when a saved state is deleted.
    await connection.remove(savedAt(model.id, 'sampler_weights', name), within).catch((error: unknown) => {
      if (!(error instanceof EditrlError)) throw error;
    });
    return archive;
  }

  /** Deletes the state that `save` has stored at this path. Raises EndpointError if the server cannot delete. */
  async remove(path: string, within: Deadline): Promise<void> {
    const { connection } = this.options;
    const [, model, name] = /^[a-z]+:\/\/([^/]+)\/weights\/([^/]+)$/.exec(path) ?? [];
    if (model === undefined) {
      throw new TinkerError('other_version', `the training server: ${path}: not the path of a saved state`, {
        where: connection.url,
        next: 'Delete it on the server.',
      });
    }
    await connection.remove(savedAt(model, 'weights', name), within);
  }

  /** Publishes the current weights for `sample`. */
  async publish(within: Deadline): Promise<void> {
    const path = '/save_weights_for_sampler';
    const reply = await this.#operate(path, { sampling_session_seq_id: this.#samplings++ }, within);
    const { sampling_session_id: id } = this.options.connection.understood(path, () => parseForm(samplingReply, reply));
    this.#sampling = { id, seqId: 0 };
  }

  /** Samples under the last published weights. */
  async sample(request: SampleRequest, within: Deadline): Promise<SampleResult> {
    const sampling = this.#sampling;
    if (sampling === null) throw new InternalError('no weights were published for sampling');
    return this.#sampled(sampling, request, within);
  }

  /** Samples under the base model. */
  async sampleBase(request: SampleRequest, within: Deadline): Promise<SampleResult> {
    this.#base ??= this.#openBase(within).catch((error: unknown) => {
      this.#base = null;
      throw error;
    });
    return this.#sampled(await this.#base, request, within);
  }

  /** Releases the model. A server that is gone has already done so. */
  async close(within: Deadline): Promise<void> {
    if (this.#heartbeat !== null) clearInterval(this.#heartbeat);
    this.#heartbeat = null;
    await this.#unload(within).catch((error: unknown) => {
      if (!(error instanceof EditrlError)) throw error;
    });
  }

  /** The path of a saved state. Returns `usual` if the reply with the path was lost. */
  async #saved(path: string, name: string, usual: string, within: Deadline): Promise<string> {
    const { connection } = this.options;
    const model = this.#trainedModel();
    const body = JSON.stringify({ model_id: model.id, seq_id: model.seqId++, path: name, overwrite: false });
    const first = await connection.send(path, body, within);
    // Names are used once, so the reply to an earlier submission of this request was lost.
    if (first.status === 409 && /already exists/i.test(first.body.toString('utf8'))) return usual;
    const reply = connection.json(path, await connection.run(path, body, within, first));
    return connection.understood(path, () => parseForm(pathReply, reply)).path;
  }

  /** Waits while all of the server's adapters are in use. Each run that ends frees one. */
  async #whenRoom<R>(ask: () => Promise<R>, within: Deadline): Promise<R> {
    const { connection } = this.options;
    let pause = FIRST_PAUSE_MS;
    for (;;) {
      try {
        const made = await ask();
        if (pause > FIRST_PAUSE_MS) connection.back();
        return made;
      } catch (error) {
        const isFull = error instanceof TinkerError && error.kind === 'no_adapter_left';
        if (!isFull || within.remainingMs() <= pause) throw error;
        if (pause === FIRST_PAUSE_MS) connection.waits('all its adapters are in use');
        await sleep(connection.clock, pause, within.signal);
        pause = Math.min(2 * pause, MAX_PAUSE_MS);
      }
    }
  }

  async #session(within: Deadline): Promise<string> {
    const { connection, tags, version } = this.options;
    if (this.#sessionId !== null) return this.#sessionId;
    const path = '/create_session';
    const reply = await connection.ask(path, { tags, user_metadata: {}, sdk_version: version }, within);
    const { session_id: id } = connection.understood(path, () => parseForm(sessionReply, reply));
    this.#sessionId = id;
    // The next heartbeat makes up for a lost one. If the session is gone, the next operation reports it.
    this.#heartbeat = setInterval(() => void this.#beat(id), HEARTBEAT_MS);
    this.#heartbeat.unref();
    return id;
  }

  async #beat(session_id: string): Promise<void> {
    await this.options.connection.beat({ session_id }, HEARTBEAT_MS);
  }

  async #openBase(within: Deadline): Promise<Sampling> {
    const { connection, baseModel } = this.options;
    const path = '/create_sampling_session';
    const body = {
      session_id: await this.#session(within),
      sampling_session_seq_id: this.#samplings++,
      base_model: baseModel,
    };
    const reply = await connection.ask(path, body, within);
    return { id: connection.understood(path, () => parseForm(samplingReply, reply)).sampling_session_id, seqId: 0 };
  }

  async #sampled(sampling: Sampling, request: SampleRequest, within: Deadline): Promise<SampleResult> {
    const { connection } = this.options;
    const { prompt, count, maxTokens, temperature, seed, stop, promptLogProbs = false } = request;
    const path = '/asample';
    const positions = checkPrompt(prompt, 'a prompt');
    const body = {
      sampling_session_id: sampling.id,
      seq_id: sampling.seqId++,
      prompt: inputJson(prompt),
      num_samples: count,
      sampling_params: { max_tokens: maxTokens, temperature, seed: seed % SEEDS, stop, top_k: -1, top_p: 1 },
      ...(promptLogProbs ? { prompt_logprobs: true } : {}),
    };
    const reply = await connection.run(path, JSON.stringify(body), within);
    const result = connection.understood(path, () =>
      reply.isProto ? sampleFromProto(reply.body) : sampleFromJson(connection.json(path, reply)),
    );
    this.options.count?.('prefill', positions);
    this.options.count?.(
      'sampled',
      result.sequences.reduce((sum, { tokens }) => sum + tokens.length, 0),
    );
    return result;
  }

  async #passed(request: Pick<Pass, 'data' | 'loss' | 'forwardOnly'>, within: Deadline): Promise<PassResult> {
    const { connection } = this.options;
    const model = this.#trainedModel();
    const pass: Pass = { ...request, config: {}, modelId: model.id, seqId: model.seqId++ };
    const written = (isProto: boolean): { readonly path: string; readonly body: string | PiecewiseBody } => {
      if (isProto) return { path: '/forward_backward', body: toProto(pass) };
      return { path: pass.forwardOnly ? '/forward' : '/forward_backward', body: toJson(pass) };
    };
    let sent = written(this.#dialect !== 'json');
    let first = await connection.send(sent.path, sent.body, within);
    if (this.#dialect === 'auto' && OTHER_DIALECT.has(first.status)) {
      const other = written(false);
      const second = await connection.send(other.path, other.body, within);
      // If the server also rejects this form, it rejected the first one for another reason.
      if (second.status !== UNKNOWN_FORM) [sent, first] = [other, second];
      if (second.status === 200) this.#dialect = 'json';
    } else if (this.#dialect === 'auto' && first.status === 200) this.#dialect = 'proto';
    const { path, body } = sent;
    const reply = await connection.run(path, body, within, first);
    return connection.understood(path, () =>
      reply.isProto ? passFromProto(reply.body) : passFromJson(connection.json(path, reply)),
    );
  }

  /** The log-probabilities of each datum's targets. Raises TinkerError if they do not match the datums. */
  #logProbsOf(data: readonly Datum[], { outputs }: PassResult): Float32Array[] {
    const { connection } = this.options;
    const refuse = (problem: string): never => {
      throw connection.error(problem, 'Read the server log.');
    };
    if (outputs.length !== data.length) refuse(`${outputs.length} results for ${data.length} datums`);
    return data.map(({ lossInputs }, i) => {
      const { length } = lossInputs['target_tokens'];
      const found = outputs[i]['logprobs'] ?? new Float64Array(0);
      if (found.length !== length) {
        refuse(`datum ${i} has ${length} tokens, and its result ${found.length} log-probabilities`);
      }
      const at = found.findIndex((one) => !Number.isFinite(one));
      if (at >= 0) refuse(`the log-probability of token ${at} of datum ${i} is not finite`);
      return Float32Array.from(found);
    });
  }

  /** Runs one numbered operation of the model in training. */
  #operate(path: string, fields: object, within: Deadline): Promise<unknown> {
    const model = this.#trainedModel();
    return this.#run(path, { model_id: model.id, seq_id: model.seqId++, ...fields }, within);
  }

  async #run(path: string, body: object, within: Deadline): Promise<unknown> {
    const { connection } = this.options;
    const reply: Reply = await connection.run(path, JSON.stringify(body), within);
    return connection.json(path, reply);
  }

  #trainedModel(): Model {
    if (this.#model === null) throw new InternalError('no model is open');
    return this.#model;
  }

  async #unload(within: Deadline): Promise<void> {
    const model = this.#model;
    this.#model = null;
    this.#sampling = null;
    if (model !== null) await this.#run('/unload_model', { model_id: model.id }, within);
  }
}

/** The path of a saved state in the server's list. */
function savedAt(model: string, kind: 'weights' | 'sampler_weights', name: string): string {
  return `/training_runs/${model}/checkpoints/${kind}/${name}`;
}

/** Consecutive parts that fit into one request. */
function chunks(data: readonly Datum[]): Datum[][] {
  const parts: Datum[][] = [];
  let bytes = Infinity;
  for (const datum of data) {
    const own = bytesOf(datum);
    if (bytes + own > MAX_BYTES || parts[parts.length - 1].length >= MAX_DATUMS) {
      parts.push([]);
      bytes = 0;
    }
    parts[parts.length - 1].push(datum);
    bytes += own;
  }
  return parts;
}
