/**
 * A client of a vLLM server.
 * If the server is unreachable (loading its model or restarting), the client retries until the deadline. It retries server
 * errors a few times and never repeats a rejected request.
 */
import {
  type AttemptResult,
  gotAnswer,
  AwaitedMember,
  AwaitedRemote,
  requestFailed,
  noAnswer,
  RUN_AGAIN,
  type ReplyOutcome,
  type ServerOptions,
} from '../../../core/remote/remote.js';
import { type Deadline, systemClock } from '../../../core/clock.js';
import { EndpointError, must } from '../../../core/errors.js';
import { checkedKey } from '../../../core/http/key.js';
import { byStatus, retryAfterMs, type StatusTable } from '../../../core/http/status.js';
import { createHttpPool, type HttpPool } from '../../../core/http/pool.js';
import { type ZodType, z } from 'zod';

/** A reply of the server itself, so the server is not away. */
export interface VllmReply {
  readonly status: number;
  readonly body: string;
}

const GENERATE = '/inference/v1/generate';
const START_SCALE_OUT = 'Start vLLM, 0.32 or later, with --enable-scale-out.';
/** Advice if the server is not in development mode, without which its weights cannot change. */
export const START_CONTROLLED =
  'Start vLLM, 0.32 or later, with VLLM_SERVER_DEV_MODE=1 in its environment, and with --enable-scale-out.';

/** The meaning of statuses. Callers handle rejections. */
const STATUSES: StatusTable<'away' | 'failed' | 'answered'> = {
  // Not ready, overloaded, or behind a proxy that cannot reach it.
  429: 'away',
  502: 'away',
  503: 'away',
  504: 'away',
  '5xx': 'failed',
  rest: 'answered',
};

/** A path and the posted body. Null for a GET. */
interface Sent {
  readonly path: string;
  readonly body: object | null;
}

export class VllmClient {
  /** Address without `/v1`. */
  readonly url: string;
  readonly #http: HttpPool;
  readonly #remote: AwaitedRemote<AwaitedMember, Sent, VllmReply>;
  readonly #headers: Readonly<Record<string, string>>;

