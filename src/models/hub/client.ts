/**
 * Queries to the Hub. `@huggingface/hub` implements the Hub's interface (addresses, pages of long lists). The `fetch`
 * given to the library decides about connections, retries and error messages.
 */
import { datasetInfo, listFiles, modelInfo } from '@huggingface/hub';
import { EnvHttpProxyAgent, Headers as UndiciHeaders, Response, fetch as undiciFetch, type RequestInit } from 'undici';
import { ConfigError, type EditrlError, EndpointError } from '../../core/errors.js';
import { type RetryPolicy, TransientError, retry } from '../../core/retry.js';
import { retryAfterMs } from '../../core/http/status.js';
import type { HubReference } from '../reference.js';
import { DATASETS, type HubEnvironment, isCommit, nameOf } from './cache.js';

/** A file of a repository. */
export interface RepositoryFile {
  readonly path: string;
  readonly bytes: number;
  /** The name of its blob in a cache: its SHA-256, or for a small file the hash that git has of it. */
  readonly digest: { readonly of: 'sha256' | 'git'; readonly hex: string };
}

/** Limits of a client's retries and waits. */
export interface HubRetryPolicy extends RetryPolicy {
  /** Timeout for headers, and between two pieces of a body. */
  readonly silenceMs: number;
  /** Timeout for a connection. */
  readonly connectMs: number;
}

export const HUB_RETRIES: RetryPolicy = { retries: 5, backoffBaseMs: 1000, backoffCapMs: Infinity };
const usual: HubRetryPolicy = { ...HUB_RETRIES, silenceMs: 30_000, connectMs: 10_000 };

/** The forms of a file's digest. */
const digests = { git: /^[0-9a-f]{40}$/, sha256: /^[0-9a-f]{64}$/ } as const;

type Headers = NonNullable<RequestInit['headers']>;

export class HubClient {
  readonly #agent: EnvHttpProxyAgent;

