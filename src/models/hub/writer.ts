/**
 * Publishes to the Hub. `@huggingface/hub` knows how (repositories, branches, large files, commits); how the Hub is reached, what is retried and what
 * errors mean is decided here, in the one `fetch` that the library is given, as in `client.ts`.
 */
import { commit, createBranch, createRepo, listFiles, type CommitOperation } from '@huggingface/hub';
import { pathToFileURL } from 'node:url';
import { EnvHttpProxyAgent, type RequestInit, type Response } from 'undici';
import { ConfigError, EditrlError, EndpointError } from '../../core/errors.js';
import { retry, type RetryPolicy } from '../../core/retry.js';
import { codeOf, HUB_RETRIES, hubFetch, libraryFetch, transientErrorOf, transientStatus } from './client.js';
import type { HubEnvironment } from './cache.js';

/** A file to publish: its path in the repository, and its path on this machine. */
export interface PublishedFile {
  readonly path: string;
  readonly from: string;
}

export interface Publication {
  /** `owner/name`, or a name of the token's own account. */
  readonly repository: string;
  /** `main`, or another branch, which is created if it does not exist. */
  readonly branch: string;
  /** Whether a repository that has to be made is private. */
  readonly private: boolean;
  readonly title: string;
  readonly files: readonly PublishedFile[];
  /** Which files of the branch to remove if they are not among these. */
  readonly removes: (path: string) => boolean;
}

/** The commit that was made. */
export interface Published {
  /** With its owner. */
  readonly repository: string;
  readonly commit: string;
  readonly url: string;
}

/** A name without an owner; parts as the Hub has them. */
const REPOSITORY = /^([\w.-]+\/)?[\w.-]+$/;
/** The last byte of a large file is sent long before the Hub has stored it. */
const SILENCE_MS = 600_000;

/** Raises ConfigError for what cannot be a repository's name. */
export function checkRepository(repository: string, where: string): void {
  if (REPOSITORY.test(repository) && repository.length <= 96) return;
  throw new ConfigError(`'${repository}' cannot name a repository`, {
    where,
    next: 'Write owner/name, or a name alone for your own account: letters, digits, ".", "_", "-", at most 96.',
  });
}

export class HubWriter {
  readonly #agent = new EnvHttpProxyAgent({ headersTimeout: SILENCE_MS, bodyTimeout: SILENCE_MS });

  constructor(
    readonly environment: HubEnvironment,
    private readonly policy: RetryPolicy = HUB_RETRIES,
    private readonly signal: AbortSignal = new AbortController().signal,
  ) {}

  close(): Promise<void> {
    return this.#agent.close();
  }

  /** A repository's name with its owner, by default the token's account. Raises as `publish` does. */
  async fullName(repository: string): Promise<string> {
    this.#requireUsable();
    checkRepository(repository, 'the repository');
    return this.#explained(repository, () => this.#withOwner(repository));
  }