  /** Accepts addresses with or without `/v1`. Raises ConfigError for a key that cannot be a header. */
  constructor(private readonly options: ServerOptions) {
    const key = checkedKey(options.apiKey, 'the API key of vLLM');
    this.url = options.url.replace(/\/+$/, '').replace(/\/v1$/, '');
    const { concurrency, timeoutMs, clock = systemClock } = options;
    this.#http = createHttpPool({ connections: concurrency, secret: key ?? null });
    this.#remote = new AwaitedRemote({
      ...options,
      members: [new AwaitedMember(this.url, clock, { cap: concurrency, alone: true })],
      policy: { maxAttempts: 5, attemptTimeoutMs: timeoutMs, retryAfterCapMs: 30_000 },
      attempt: (_member, sent, attempt) => this.#attempt(sent, attempt),
      error: (found, { next = folderAdvice(found) ?? RUN_AGAIN }, { path }) => this.#error(`${path}: ${found}`, next),
      away: (found) => found,
    });
    this.#headers = {
      'content-type': 'application/json',
      ...(key === undefined ? {} : { authorization: `Bearer ${key}` }),
    };
  }

  /** Waits until the server is ready. Raises EndpointError at the deadline. */
  async ready(within: Deadline): Promise<void> {
    this.#expect(await this.#send('/health', null, within), '/health');
  }

  /** Why the server is not ready now. Null if it is. */
  async whyNotReady(within: Deadline): Promise<string | null> {
    const reply = await this.#remote.look({ path: '/health', body: null }, within);
    if (reply?.kind !== 'answered') return reply?.found ?? 'no time was left to ask';
    const { status, body } = reply.answer;
    return status === 200 ? null : `status ${status}: ${messageOf(body)}`;
  }

  /** The served model and its adapters. Raises EndpointError. */
  async models(within: Deadline): Promise<readonly ServedModel[]> {
    const { body } = this.#expect(await this.#send('/v1/models', null, within), '/v1/models');
    const parsed = modelsReply.safeParse(jsonOf(body));
    if (parsed.success) return parsed.data.data;
    throw this.#error(`/v1/models: not a list of models: ${body.slice(0, 200)}`, 'Check that a vLLM runs there.');
  }

  /** The server's version, if it reports one. */
  async version(within: Deadline): Promise<string | null> {
    const { status, body } = await this.#send('/version', null, within);
    const message = (jsonOf(body) as { version?: unknown } | undefined)?.version;
    return status === 200 && typeof message === 'string' ? message : null;
  }

  /** Loads an adapter. Status 200 means success. The caller handles other statuses. */
  load(name: string, path: string, within: Deadline): Promise<VllmReply> {
    return this.#send('/v1/load_lora_adapter', { lora_name: name, lora_path: path }, within);
  }

  unload(name: string, within: Deadline): Promise<VllmReply> {
    return this.#send('/v1/unload_lora_adapter', { lora_name: name }, within);
  }

  /**
   * Samples one answer. Null if the server lacks the model. Raises EndpointError for a rejection, and for an answer
   * that violates the request.
   */
  async complete(request: CompletionRequest, within: Deadline): Promise<Completion | null> {
    const reply = await this.#send('/v1/completions', { ...request, ...FIXED_FIELDS }, within);
    if (reply.status === 404 && /does not exist/.test(messageOf(reply.body))) return null;
    const { choices } = this.#read(reply, '/v1/completions', completionReply);
    const [{ token_ids: ids, finish_reason, logprobs }] = choices;
    const completion: Completion = {
      ids,
      logProbs: logprobs.token_logprobs,
      top: Object.values(logprobs.top_logprobs?.[0] ?? {}),
      stopped: finish_reason === 'stop',
    };
    this.#check(completion, request, '/v1/completions');
    return completion;
  }

  /**
   * Like `complete`, for a prompt with images or for named weights. Raises EndpointError also if the server lacks this
   * route.
   */
  async generate(request: GenerateRequest, within: Deadline): Promise<Generated | null> {
    const reply = await this.#send(GENERATE, generateBody(request), within);
    if (reply.status === 404 && /does not exist/.test(messageOf(reply.body))) return null;
    if (reply.status === 404 || reply.status === 403) {
      throw this.#error(`${GENERATE}: status ${reply.status}: ${messageOf(reply.body)}`, START_SCALE_OUT);
    }
    const { choices, prompt_token_ids: promptIds } = this.#read(reply, GENERATE, generateReply);
    const [{ token_ids: ids, finish_reason, logprobs, weight_versions }] = choices;
    const generated: Generated = {
      ids,
      logProbs: logprobs.content.map(({ logprob }) => logprob),
      top: [],
      stopped: finish_reason === 'stop',
      promptIds,
      versions: weight_versions.map(({ version }) => version),
    };
    this.#check(generated, request, GENERATE);
    return generated;
  }

  /** Finishes requests in progress, holds back new ones, and clears the cache. */
  async pause(within: Deadline): Promise<void> {
    await this.#control('/pause?mode=wait', {}, within);
  }

  /** Resumes a paused server. Has no effect otherwise. */
  async resume(within: Deadline): Promise<void> {
    await this.#control('/resume', {}, within);
  }

  /** Digests of all parameters. They are meaningless for parameters that a CPU server stores in another form. */
  async checksums(within: Deadline): Promise<ReadonlyMap<string, string>> {
    const reply = await this.#control('/weight_checker', { action: 'checksum' }, within);
    return new Map(Object.entries(this.#read(reply, '/weight_checker', checksumsReply).checksums));
  }

  /** Sets all parameters to 0. */
  async zeroWeights(within: Deadline): Promise<void> {
    await this.#control('/weight_checker', { action: 'reset' }, within);
  }

  /** Reloads all weights from a folder on the server. Raises EndpointError if that fails. */
  async reloadWeights(path: string, within: Deadline): Promise<void> {
    await this.#control('/collective_rpc', { method: 'reload_weights', kwargs: { weights_path: path } }, within);
  }

  /** Sets the version of the weights, which later answers report. */
  async nameWeights(version: string, within: Deadline): Promise<void> {
    await this.#control('/update_weight_version', { new_version: version }, within);
  }

  /** Raises EndpointError, with advice on how to start the server, if its weights cannot be replaced. */
  async requireControl(within: Deadline): Promise<void> {
    await this.#control('/weight_info', null, within);
  }

  /** Raises EndpointError, with advice on how to start the server, if it does not support `generate`. */
  async requireGenerate(model: string, within: Deadline): Promise<void> {
    const one = { max_tokens: 1, temperature: 1, top_p: 1, top_k: 0, seed: 1, stop_token_ids: [], logprobs: 0 };
    await this.generate({ ...one, model, prompt: [0], parts: [], cacheSalt: 'editrl-look', rules: null }, within);
  }

  /** Closes the connections. The client must not be used afterwards. */
  close(): Promise<void> {
    return this.#http.close();
  }

  /** Raises EndpointError if the server stays unreachable or fails repeatedly. */
  #send(path: string, body: object | null, within: Deadline): Promise<VllmReply> {
    return this.#remote.answer({ path, body }, within);
  }

  async #attempt({ path, body }: Sent, attempt: Deadline): Promise<AttemptResult<ReplyOutcome<VllmReply>>> {
    try {
      const response = await this.#http.fetch(`${this.url}${path}`, {
        method: body === null ? 'GET' : 'POST',
        headers: this.#headers,
        signal: attempt.signal,
        ...(body === null ? {} : { body: JSON.stringify(body) }),
      });
      const reply = { status: response.status, body: await response.text() };
      const meaning = byStatus(STATUSES, reply.status);
      if (meaning === 'answered') return gotAnswer(reply);
      const found = `status ${reply.status}: ${messageOf(reply.body)}`;
      return noAnswer(
        meaning,
        found,
        retryAfterMs((name) => response.headers.get(name)),
      );
    } catch (error) {
      return requestFailed(error, attempt, this.options.timeoutMs);
    }
  }

  /** Calls a route of vLLM's development mode. */
  async #control(path: string, body: object | null, within: Deadline): Promise<VllmReply> {
    const reply = await this.#send(path, body, within);
    if (reply.status !== 404) return this.#expect(reply, path);
    throw this.#error(`${path}: status 404: ${messageOf(reply.body)}`, START_CONTROLLED);
  }

  #read<T>(reply: VllmReply, path: string, form: ZodType<T>): T {
    const parsed = form.safeParse(jsonOf(this.#expect(reply, path).body));
    if (parsed.success) return parsed.data;
    const [{ path: at, message }] = parsed.error.issues;
    throw this.#error(`${path}: ${at.join('.')}: ${message}`, adviceFor(at));
  }

  #check(completion: Completion, request: CompletionRequest, path: string): void {
    const wrong = wrongWith(completion, request);
    if (wrong !== null) throw this.#error(`${path}: ${wrong}`, 'Read the vLLM log.');
  }

  #expect(reply: VllmReply, path: string): VllmReply {
    if (reply.status === 200) return reply;
    const message = messageOf(reply.body);
    throw this.#error(`${path}: status ${reply.status}: ${message}`, remedyOf(reply.status, message));
  }

  #error(message: string, next: string): EndpointError {
    return new EndpointError(`vLLM: ${message}`, { where: this.url, next });
  }
}

