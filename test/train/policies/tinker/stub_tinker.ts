/**
 * A strict stand-in for a server of the Tinker training API in both dialects. Its model is a table of bigrams, with real gradients. It refuses
 * what servers refuse, and counts what is done to the weights.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { send, StubServer } from '../../../support/stub_server.js';
import { Bigrams, type Adam, type State } from './bigrams.js';
import { flawed, logProbFlaws, otherModel, sampleFlaws, type Flaw } from './flaws.js';
import type { StubTraining } from './stub_messages.js';
import { BadPicture, checkInputs, chunksFromJson, positionsOf, type StubEyes } from './stub_pictures.js';
import { readTrainingRequest, writeSample, writeTraining } from './stub_proto.js';
import { sampled } from './stub_sampler.js';

/**
 * `lost`: it is done, and the reply does not arrive. `repeated`: the request arrives twice. `late`: others overtake it. `forgotten`: what was promised is
 * forgotten (410). `unknown`: it is not known any more that it was promised (404). `log_probs`: results are changed.
 */
export type TinkerFault =
  | { readonly kind: 'lost' }
  | { readonly kind: 'repeated' }
  | { readonly kind: 'late' }
  | { readonly kind: 'forgotten' }
  | { readonly kind: 'unknown' }
  | { readonly kind: 'log_probs'; readonly change: (all: number[][]) => number[][] };

export interface StubRequest {
  readonly method: string;
  readonly path: string;
  readonly key: string | undefined;
  readonly isProto: boolean;
  readonly body: Buffer;
}

export interface TinkerStubOptions {
  readonly vocabulary: number;
  readonly dialect: 'proto' | 'json';
  /** Whether losses are averaged over a datum's weighted tokens, and gradients over datums. */
  readonly averages?: boolean;
  readonly apiKey?: string;
  readonly baseModel?: string;
  readonly mostRank?: number;
  readonly mostModels?: number;
  /** Whether a model begins with the gradient that the one unloaded last had not used, as SkyRL 0.4 does. */
  readonly leaks?: boolean;
  /** Side in pixels of what becomes one token of an image; it takes words alone, and says so, unless this is set. */
  readonly pictureSide?: number;
  /** Whether nothing that it saved can be removed. */
  readonly keepsAll?: boolean;
  /** The archive that it gives of every adapter; it gives none unless this is set. */
  readonly archive?: Uint8Array;
}

interface StubModel {
  readonly model: Bigrams;
  /** What was submitted, by its number. */
  readonly operations: Map<number, { readonly payload: string; readonly result: Answered | Uint8Array; id: string }>;
  isFresh: boolean;
}

type Json = Record<string, unknown>;
type Answered = readonly [status: number, body: unknown];

const LATE_MS = 2;

/** A refusal, as a status and its detail. */
class Refusal extends Error {
  constructor(
    readonly status: number,
    readonly detail: string,
  ) {
    super(detail);
  }
}

export class StubTinker extends StubServer<StubRequest, TinkerFault> {
  readonly models = new Map<string, StubModel>();
  readonly saved = new Map<string, State>();
  /** Adapters that are saved for whoever samples, as `MODEL/NAME`. */
  readonly archived = new Set<string>();
  readonly #samplers = new Map<string, Bigrams>();
  /** The model that a sampler has a version of. */
  readonly #versions = new WeakMap<Bigrams, Bigrams>();
  readonly #sessions = new Set<string>();
  readonly #results = new Map<string, () => Answered | Uint8Array>();
  /** Tokens of all that it has sampled. */
  sampledTokens = 0;
  /** How often it had no room for a model. */
  full = 0;
  /** The model that was let go of last. */
  unloaded: Bigrams | null = null;
  /** What it computes wrongly. */
  flaw: Flaw | null = null;
  #next = 0;
  #change: ((all: number[][]) => number[][]) | null = null;

  constructor(readonly options: TinkerStubOptions) {
    super();
  }

