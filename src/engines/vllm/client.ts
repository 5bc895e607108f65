/**
 * Asking a vLLM server. One that is away (it loads its model, or is started again) is asked again until the caller's time is over; an error
 * of its own a few times; what it refuses is not asked again.
 */
import { Absence, type AbsenceListener } from '../../balance/absence.js';
import { askMembers, once, type Asking, type AskPolicy, type Tried } from '../../balance/ask.js';
import { Member, Members, type Ending } from '../../balance/member.js';
import { systemClock, type Clock } from '../../core/clock.js';
import type { Deadline } from '../../core/deadline.js';
import { EndpointError } from '../../core/errors.js';
import { checkedKey } from '../../http/key.js';
import { createHttpPool, type HttpPool } from '../../http/pool.js';
import { isNotThere } from '../../http/request.js';
import {
  completionReply,
  FIXED,
  jsonOf,
  messageOf,
  modelsReply,
  type Completion,
  type CompletionRequest,
  type ServedModel,
} from './wire.js';

export interface VllmOptions extends AbsenceListener {
  /** `http://HOST:PORT`, with or without `/v1`. */
  readonly url: string;
  /** What it was started with as its key; absent where it asks for none. */
  readonly apiKey?: string | undefined;
  /** Requests under way at once. */
  readonly concurrency: number;
  /** The time of one request. */
  readonly timeoutMs: number;
  readonly clock?: Clock;
  /** Uniform in [0, 1), for backoff jitter only. */
  readonly random?: () => number;
}

/** A reply that is none of the server's being away. */
export interface VllmReply {
  readonly status: number;
  readonly body: string;
}

type Found = { readonly kind: 'reply'; readonly reply: VllmReply } | { readonly kind: 'none'; readonly found: string };

/** Statuses of a server that is not ready, has too much to do, or has a proxy before it that does not reach it. */
const AWAY = [429, 502, 503, 504];
/** A server that is away is asked again after so long. */
const AWAY_AGAIN_MS = 1000;

export class VllmClient {
  /** Without `/v1`. */
  readonly url: string;
  readonly #http: HttpPool;
  readonly #members: Members<Member>;
  readonly #clock: Clock;
  readonly #policy: AskPolicy;
  readonly #headers: Readonly<Record<string, string>>;
  readonly #absence: Absence;

  /** Raises ConfigError for a key that no header carries. */
  constructor(private readonly options: VllmOptions) {
    const key = checkedKey(options.apiKey, 'the API key of vLLM');
    this.url = options.url.replace(/\/+$/, '').replace(/\/v1$/, '');
    this.#clock = options.clock ?? systemClock;
    this.#absence = new Absence(this.#clock, options);
    this.#http = createHttpPool({ connections: options.concurrency, secret: key ?? null });
    this.#policy = {
      maxAttempts: 5,
      attemptTimeoutMs: options.timeoutMs,
      backoffBaseMs: 250,
      backoffCapMs: 8000,
      retryAfterCapMs: 30_000,
    };
    // There is no other one to spare it for.
    const member = new Member(this.url, this.#clock, {
      cap: options.concurrency,
      failures: Infinity,
      doubts: Infinity,
      pauseMs: 0,
    });
    this.#members = new Members([member], 'least_loaded');
    this.#headers = {
      'content-type': 'application/json',
      ...(key === undefined ? {} : { authorization: `Bearer ${key}` }),
    };
  }

  /** Returns when it is ready. Raises EndpointError when the time is over before. */
  async ready(within: Deadline): Promise<void> {
    this.#expect(await this.#send('/health', null, within), '/health');
  }

  /** Why it is not ready now; null where it is. */
  async look(within: Deadline): Promise<string | null> {
    const { reply } = await once(this.#members.all[0], this.#asking('/health', null, within));
    if (reply.kind === 'none') return reply.found;
    return reply.reply.status === 200 ? null : `status ${reply.reply.status}: ${messageOf(reply.reply.body)}`;
  }

  /** The model that it serves and the adapters that it has. Raises EndpointError. */
  async models(within: Deadline): Promise<readonly ServedModel[]> {
    const { body } = this.#expect(await this.#send('/v1/models', null, within), '/v1/models');
    const parsed = modelsReply.safeParse(jsonOf(body));
    if (parsed.success) return parsed.data.data;
    throw this.#error(`/v1/models: not a list of models: ${body.slice(0, 200)}`, 'Check that a vLLM runs there.');
  }

  /** Its version, where it tells. */
  async version(within: Deadline): Promise<string | null> {
    const { status, body } = await this.#send('/version', null, within);
    const said = (jsonOf(body) as { version?: unknown } | undefined)?.version;
    return status === 200 && typeof said === 'string' ? said : null;
  }

  /** A status of 200 says that it is loaded; any other one is for the caller to read. */
  load(name: string, path: string, within: Deadline): Promise<VllmReply> {
    return this.#send('/v1/load_lora_adapter', { lora_name: name, lora_path: path }, within);
  }

  unload(name: string, within: Deadline): Promise<VllmReply> {
    return this.#send('/v1/unload_lora_adapter', { lora_name: name }, within);
  }

  /** One answer; null where the server has no such model. Raises EndpointError for a refusal, and for an answer that is not what was asked for. */
  async complete(request: CompletionRequest, within: Deadline): Promise<Completion | null> {
    const reply = await this.#send('/v1/completions', { ...request, ...FIXED }, within);
    if (reply.status === 404 && /does not exist/.test(messageOf(reply.body))) return null;
    const { body } = this.#expect(reply, '/v1/completions');
    const parsed = completionReply.safeParse(jsonOf(body));
    if (!parsed.success) {
      const [{ path, message }] = parsed.error.issues;
      throw this.#error(`/v1/completions: ${path.join('.')}: ${message}`, adviceFor(path));
    }
    const [{ token_ids: ids, finish_reason, logprobs }] = parsed.data.choices;
    const completion: Completion = {
      ids,
      logProbs: logprobs.token_logprobs,
      top: Object.values(logprobs.top_logprobs?.[0] ?? {}),
      stopped: finish_reason === 'stop',
    };
    const wrong = wrongWith(completion, request);
    if (wrong !== null) throw this.#error(`/v1/completions: ${wrong}`, 'Look for an error in the log of vLLM.');
    return completion;
  }

  /** Closes the connections; nothing may be asked afterwards. */
  close(): Promise<void> {
    return this.#http.close();
  }

  /** Raises EndpointError where the server stays away, or fails again and again. */
  async #send(path: string, body: object | null, within: Deadline): Promise<VllmReply> {
    const { reply } = await askMembers(this.#asking(path, body, within));
    if (reply?.kind === 'reply') return reply.reply;
    throw this.#error(
      `${path}: ${reply === null ? 'no time was left to ask' : reply.found}`,
      'Check that it runs and what its log says, then run the same command again: the run goes on from its last checkpoint.',
    );
  }

  #asking(path: string, body: object | null, within: Deadline): Asking<Member, Found> {
    const { random = Math.random } = this.options;
    let last: Found | null = null;
    const ask = async (_member: Member, attempt: Deadline): Promise<Tried<Found>> => {
      const found = await this.#attempt(path, body, attempt);
      // An attempt that the end of the time cut short says less than the one before it.
      const tried = within.over && last !== null && found.next !== 'done' ? { ...found, reply: last } : found;
      last = tried.reply;
      if (tried.next === 'busy' && tried.reply.kind === 'none') this.#absence.goesOn(tried.reply.found);
      else if (tried.next === 'done') this.#absence.isOver();
      return tried;
    };
    return { members: this.#members, policy: this.#policy, clock: this.#clock, random, within, ask };
  }

  async #attempt(path: string, body: object | null, attempt: Deadline): Promise<Tried<Found>> {
    try {
      const response = await this.#http.fetch(`${this.url}${path}`, {
        method: body === null ? 'GET' : 'POST',
        headers: this.#headers,
        signal: attempt.signal,
        ...(body === null ? {} : { body: JSON.stringify(body) }),
      });
      return meaningOf({ status: response.status, body: await response.text() });
    } catch (error) {
      if (attempt.over) return failed(`no answer within ${this.options.timeoutMs / 1000} s`);
      const { code = '' } = error as { code?: string };
      const found = `${error instanceof Error ? error.message : String(error)}${code === '' ? '' : ` (${code})`}`;
      return isNotThere(error) ? away(found) : failed(found);
    }
  }

  #expect(reply: VllmReply, path: string): VllmReply {
    if (reply.status === 200) return reply;
    const said = messageOf(reply.body);
    throw this.#error(`${path}: status ${reply.status}: ${said}`, remedyOf(reply.status, said));
  }

  #error(message: string, next: string): EndpointError {
    return new EndpointError(`vLLM: ${message}`, { where: this.url, next });
  }
}