/** Describes how a completion violates its request. Null if it does not. */
function wrongWith({ ids, logProbs, stopped }: Completion, request: CompletionRequest): string | null {
  const { max_tokens: most, stop_token_ids: ends } = request;
  if (logProbs.length !== ids.length) return `${ids.length} tokens came with ${logProbs.length} log-probabilities`;
  if (ids.length === 0 || ids.length > most) return `found ${ids.length} tokens; allowed: 1 to ${most}`;
  const end = ids.findIndex((id) => ends.includes(id));
  if (stopped && end !== ids.length - 1) {
    return `the answer stopped, but its last token is ${ids[ids.length - 1]}; its end tokens are ${ends.join(', ')}`;
  }
  if (!stopped && end >= 0) return `the answer continues after its end token ${ids[end]}`;
  if (!stopped && ids.length < most) return `the answer ended at its limit with ${ids.length} tokens of ${most}`;
  return null;
}

function adviceFor(path: readonly PropertyKey[]): string {
  if (path.includes('weight_versions')) {
    return 'weight_versions needs vLLM 0.32 or later.';
  }
  if (path.includes('token_ids')) return 'return_token_ids needs vLLM 0.10.2 or later.';
  return 'Check that vLLM runs there, and read its log.';
}

function remedyOf(status: number, message: string): string {
  if (status === 401 || status === 403) {
    return 'Export the key of the server (rollout.engine.api_key_env names the variable).';
  }
  if (/maximum context length|max_model_len/i.test(message)) {
    return 'Start it with --max-model-len of at least policy.model_context_size.';
  }
  return 'Read the vLLM log.';
}