  /**
   * Publishes files as one commit. Raises ConfigError if the Hub may not be queried or there is no token; EndpointError if it cannot be reached or
   * refuses.
   */
  async publish(publication: Publication): Promise<Published> {
    const { branch, title, files, removes } = publication;
    this.#requireUsable();
    checkRepository(publication.repository, 'the repository');
    return this.#explained(publication.repository, async () => {
      const repository = await this.#withOwner(publication.repository);
      await this.#make(repository, publication.private);
      const repo = { type: 'model' as const, name: repository };
      const asking = { ...this.#asking(), repo };
      // A branch that is there stays as it is.
      if (branch !== 'main') await createBranch({ ...asking, branch, overwrite: true });
      const there: string[] = [];
      for await (const { type, path } of listFiles({ ...asking, revision: branch, recursive: true })) {
        if (type === 'file') there.push(path);
      }
      const names = new Set(files.map(({ path }) => path));
      const operations: CommitOperation[] = [
        ...files.map(({ path, from }) => ({ operation: 'addOrUpdate' as const, path, content: pathToFileURL(from) })),
        ...there
          .filter((path) => !names.has(path) && removes(path))
          .map((path) => ({ operation: 'delete' as const, path })),
      ];
      // Large files go where the Hub says by plain requests; its other protocol computes for long on this side.
      const made = await commit({ ...asking, branch, title, operations, useXet: false, abortSignal: this.signal });
      const { endpoint } = this.environment;
      const url = `${endpoint}/${repository}${branch === 'main' ? '' : `/tree/${branch}`}`;
      return { repository, commit: made?.commit.oid ?? '', url };
    });
  }

  #requireUsable(): void {
    const { offline, token } = this.environment;
    if (offline) {
      throw new ConfigError('the Hub may not be asked (HF_HUB_OFFLINE)', {
        where: 'HF_HUB_OFFLINE',
        next: 'Unset it, and export again.',
      });
    }
    if (token === null) {
      throw new ConfigError('publishing on the Hub needs a token, and there is none', {
        where: 'HF_TOKEN',
        next: 'Set HF_TOKEN to a token that may write, or log in with `hf auth login`.',
      });
    }
  }

  async #withOwner(repository: string): Promise<string> {
    if (repository.includes('/')) return repository;
    const response = await this.#fetch(`${this.environment.endpoint}/api/whoami-v2`, {});
    const { name } = (await response.json()) as { readonly name?: unknown };
    if (!response.ok || typeof name !== 'string') {
      throw new Refused(response.status, 'the account of the token is not told');
    }
    return `${name}/${repository}`;
  }

  /** Creates the repository unless it exists; an account that may not create one may still write to an existing one. */
  async #make(repository: string, isPrivate: boolean): Promise<void> {
    try {
      await createRepo({
        ...this.#asking(),
        // The library requires a token and would refuse those of other servers; `#fetch` sets the one that is sent.
        accessToken: 'hf_',
        repo: { type: 'model', name: repository },
        visibility: isPrivate ? 'private' : 'public',
      });
    } catch (error) {
      const status = statusOf(error);
      if (status === 409) return;
      const there =
        status === 403 && (await this.#fetch(`${this.environment.endpoint}/api/models/${repository}`, {})).ok;
      if (!there) throw error;
    }
  }

  #asking() {
    return libraryFetch(this.environment, (address, init) => this.#fetch(address, init));
  }

  /** One request, retried while the failure may pass. */
  #fetch(address: string, init: RequestInit): Promise<Response> {
    const attempt = async (isLast: boolean): Promise<Response> => {
      const sent = { ...init, dispatcher: this.#agent, signal: this.signal };
      const response = await hubFetch(this.environment, address, sent);
      const passing = transientStatus(response);
      // The library makes an error of the last one.
      if (isLast || passing === null) return response;
      await response.body?.cancel();
      throw passing;
    };
    return retry(attempt, { policy: this.policy, signal: this.signal, transientErrorOf });
  }

  /** Errors in words; none of them holds the token. */
  async #explained<T>(repository: string, work: () => Promise<T>): Promise<T> {
    const { endpoint } = this.environment;
    try {
      return await work();
    } catch (error) {
      this.signal.throwIfAborted();
      if (error instanceof EditrlError) throw error;
      const status = statusOf(error);
      const where = `${endpoint}/${repository}`;
      if (status === 401) {
        throw new EndpointError('the Hub does not take the token', { where, next: 'Set HF_TOKEN to a valid one.' });
      }
      if (status === 403) {
        throw new EndpointError('the token may not write there', {
          where,
          next: 'Use a token with the right to write to this repository, or to make it; or another repository.',
        });
      }
      if (status !== null) {
        const said = error instanceof Error ? error.message.slice(0, 300) : '';
        throw new EndpointError(`the Hub refuses to publish (${status}: ${said})`, { where });
      }
      throw new EndpointError(`the Hub cannot be reached (${codeOf(error)})`, {
        where: endpoint,
        next: 'Check the network (HTTPS_PROXY is taken from the environment) and HF_ENDPOINT, then export again.',
        cause: error,
      });
    }
  }
}

class Refused extends Error {
  constructor(
    readonly statusCode: number,
    message: string,
  ) {
    super(message);
  }
}

/** The status that the Hub answered with; null if the error is not an answer of the Hub. */
function statusOf(error: unknown): number | null {
  const { statusCode } = (error ?? {}) as { readonly statusCode?: unknown };
  return typeof statusCode === 'number' ? statusCode : null;
}
