/**
 * A strict stand-in for vLLM's API (`vllm serve MODEL --enable-lora`): it refuses fields that vLLM does not know, knows adapters by their
 * names, reads them from their PEFT files, and really samples, with a decoder (and eyes, where the model has some) in plain float64 loops that share
 * nothing with the engine.
 */
import { existsSync } from 'node:fs';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { join } from 'node:path';
import { RandomStream } from '../../../../src/core/random.js';
import { failure, send, StubServer, type Fault as CommonFault } from '../../../support/stub_server.js';
import { adaptedWeights, wrongWith } from './stub_adapters.js';
import { StubModel, type StubParameters, type StubPrompt } from './stub_model.js';
import { expanded, readPart, type StubEyes, type StubPicture } from './stub_pictures.js';
import { allowedBy } from './stub_rules.js';
import { StubWeights } from './stub_weights.js';
import { draw, indexOfLargest, logSoftmax, processedOf, type Sampling } from './plain_sampling.js';

/** The reply as it is changed by this. */
interface Changed {
  readonly kind: 'changed';
  readonly change: (choice: StubChoice) => object;
}

export type Fault = CommonFault | Changed;

export interface StubChoice {
  readonly index: number;
  readonly text: string;
  readonly token_ids: readonly number[];
  readonly prompt_token_ids: readonly number[];
  readonly finish_reason: 'stop' | 'length';
  readonly stop_reason: number | null;
  readonly logprobs: {
    readonly tokens: readonly string[];
    readonly token_logprobs: readonly number[];
    readonly top_logprobs: readonly Readonly<Record<string, number>>[];
    readonly text_offset: readonly number[];
  } | null;
}

export interface StubRequest {
  readonly path: string;
  readonly body: Readonly<Record<string, unknown>>;
  /** How many requests of this path came before it. */
  readonly earlier: number;
}

export interface StubOptions {
  /** The model's folder: config.json and model.safetensors, in float32. */
  readonly base: string;
  readonly logprobsMode?: 'raw_logprobs' | 'processed_logprobs' | 'processed_logits';
  readonly apiKey?: string;
  /** Whether it asks for the key at every route but /health. */
  readonly guarded?: boolean;
  readonly maxModelLen?: number;
  readonly maxLoraRank?: number;
  /** `--enable-lora`. */
  readonly enableLora?: boolean;
  /** `--enable-scale-out`. */
  readonly scaleOut?: boolean;
  /** Of a model of words whose server takes images all the same, and samples as if they were words; a model that sees has its own. */
  readonly eyes?: StubEyes;
  /** `--logits-processors` with ours. */
  readonly rules?: boolean;
  /** VLLM_SERVER_DEV_MODE. */
  readonly devMode?: boolean;
  /** VLLM_ALLOW_RUNTIME_LORA_UPDATING. */
  readonly runtimeUpdating?: boolean;
  /** Folders of weights as the server sees them; by default as they are called. */
  readonly pathOf?: (path: string) => string;
  readonly port?: number;
  /** Added to every seed: another server samples otherwise. */
  readonly salt?: number;
}

interface Lora {
  readonly path: string;
  readonly weights: StubParameters;
}

/** vLLM's fields of a completion, as far as a client of ids may use them. */
const COMPLETION = new Set(
  [
    ...['model', 'prompt', 'n', 'max_tokens', 'min_tokens', 'temperature', 'top_p', 'top_k', 'min_p', 'seed'],
    ...['repetition_penalty', 'stop_token_ids', 'ignore_eos', 'logprobs', 'skip_special_tokens', 'stream'],
    ...['return_token_ids', 'return_tokens_as_token_ids', 'add_special_tokens', 'cache_salt', 'echo'],
  ].flat(),
);

interface GenerateBody {
  readonly model: string;
  readonly token_ids: readonly number[];
  readonly sampling_params: Sampling;
  readonly content_parts?: readonly { readonly type: string; readonly url: string }[];
}