/** Advice for a server that cannot find the weights. Null for any other failure. */
function folderAdvice(message: string): string | null {
  return /repo id must be|no such file|cannot find any model weights/i.test(message) ? SHARE_FOLDER : null;
}

export const SHARE_FOLDER =
  'The server cannot read that folder. Set rollout.engine.adapter_dir to a shared folder, and server_adapter_dir to its path on the server.';

/**
 * `processed`: of the distribution that was sampled. `raw`: before the temperature. `other`: logits, or anything else.
 */
export type LogProbsMode = 'processed' | 'raw' | 'other';

const TEMPERATURES = [1, 2] as const;
const TOLERANCE = 0.02;

/**
 * Determines the mode by two requests for the two most probable tokens at two temperatures. Processed values are
 * renormalized over the two, and their distance falls with the temperature. Raw values are equal at both temperatures.
 */
export async function probeLogProbs(
  client: VllmClient,
  model: string,
  prompt: readonly number[],
  within: Deadline,
): Promise<LogProbsMode> {
  const [cool, warm] = await Promise.all(
    TEMPERATURES.map(async (temperature): Promise<readonly [number, number] | null> => {
      const request = { model, prompt, temperature, max_tokens: 1, top_p: 1, top_k: 2, seed: 1, stop_token_ids: [] };
      const { top } = must(await client.complete({ ...request, logprobs: 2 }, within), `the served model ${model}`);
      const [first, second] = [...top].sort((a, b) => b - a);
      return second === undefined ? null : [first, second];
    }),
  );
  if (cool === null || warm === null) return 'other';
  const isClose = (a: number, b: number): boolean => Math.abs(a - b) <= TOLERANCE * Math.max(1, Math.abs(b));
  const mass = ([a, b]: readonly [number, number]): number => Math.exp(a) + Math.exp(b);
  const gap = ([a, b]: readonly [number, number]): number => a - b;
  if (isClose(mass(cool), 1) && isClose(mass(warm), 1) && isClose(2 * gap(warm), gap(cool))) return 'processed';
  const same = isClose(warm[0], cool[0]) && isClose(warm[1], cool[1]);
  return same && mass(cool) <= 1 + TOLERANCE ? 'raw' : 'other';
}

/**
 * One answer to a prompt of token ids. Contains every sampling value, because vLLM takes missing ones from the model's
 * generation_config.json.
 */
export interface CompletionRequest {
  /** The name of an adapter, or of the model itself. */
  readonly model: string;
  readonly prompt: readonly number[];
  readonly max_tokens: number;
  /** 0 takes the most probable token. */
  readonly temperature: number;
  readonly top_p: number;
  /** 0 keeps all tokens. */
  readonly top_k: number;
  readonly seed: number;
  /** Tokens that end the answer. The answer includes the end token. */
  readonly stop_token_ids: readonly number[];
  /** Number of alternatives to return for each token, in addition to the token itself. */
  readonly logprobs: number;
}

/**
 * Fields that are equal in all requests. The server ignores its own end tokens, because the policy's tokens end an
 * answer.
 */
export const FIXED_FIELDS = {
  n: 1,
  min_p: 0,
  repetition_penalty: 1,
  ignore_eos: true,
  skip_special_tokens: false,
  return_token_ids: true,
  return_tokens_as_token_ids: true,
  stream: false,
} as const;