  /** Forgets everything but what was saved. */
  restart(): void {
    for (const all of [this.models, this.#samplers, this.#results]) all.clear();
    this.#sessions.clear();
  }

  /** As after SIGKILL: it forgets everything but what was saved, and is started again at its address. */
  async killed(): Promise<void> {
    const { port } = this;
    await this.close();
    this.restart();
    await this.listen(port);
  }

  get weights(): readonly number[] {
    return this.#trained.state.weights;
  }

  get steps(): number {
    return this.#trained.steps;
  }

  /** The model that is trained: where a request to make one was repeated, nobody steps the other one. */
  get #trained(): Bigrams {
    const all = [...this.models.values()].map(({ model }) => model);
    return all.reduce((most, one) => (one.steps >= most.steps ? one : most));
  }

  protected read(incoming: IncomingMessage, body: Buffer): StubRequest {
    const { method = '', url = '', headers } = incoming;
    return {
      method,
      path: url.replace('/api/v1', ''),
      key: headers['x-api-key'] as string | undefined,
      isProto: headers['content-type'] === 'application/x-protobuf',
      body,
    };
  }

  protected async reply(request: StubRequest, response: ServerResponse, fault: TinkerFault | null): Promise<void> {
    const { apiKey } = this.options;
    if (apiKey !== undefined && request.key !== apiKey) return send(response, 401, { detail: 'Invalid API key' });
    if (fault?.kind === 'forgotten' || fault?.kind === 'unknown') {
      const { request_id } = JSON.parse(request.body.toString('utf8')) as { request_id: string };
      this.#results.delete(request_id);
      if (fault.kind === 'forgotten') return send(response, 410, { detail: 'promise lost' });
      return send(response, 404, { detail: 'Future not found' });
    }
    if (fault?.kind === 'late') await sleep(LATE_MS);
    this.#change = fault?.kind === 'log_probs' ? fault.change : null;
    const answered = this.#replyTo(request);
    if (fault?.kind === 'repeated') this.#replyTo(request);
    if (fault?.kind === 'lost') return void response.destroy();
    const [, archived] = /^\/training_runs\/[^/]+\/checkpoints\/([^/]+)\/download$/.exec(request.path) ?? [];
    if (!(answered instanceof Uint8Array)) {
      const [status, body] = answered;
      if (status === 302) return void response.writeHead(302, { location: String(body) }).end();
      return send(response, status, body);
    }
    const type = archived === undefined ? 'application/x-protobuf' : 'application/octet-stream';
    response.writeHead(200, { 'content-type': type }).end(answered);
    return Promise.resolve();
  }

  #replyTo(request: StubRequest): Answered | Uint8Array {
    try {
      return this.#answer(request);
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      return [error.status, { detail: error.detail }];
    }
  }