  constructor(
    readonly environment: HubEnvironment,
    readonly retryPolicy: HubRetryPolicy = usual,
    /** Ends everything that is under way. */
    readonly signal: AbortSignal = new AbortController().signal,
  ) {
    const { silenceMs, connectMs } = retryPolicy;
    this.#agent = new EnvHttpProxyAgent({
      headersTimeout: silenceMs,
      bodyTimeout: silenceMs,
      connect: { timeout: connectMs },
    });
  }

  close(): Promise<void> {
    return this.#agent.close();
  }

  /**
   * The current commit of a revision. Raises EndpointError if the Hub cannot be queried or denies access, ConfigError
   * if it has no such model.
   */
  async commitOf(reference: HubReference): Promise<string> {
    const { hub, revision } = reference;
    const query = { ...this.#request(reference), revision, additionalFields: ['sha' as const] };
    const { sha } = hub.startsWith(DATASETS)
      ? await datasetInfo({ ...query, name: hub.slice(DATASETS.length) })
      : await modelInfo({ ...query, name: hub });
    if (!isCommit(sha)) throw this.#unlike(`'${sha}' as the commit of ${nameOf(reference)}`);
    return sha;
  }

  /** All files of a commit. Raises the errors of `commitOf`. */
  async files(reference: HubReference, commit: string): Promise<RepositoryFile[]> {
    const files: RepositoryFile[] = [];
    const listed = listFiles({
      ...this.#request(reference),
      repo: reference.hub,
      revision: commit,
      recursive: true,
    });
    for await (const { type, path, size, oid, lfs } of listed) {
      // Paths become local paths: none may leave its folder.
      if (type !== 'file' || path.split('/').some((part) => part === '..' || part === '')) continue;
      const [of, hex, bytes] =
        lfs === undefined ? (['git', oid ?? '', size] as const) : (['sha256', lfs.oid, lfs.size] as const);
      // So do digests.
      if (!digests[of].test(hex)) throw this.#unlike(`'${hex}' as the digest of ${path} of ${nameOf(reference)}`);
      files.push({ path, bytes, digest: { of, hex } });
    }
    return files;
  }

  /**
   * A file's bytes from the given one on. The server may start at 0 instead, which its status shows. Raises as
   * `commitOf`, and TransientError.
   */
  open(reference: HubReference, commit: string, path: string, from: number): Promise<Response> {
    const name = path.split('/').map(encodeURIComponent).join('/');
    return this.#ask(reference, `${this.environment.endpoint}/${reference.hub}/resolve/${commit}/${name}`, {
      // The file's own bytes are counted and hashed.
      'accept-encoding': 'identity',
      ...(from === 0 ? {} : { range: `bytes=${from}-` }),
    });
  }

  /** Retries an action while its error may pass and it makes progress. Raises the last error. */
  async persevere<T>(reference: HubReference, work: () => Promise<T>, progress: () => number = () => 0): Promise<T> {
    const { retryPolicy: policy, signal } = this;
    try {
      return await retry(work, { policy, signal, transientErrorOf, progress });
    } catch (cause) {
      signal.throwIfAborted();
      throw cause instanceof TransientError ? this.#away(reference, cause) : cause;
    }
  }

  /** The library's `fetch`. The library would refuse tokens of servers other than Hugging Face's: `hubFetch` sends these. */
  #request(reference: HubReference) {
    return libraryFetch(this.environment, (address, { headers = {} }) =>
      this.persevere(reference, () => this.#read(reference, address, headers)),
    );
  }

  /** A reply whose whole body has arrived, so that a broken one is requested again. */
  async #read(reference: HubReference, address: string, headers: Headers): Promise<Response> {
    const { status, headers: own, body } = await this.#ask(reference, address, headers);
    const text = await new Response(body).text();
    try {
      JSON.parse(text);
    } catch (cause) {
      throw this.#unlike(`no JSON for ${address}: ${text.trim().slice(0, 60)}`, cause);
    }
    return new Response(text, { status, headers: own });
  }

  #unlike(found: string, cause?: unknown): EndpointError {
    return new EndpointError(`the server is not a Hub: found ${found}`, {
      where: this.environment.endpoint,
      next: 'Check HF_ENDPOINT, and whether something between here and the Hub (a proxy, a page to log in) answers instead.',
      cause,
    });
  }

  /** One request. Raises TransientError for failures that are worth a retry, and the matching error for any other unsuccessful reply. */
  async #ask(reference: HubReference, address: string, headers: Headers): Promise<Response> {
    let response: Response;
    try {
      response = await hubFetch(this.environment, address, { headers, dispatcher: this.#agent, signal: this.signal });
    } catch (cause) {
      this.signal.throwIfAborted();
      throw transientErrorOf(cause) ?? this.#away(reference, new TransientError(codeOf(cause), null, cause));
    }
    if (response.ok) return response;
    const replyText = (await response.text().catch(() => '')).slice(0, 200);
    const passing = transientStatus(response);
    if (passing !== null) throw passing;
    throw this.#refusal(reference, response, replyText);
  }

  #refusal(reference: HubReference, response: Response, replyText: string): EditrlError {
    const { status, headers } = response;
    const { token, endpoint } = this.environment;
    const [kind, detail] = [headers.get('x-error-code'), headers.get('x-error-message') ?? replyText];
    const where = `${endpoint}/${reference.hub}`;
    if (kind === 'GatedRepo') {
      const found = token === null ? 'no token was sent' : "the token's account has no read access";
      return new EndpointError(`the ${kindOf(reference.hub)} ${reference.hub} is gated, and ${found}`, {
        where,
        next: `Accept its conditions on its page, ${where}, and set HF_TOKEN to a token of that account. A fine-grained token must include it, too.`,
      });
    }
    if (kind === 'RevisionNotFound') {
      return new ConfigError(`the ${kindOf(reference.hub)} ${reference.hub} has no revision '${reference.revision}'`, {
        where,
        next: 'Name a branch, a tag, or a whole commit hash.',
      });
    }
    if (status === 401 && token !== null && kind !== 'RepoNotFound') {
      return new EndpointError(`the Hub rejected the token (${detail})`, {
        where,
        next: 'Set HF_TOKEN to a valid token, or unset it and remove the file that an earlier login left.',
      });
    }
    if (kind === 'RepoNotFound' || status === 401 || status === 404) return this.#noModel(reference);
    return new EndpointError(`the Hub refuses ${reference.hub}: ${status} ${detail}`, { where });
  }

  #noModel({ hub }: HubReference): EditrlError {
    const { token, endpoint } = this.environment;
    const needs = token === null ? 'HF_TOKEN' : 'a token of an account that may read it';
    return new ConfigError(`the Hub has no ${kindOf(hub)} ${hub}, or it is private`, {
      where: endpoint,
      next: `Check the name. A private ${kindOf(hub)} needs ${needs}.`,
    });
  }

  #away(reference: HubReference, { found, waitMs, cause }: TransientError): EndpointError {
    const wait = waitMs === null || waitMs <= 0 ? '' : ` and requests a pause of ${waitMs / 1000} s`;
    return new EndpointError(`the Hub cannot be queried for ${nameOf(reference)}: ${found}${wait}`, {
      where: this.environment.endpoint,
      next: 'Check the network (HTTPS_PROXY is read from the environment) and HF_ENDPOINT, then repeat the command: downloaded data stays. With HF_HUB_OFFLINE=1 only the cache is used.',
      cause,
    });
  }
}