const GENERATE = new Set([
  'model',
  'token_ids',
  'content_parts',
  'sampling_params',
  'cache_salt',
  'return_token_ids',
  'stream',
]);
const SAMPLING = new Set([
  ...['n', 'max_tokens', 'temperature', 'top_p', 'top_k', 'min_p', 'seed', 'repetition_penalty', 'stop_token_ids'],
  ...['ignore_eos', 'logprobs', 'skip_special_tokens', 'detokenize', 'extra_args'],
]);

export class StubVllm extends StubServer<StubRequest, Changed> {
  readonly adapters = new Map<string, Lora>();
  /** `loading`: it listens but is not ready; `dead`: its engine died. */
  state: 'up' | 'loading' | 'dead' = 'up';
  readonly #model: StubModel;
  /** Those of the model itself. */
  readonly weights: StubWeights;
  readonly #counts = new Map<string, number>();
  /** Each image once, by what it was sent as. */
  readonly #images = new Map<string, StubPicture>();

  private constructor(private readonly options: StubOptions) {
    super();
    this.#model = new StubModel(options.base);
    this.weights = new StubWeights(this.#model.weights, options.pathOf ?? ((same) => same));
  }

  static start(options: StubOptions): Promise<StubVllm> {
    return new StubVllm(options).listen(options.port);
  }

  requestsOf(path: string): readonly StubRequest[] {
    return this.requests.filter((request) => request.path === path);
  }

  protected override readonly refuses = ({ url = '', headers }: IncomingMessage): [number, unknown] | null => {
    const { apiKey, guarded = false } = this.options;
    const open = guarded ? url === '/health' : !/^\/(v1|inference)/.test(url);
    const known = apiKey === undefined || open || headers.authorization === `Bearer ${apiKey}`;
    return known ? null : [401, { error: 'Unauthorized' }];
  };

  protected read({ url: path = '' }: IncomingMessage, content: Buffer): StubRequest {
    const body = content.length === 0 ? {} : (JSON.parse(content.toString('utf8')) as StubRequest['body']);
    const earlier = this.#counts.get(path) ?? 0;
    this.#counts.set(path, earlier + 1);
    return { path, body, earlier };
  }

  protected reply(request: StubRequest, response: ServerResponse, fault: Changed | null): void {
    if (this.state !== 'up') {
      const message = this.state === 'dead' ? 'EngineCore encountered an issue. See stack trace' : 'loading';
      return send(response, 503, failure(message, 503));
    }
    this.#route(request, response, fault?.change ?? ((choice) => choice));
  }

  #route({ path, body }: StubRequest, response: ServerResponse, change: (choice: StubChoice) => object): void {
    const { base, maxModelLen = 4096, runtimeUpdating = true } = this.options;
    switch (path) {
      case '/health':
        return send(response, 200, '');
      case '/version':
        return send(response, 200, { version: '0.11.0' });
      case '/v1/models': {
        const adapters = [...this.adapters].map(([id, { path }]) => ({
          id,
          object: 'model',
          root: path,
          parent: base,
          max_model_len: null,
        }));
        const own = { id: base, object: 'model', root: base, parent: null, max_model_len: maxModelLen };
        return send(response, 200, { object: 'list', data: [own, ...adapters] });
      }
      case '/v1/load_lora_adapter':
      case '/v1/unload_lora_adapter':
        if (!runtimeUpdating) return send(response, 404, { detail: 'Not Found' });
        return path === '/v1/load_lora_adapter' ? this.#load(body, response) : this.#unload(body, response);
      case '/v1/completions':
        return this.weights.whenRunning(() => this.#complete(body, response, change));
      case '/inference/v1/generate':
        if (this.options.scaleOut ?? true) {
          return this.weights.whenRunning(() => this.#generate(body, response, change));
        }
        return send(
          response,
          403,
          failure('Scale-out endpoints are disabled. Restart vllm serve with --enable-scale-out to enable them.', 403),
        );
      default:
        if ((this.options.devMode ?? true) && this.weights.answer(path, body, response)) return;
        return send(response, 404, { detail: 'Not Found' });
    }
  }

  #load(body: Readonly<Record<string, unknown>>, response: ServerResponse): void {
    const { lora_name: name, lora_path: path } = body;
    if (typeof name !== 'string' || typeof path !== 'string' || name === '' || path === '') {
      return refuse(response, 400, "Both 'lora_name' and 'lora_path' must be provided.");
    }
    if (Object.keys(body).length > 2) return refuse(response, 400, `unknown fields: ${Object.keys(body).join()}`);
    if (this.adapters.has(name)) return refuse(response, 400, `The lora adapter '${name}' has already been loaded.`);
    const { enableLora = true, maxLoraRank = 16, pathOf = (same: string) => same } = this.options;
    if (!enableLora) return refuse(response, 400, 'LoRA is not enabled. Use --enable-lora to enable LoRA.');
    const folder = pathOf(path);
    if (!existsSync(join(folder, 'adapter_config.json'))) {
      return refuse(response, 404, `Loading lora ${name} failed: No adapter found for ${path}`);
    }
    const wrong = wrongWith(folder, this.weights.current, maxLoraRank);
    if (wrong !== null) return refuse(response, 400, wrong);
    this.adapters.set(name, { path, weights: adaptedWeights(folder, this.weights.current) });
    send(response, 200, `Success: LoRA adapter '${name}' added successfully.`);
  }

  #unload({ lora_name: name }: Readonly<Record<string, unknown>>, response: ServerResponse): void {
    if (!this.adapters.delete(String(name))) {
      return refuse(response, 404, `The lora adapter '${String(name)}' cannot be found.`);
    }
    send(response, 200, `Success: LoRA adapter '${String(name)}' removed successfully.`);
  }