  #answer(request: StubRequest): Answered | Uint8Array {
    const { method, path, isProto, body } = request;
    if (path === '/healthz') return [200, { status: 'ok' }];
    if (path === '/get_server_capabilities') {
      return [200, { supported_models: [{ model_name: this.options.baseModel ?? 'base' }] }];
    }
    if (path === '/forward_backward' || path === '/forward') return this.#training(request);
    if (method === 'DELETE') return this.#removed(path);
    if (path.startsWith('/training_runs/')) return this.#archive(path);
    if (isProto) throw new Refusal(415, 'application/json is wanted');
    const fields = JSON.parse(body.toString('utf8')) as Json;
    if (path === '/retrieve_future') {
      const result = this.#results.get(String(fields['request_id']));
      if (result === undefined) throw new Refusal(404, 'Future not found');
      return result();
    }
    const handler = this.#handlers[path];
    if (handler === undefined) throw new Refusal(404, 'Not Found');
    return handler(fields, body.toString('utf8'));
  }

  readonly #handlers: Readonly<Record<string, (fields: Json, payload: string) => Answered>> = {
    '/create_session': (fields) => {
      only(fields, ['tags', 'user_metadata', 'sdk_version']);
      const id = `session_${this.#next++}`;
      this.#sessions.add(id);
      return [200, { type: 'create_session', session_id: id }];
    },
    '/session_heartbeat': ({ session_id }) => {
      if (!this.#sessions.has(String(session_id))) throw new Refusal(404, 'Session not found');
      return [200, { type: 'session_heartbeat' }];
    },
    '/create_model': (fields) => {
      only(fields, ['session_id', 'model_seq_id', 'base_model', 'lora_config']);
      const { vocabulary, baseModel = 'base', mostRank = 32, mostModels = 8 } = this.options;
      if (!this.#sessions.has(String(fields['session_id']))) throw new Refusal(404, 'Session not found');
      if (fields['base_model'] !== baseModel) {
        throw new Refusal(400, `Base model ${String(fields['base_model'])} is not served`);
      }
      const { rank } = fields['lora_config'] as { rank: number };
      if (rank > mostRank) throw new Refusal(400, `LoRA rank ${rank} is above max_lora_rank ${mostRank}`);
      if (this.models.size >= mostModels) {
        this.full += 1;
        throw new Refusal(400, `Maximum number of LoRA adapters (${mostModels}) reached`);
      }
      const id = `model_${this.#next++}`;
      const model = new Bigrams(vocabulary);
      if (this.options.leaks === true && this.unloaded !== null) model.inherit(this.unloaded);
      this.models.set(id, { model, operations: new Map(), isFresh: true });
      return this.#promised(() => [200, { model_id: id }]);
    },
    '/unload_model': ({ model_id }) => {
      this.unloaded = this.#model(model_id).model;
      this.models.delete(String(model_id));
      return this.#promised(() => [200, { model_id }]);
    },
    '/optim_step': (fields, payload) => {
      only(fields, ['model_id', 'seq_id', 'adam_params']);
      return this.#operation(fields, payload, ({ model }) => {
        if (!model.hasLearned) throw new Refusal(400, 'a step without a gradient: the one before has used it');
        const adam = fields['adam_params'] as Adam;
        const asked = flawed(this.flaw, { no_step: (right) => ({ ...right, learning_rate: 0 }) }, adam);
        const norm = model.step(asked, this.options.averages ?? false);
        return [200, { metrics: { 'skyrl.ai/grad_norm': norm } }];
      });
    },
    '/save_weights': (fields) => {
      only(fields, ['model_id', 'seq_id', 'path', 'overwrite']);
      const { model } = this.#model(fields['model_id']);
      const name = String(fields['path']);
      if (!/^[A-Za-z0-9_-]{1,255}$/.test(name)) throw new Refusal(400, `bad checkpoint name ${name}`);
      const path = `tinker://${String(fields['model_id'])}/weights/${name}`;
      if (this.saved.has(path)) throw new Refusal(409, `Checkpoint '${name}' already exists`);
      this.saved.set(path, model.state);
      return this.#promised(() => [200, { path, type: 'save_weights' }]);
    },
    '/load_weights': (fields) => {
      only(fields, ['model_id', 'seq_id', 'path', 'optimizer']);
      const held = this.#model(fields['model_id']);
      const state = this.saved.get(String(fields['path']));
      if (state === undefined) throw new Refusal(404, `Checkpoint ${String(fields['path'])} not found`);
      if (!held.isFresh) throw new Refusal(400, 'LoadWeights is not permitted any more');
      held.model.state = state;
      return this.#promised(() => [200, { path: fields['path'] }]);
    },
    '/save_weights_for_sampler': (fields) => {
      only(fields, ['model_id', 'seq_id', 'sampling_session_seq_id', 'path', 'overwrite']);
      const { path: name } = fields;
      if (typeof name === 'string') {
        const place = `${String(fields['model_id'])}/${name}`;
        this.#model(fields['model_id']);
        if (this.archived.has(place)) throw new Refusal(409, `Checkpoint '${name}' already exists`);
        this.archived.add(place);
        return this.#promised(() => [200, { path: `tinker://${place}`, sampling_session_id: null }]);
      }
      const copy = new Bigrams(this.options.vocabulary);
      const { state } = this.#model(fields['model_id']).model;
      copy.state = flawed(this.flaw, { other_sampler: otherModel, stale: () => copy.state }, state);
      const id = `sampler_${this.#next++}`;
      this.#samplers.set(id, copy);
      this.#versions.set(copy, this.#model(fields['model_id']).model);
      return this.#promised(() => [200, { path: null, sampling_session_id: id }]);
    },
    '/create_sampling_session': (fields) => {
      only(fields, ['session_id', 'sampling_session_seq_id', 'base_model']);
      const id = `sampler_${this.#next++}`;
      const base = new Bigrams(this.options.vocabulary);
      this.#samplers.set(id, base);
      return [200, { type: 'create_sampling_session', sampling_session_id: id }];
    },
    '/asample': (fields) => {
      only(fields, ['sampling_session_id', 'seq_id', 'prompt', 'num_samples', 'sampling_params', 'prompt_logprobs']);
      const model = this.#samplers.get(String(fields['sampling_session_id']));
      if (model === undefined) throw new Refusal(404, 'Sampling session not found');
      if (this.flaw === 'one_place') this.#versions.get(model)?.take(model);
      const eyes = this.#eyes;
      const goesOn = this.flaw === 'stop_ignored';
      const reply = flawed(
        this.flaw,
        sampleFlaws,
        seen(() => sampled(model, fields, { goesOn, eyes })),
      );
      for (const { tokens } of reply.sequences) this.sampledTokens += tokens.length;
      return this.#promised(() => (this.options.dialect === 'proto' ? writeSample(reply) : [200, reply]));
    },
  };

  /** Only with the kind of what is removed before its name, as SkyRL has it. */
  #removed(path: string): Answered {
    const [, model, kind, name] =
      /^\/training_runs\/([^/]+)\/checkpoints\/(weights|sampler_weights)\/([^/]+)$/.exec(path) ?? [];
    if (this.options.keepsAll === true || model === undefined) throw new Refusal(405, 'Method Not Allowed');
    const isThere =
      kind === 'weights'
        ? this.saved.delete(`tinker://${model}/weights/${name}`)
        : this.archived.delete(`${model}/${name}`);
    if (!isThere) throw new Refusal(404, `Checkpoint not found: ${model}/${name}`);
    return [200, null];
  }

  /** As SkyRL does it: an address that is sent on to, on the same server. */
  #archive(path: string): Answered | Uint8Array {
    const [, model, name, what] =
      /^\/training_runs\/([^/]+)\/checkpoints\/([^/]+)\/(archive|download)$/.exec(path) ?? [];
    const { archive } = this.options;
    if (archive === undefined || what === undefined) throw new Refusal(404, 'Not Found');
    if (!this.archived.has(`${model}/${name}`)) throw new Refusal(404, `Checkpoint not found: ${model}/${name}`);
    return what === 'archive' ? [302, `${this.url}/api/v1${path.replace(/archive$/, 'download')}`] : archive;
  }

  #model(id: unknown): StubModel {
    const found = this.models.get(String(id));
    if (found === undefined) throw new Refusal(404, `Model ${String(id)} not found`);
    return found;
  }

  #promised(result: () => Answered | Uint8Array): Answered {
    const id = String(this.#next++);
    this.#results.set(id, result);
    return [200, { request_id: id }];
  }

  /** Done once for a number, however often it is submitted. */
  #operation(fields: Json, payload: string, work: (held: StubModel) => Answered | Uint8Array): Answered {
    const held = this.#model(fields['model_id']);
    const seqId = Number(fields['seq_id']);
    const earlier = held.operations.get(seqId);
    if (earlier !== undefined) {
      if (earlier.payload !== payload) throw new Refusal(409, 'Training request sequence number was reused');
      if (!this.#results.has(earlier.id)) earlier.id = idOf(this.#promised(() => earlier.result));
      return [200, { request_id: earlier.id }];
    }
    held.isFresh = false;
    const result = work(held);
    const promised = this.#promised(() => result);
    held.operations.set(seqId, { payload, result, id: idOf(promised) });
    return promised;
  }

  get #eyes(): StubEyes {
    const { vocabulary, pictureSide: side = null } = this.options;
    return { vocabulary, side };
  }

  #training({ path, isProto, body }: StubRequest): Answered {
    const { dialect, averages = false } = this.options;
    if (isProto !== (dialect === 'proto')) throw new Refusal(isProto ? 422 : 415, 'unsupported media type');
    const asked = seen(() =>
      isProto ? readTrainingRequest(body) : fromJson(path, JSON.parse(body.toString('utf8')) as Json),
    );
    const eyes = this.#eyes;
    return this.#operation({ ...asked }, body.toString('base64'), ({ model }) => {
      let logProbs = asked.data.map(({ chunks, inputs }) => {
        const { weights, logprobs: q, advantages } = inputs;
        const input = seen(() => positionsOf(chunks, eyes));
        const { rows } = input;
        seen(() => checkInputs(input, inputs));
        const targets = inputs['target_tokens'];
        const found = rows.map((row, t) => model.after(row)[targets[t]]);
        if (asked.forwardOnly) return found;
        const counted = weights.reduce((sum, one) => sum + one, 0);
        const total = flawed(this.flaw, { squares: () => counted ** 2 }, averages ? counted : 1);
        found.forEach((logProb, t) => {
          const slope = asked.loss_fn === 'cross_entropy' ? -1 : -Math.exp(logProb - q[t]) * advantages[t];
          const right = (weights[t] * slope) / total;
          model.push(rows[t], targets[t], flawed(this.flaw, { wrong_sign: (one) => -one }, right));
        });
        return found;
      });
      if (!asked.forwardOnly) model.count(asked.data.length);
      logProbs = flawed(this.flaw, logProbFlaws, logProbs);
      if (this.#change !== null) logProbs = this.#change(logProbs);
      if (dialect === 'proto') return writeTraining(logProbs);
      const loss_fn_outputs = logProbs.map((data) => ({ logprobs: { data, dtype: 'float32', shape: [data.length] } }));
      return [200, { loss_fn_output_type: 'scalar', loss_fn_outputs, metrics: {} }];
    });
  }
}