/** An image or a clip in a prompt as a data URL. Each is represented by one token id. */
export interface ContentPart {
  readonly type: 'image_url' | 'video_url';
  readonly url: string;
}

/** A request to `/inference/v1/generate`: a completion with images that uses no cache of other weights. */
export interface GenerateRequest extends CompletionRequest {
  readonly parts: readonly ContentPart[];
  /** Identifies the weights. Cached blocks with another salt are not used. */
  readonly cacheSalt: string;
  /** Rules for our logits processor, if the server has it. Null allows any token. */
  readonly rules: object | null;
}

/** The argument in which our logits processor finds the rules of a request. */
export const RULES_ARGUMENT = 'editrl_rules';

/** The body of a request to `/inference/v1/generate`. Disables detokenization. */
export function generateBody({ model, prompt, parts, cacheSalt, rules, ...sampling }: GenerateRequest): object {
  return {
    model,
    token_ids: prompt,
    cache_salt: cacheSalt,
    return_token_ids: true,
    stream: false,
    ...(parts.length === 0 ? {} : { content_parts: parts }),
    sampling_params: {
      ...sampling,
      n: 1,
      min_p: 0,
      repetition_penalty: 1,
      ignore_eos: true,
      skip_special_tokens: false,
      detokenize: false,
      ...(rules === null ? {} : { extra_args: { [RULES_ARGUMENT]: rules } }),
    },
  };
}

export const generateReply = z.object({
  prompt_token_ids: z.array(z.int().min(0)),
  choices: z
    .array(
      z.object({
        token_ids: z.array(z.int().min(0)),
        finish_reason: z.enum(['stop', 'length']),
        logprobs: z.object({ content: z.array(z.object({ logprob: z.number() })) }),
        weight_versions: z.array(z.object({ version: z.string() })),
      }),
    )
    .length(1),
});

/** Digests of the server's parameters, by its own names for them. */
export const checksumsReply = z.object({ checksums: z.record(z.string(), z.string()) });

const choice = z.object({
  token_ids: z.array(z.int().min(0)),
  finish_reason: z.enum(['stop', 'length']),
  logprobs: z.object({
    token_logprobs: z.array(z.number()),
    top_logprobs: z.array(z.record(z.string(), z.number()).nullable()).nullish(),
  }),
});
export const completionReply = z.object({ choices: z.array(choice).length(1) });

export interface Completion {
  readonly ids: readonly number[];
  /** Log-probability of each token in nats, in the server's `--logprobs-mode`. */
  readonly logProbs: readonly number[];
  /** Log-probabilities of the most probable first tokens, as many as requested. */
  readonly top: readonly number[];
  readonly stopped: boolean;
}

/** An answer of `/inference/v1/generate`. */
export interface Generated extends Completion {
  /** The prompt as the server read it, with its own number of tokens for each image. */
  readonly promptIds: readonly number[];
  /** Versions of the weights while the answer was sampled. */
  readonly versions: readonly string[];
}

export const modelsReply = z.object({
  data: z.array(
    z.object({
      id: z.string(),
      /** Null for the model itself, else the base model of the adapter. */
      parent: z.string().nullish(),
      max_model_len: z.number().nullish(),
    }),
  ),
});
export type ServedModel = z.output<typeof modelsReply>['data'][number];

/**
 * The text of a server's error: `{error: {message}}`, `{message}` before 0.10.1, `{detail}` of the framework, or any
 * text.
 */
export function messageOf(body: string): string {
  const parsed = errorReply.safeParse(jsonOf(body));
  const message = parsed.success
    ? (parsed.data.error?.message ?? parsed.data.message ?? parsed.data.detail)
    : undefined;
  return (typeof message === 'string' ? message : body).trim().slice(0, 500);
}

const errorReply = z.object({
  error: z.object({ message: z.string() }).optional().catch(undefined),
  message: z.string().optional().catch(undefined),
  detail: z.unknown().optional(),
});

/** Parses JSON. Undefined for anything else. */
export function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return undefined;
  }
}