  #complete(
    body: Readonly<Record<string, unknown>>,
    response: ServerResponse,
    change: (choice: StubChoice) => object,
  ): void {
    const unknown = Object.keys(body).filter((key) => !COMPLETION.has(key));
    if (unknown.length > 0) return refuse(response, 400, `Extra inputs are not permitted: ${unknown.join(', ')}`);
    const { model, prompt } = body as { model: string; prompt: number[] };
    const weights = this.#asked(model, prompt, body as unknown as Sampling, response);
    if (weights === null) return;
    const choice = this.#sample(weights, { ids: prompt, images: [] }, body as unknown as Sampling);
    send(response, 200, { id: 'cmpl-1', object: 'text_completion', created: 0, model, choices: [change(choice)] });
  }

  /** `/inference/v1/generate`, which tells the name of the weights. */
  #generate(
    body: Readonly<Record<string, unknown>>,
    response: ServerResponse,
    change: (choice: StubChoice) => object,
  ): void {
    const { model, sampling_params: how } = body as unknown as GenerateBody;
    const unknown = [
      ...Object.keys(body).filter((key) => !GENERATE.has(key)),
      ...Object.keys(how).filter((key) => !SAMPLING.has(key)),
    ];
    if (unknown.length > 0) return refuse(response, 400, `Extra inputs are not permitted: ${unknown.join(', ')}`);
    const salt = String(body['cache_salt']);
    if (salt.length > 128 || /[@/\\\0]/.test(salt)) {
      return refuse(
        response,
        400,
        "Parameter 'cache_salt' must be at most 128 characters and must not contain '@', '/'",
      );
    }
    let read: StubPrompt;
    try {
      read = this.#read(body as unknown as GenerateBody);
    } catch (error) {
      return refuse(response, 500, (error as Error).message);
    }
    const weights = this.#asked(model, read.ids, how, response);
    if (weights === null) return;
    const { logprobs, prompt_token_ids, ...choice } = this.#sample(weights, read, how);
    const content = (logprobs?.token_logprobs ?? []).map((logprob, i) => ({ token_id: choice.token_ids[i], logprob }));
    const weight_versions = [{ version: this.weights.version, start: 0, end: choice.token_ids.length }];
    const choices = [change({ ...choice, weight_versions, logprobs: { content } } as unknown as StubChoice)];
    send(response, 200, { request_id: 'generate-1', model, prompt_token_ids, choices });
  }

  /** Throws for images that it cannot read. */
  #read({ token_ids: ids, content_parts: parts = [] }: GenerateBody): StubPrompt {
    const eyes = this.options.eyes ?? this.#model.eyes;
    if (eyes === null && parts.length > 0) throw new Error('the model takes no images');
    const images = parts.map((part) => {
      const image = this.#images.get(part.url) ?? readPart(part);
      this.#images.set(part.url, image);
      return image;
    });
    return { ids: eyes === null ? ids : expanded(ids, images, eyes), images };
  }

  /** The weights of a request; null for one that is refused. */
  #asked(
    model: string,
    prompt: readonly number[],
    { max_tokens: most }: Sampling,
    response: ServerResponse,
  ): StubParameters | null {
    const no = (status: number, message: string): null => {
      refuse(response, status, message);
      return null;
    };
    const weights = model === this.options.base ? this.weights.current : this.adapters.get(model)?.weights;
    if (weights === undefined) return no(404, `The model \`${model}\` does not exist.`);
    const isId = (id: unknown): boolean =>
      Number.isInteger(id) && Number(id) >= 0 && Number(id) < this.#model.config.vocab_size;
    if (!Array.isArray(prompt) || prompt.length === 0 || !prompt.every(isId)) {
      return no(400, 'prompt: a list of token ids of the vocabulary is wanted');
    }
    const { maxModelLen = 4096 } = this.options;
    if (prompt.length + most <= maxModelLen) return weights;
    return no(
      400,
      `This model's maximum context length is ${maxModelLen} tokens. However, you requested ${prompt.length + most} tokens.`,
    );
  }

  #sample(weights: StubParameters, prompt: StubPrompt, how: Sampling): StubChoice {
    const { logprobsMode = 'raw_logprobs', salt = 0 } = this.options;
    const random = new RandomStream('vllm', how.seed, salt);
    const ids: number[] = [];
    const logprobs: number[] = [];
    const tops: Record<string, number>[] = [];
    let stopped = false;
    while (ids.length < how.max_tokens && !stopped) {
      const all = this.#model.logits(weights, prompt, ids);
      const rules = this.options.rules === true ? how.extra_args?.editrl_rules : undefined;
      const may = rules === undefined ? null : allowedBy(rules, ids, all.length);
      const logits = all.map((x, id) => (may === null || may.has(id) ? x : -Infinity));
      const raw = logSoftmax(logits);
      const processed = processedOf(logits, how);
      const id = how.temperature === 0 ? indexOfLargest(logits) : draw(processed, random.uniform());
      const shown = {
        raw_logprobs: raw,
        processed_logprobs: how.temperature === 0 ? raw : processed,
        processed_logits: logits.map((x) => x / (how.temperature || 1)),
      }[logprobsMode].map((x) => Math.max(x, -9999));
      ids.push(id);
      logprobs.push(shown[id]);
      const listed = shown
        .map((x, i) => [x, i] as const)
        .sort((a, b) => b[0] - a[0])
        .slice(0, Math.max(1, how.logprobs ?? 0));
      tops.push(Object.fromEntries(listed.map(([x, i]) => [`token_id:${i}`, x])));
      stopped = how.stop_token_ids.includes(id);
    }
    return {
      index: 0,
      text: '',
      token_ids: ids,
      prompt_token_ids: prompt.ids,
      finish_reason: stopped ? 'stop' : 'length',
      stop_reason: stopped ? ids[ids.length - 1] : null,
      logprobs: {
        tokens: ids.map((id) => `token_id:${id}`),
        token_logprobs: logprobs,
        top_logprobs: tops,
        text_offset: [],
      },
    };
  }
}

function refuse(response: ServerResponse, status: number, message: string): void {
  send(response, status, failure(message, status));
}