/** Refuses as a server does what is wrong with a sequence. */
function seen<T>(read: () => T): T {
  try {
    return read();
  } catch (error) {
    if (error instanceof BadPicture) throw new Refusal(400, error.message);
    throw error;
  }
}

function idOf([, body]: Answered): string {
  return (body as { request_id: string }).request_id;
}

function only(fields: Json, names: readonly string[]): void {
  const other = Object.keys(fields).find((name) => !names.includes(name));
  if (other !== undefined) throw new Refusal(422, `extra field ${other}`);
}

function fromJson(path: string, fields: Json): StubTraining {
  const forwardOnly = path === '/forward';
  const name = forwardOnly ? 'forward_input' : 'forward_backward_input';
  only(fields, ['model_id', 'seq_id', name]);
  const { data, loss_fn } = fields[name] as { data: Json[]; loss_fn: string };
  return {
    model_id: String(fields['model_id']),
    seq_id: Number(fields['seq_id']),
    loss_fn,
    forwardOnly,
    data: data.map(({ model_input, loss_fn_inputs }) => ({
      chunks: chunksFromJson(model_input),
      inputs: Object.fromEntries(
        Object.entries(loss_fn_inputs as Record<string, { data: number[] }>).map(([key, { data: all }]) => [key, all]),
      ),
    })),
  };
}