function kindOf(hub: string): 'dataset' | 'model' {
  return hub.startsWith(DATASETS) ? 'dataset' : 'model';
}

/** The reason of a reply that a retry may fix. Null for any other reply. */
export function transientStatus({ status, headers }: Response): TransientError | null {
  if (status !== 429 && status < 500) return null;
  const waitMs = retryAfterMs((name) => headers.get(name));
  return new TransientError(`it answers ${status}`, waitMs);
}

/**
 * One request. The token is sent only to the Hub, not to other servers that it names: those of its files, and of pages
 * of long lists.
 */
export function hubFetch(
  { token, endpoint }: HubEnvironment,
  address: string,
  { headers, ...init }: RequestInit,
): Promise<Response> {
  const own = token !== null && new URL(address).origin === new URL(endpoint).origin;
  const all = new UndiciHeaders(headers ?? {});
  all.delete('authorization');
  if (own) all.set('authorization', `Bearer ${token}`);
  return undiciFetch(address, { ...init, headers: all });
}

/** The options by which the library sends requests through a function. */
export function libraryFetch(
  { endpoint }: HubEnvironment,
  send: (address: string, init: RequestInit) => Promise<Response>,
) {
  const fetching = (address: string | URL, init: RequestInit = {}): Promise<Response> => send(String(address), init);
  return { hubUrl: endpoint, fetch: fetching as unknown as typeof fetch };
}

/** The reason of a network failure that a retry may fix. Null if retrying would fail in the same way. */
export function transientErrorOf(cause: unknown): TransientError | null {
  const code = codeOf(cause);
  return TRANSIENT_CODES.has(code) ? new TransientError(code, null, cause) : null;
}

/** A server that answered before may come back. The client does not wait for an unreachable one. */
const TRANSIENT_CODES: ReadonlySet<string> = new Set([
  'EAI_AGAIN',
  'ECONNRESET',
  'EPIPE',
  'UND_ERR_BODY_TIMEOUT',
  'UND_ERR_HEADERS_TIMEOUT',
  'UND_ERR_SOCKET',
]);

/** The system's code of a connection failure. `fetch` wraps it. */
export function codeOf(error: unknown): string {
  const { code, cause, message } = error as { code?: unknown; cause?: unknown; message?: string };
  if (typeof code === 'string') return code;
  return cause instanceof Error ? codeOf(cause) : (message ?? String(error));
}