const works: Ending = { load: 'carried', health: 'works' };
const nothing: Ending = { load: 'nothing', health: 'nothing' };

function meaningOf(reply: VllmReply): Tried<Found> {
  const found = `status ${reply.status}: ${messageOf(reply.body)}`;
  if (AWAY.includes(reply.status)) return away(found);
  if (reply.status >= 500) return failed(found);
  return { reply: { kind: 'reply', reply }, next: 'done', ending: works };
}

function away(found: string): Tried<Found> {
  return { reply: { kind: 'none', found }, next: 'busy', ending: nothing, retryAfterMs: AWAY_AGAIN_MS };
}

function failed(found: string): Tried<Found> {
  return { reply: { kind: 'none', found }, next: 'elsewhere', ending: nothing };
}

/** What of an answer is not what was asked for; null where all is. */
function wrongWith({ ids, logProbs, stopped }: Completion, request: CompletionRequest): string | null {
  const { max_tokens: most, stop_token_ids: ends } = request;
  if (logProbs.length !== ids.length) return `${ids.length} tokens came with ${logProbs.length} log-probabilities`;
  if (ids.length === 0 || ids.length > most) return `found ${ids.length} tokens; allowed: 1 to ${most}`;
  const end = ids.findIndex((id) => ends.includes(id));
  if (stopped && end !== ids.length - 1) {
    return `the answer stopped, but its last token is ${ids[ids.length - 1]}; its end tokens are ${ends.join(', ')}`;
  }
  if (!stopped && end >= 0) return `the answer goes on after its end token ${ids[end]}`;
  if (!stopped && ids.length < most) return `the answer ended at its limit with ${ids.length} tokens of ${most}`;
  return null;
}

function adviceFor(path: readonly PropertyKey[]): string {
  if (path.includes('token_ids')) return 'Token ids (return_token_ids) come from vLLM 0.10.2 on: use a later one.';
  return 'Check that a vLLM runs there, and what its log says.';
}

function remedyOf(status: number, said: string): string {
  if (status === 401 || status === 403) {
    return 'Export the key that it was started with (rollout.engine.api_key_env names the variable).';
  }
  if (/maximum context length|max_model_len/i.test(said)) {
    return 'Start it with --max-model-len of at least policy.model_context_size.';
  }
  return 'Look for the reason in the log of vLLM.';
}
