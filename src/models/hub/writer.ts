/**
 * Publishes to the Hub. `@huggingface/hub` implements the steps (repositories, branches, large files, commits). As in
 * `client.ts`, the `fetch` given to the library decides about connections, retries and error messages.
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
  /** Whether a newly created repository is private. */
  readonly private: boolean;
  readonly title: string;
  readonly files: readonly PublishedFile[];
  /** Selects files of the branch to remove if they are not in this commit. */
  readonly removes: (path: string) => boolean;
}

/** The new commit. */
export interface Published {
  /** With its owner. */
  readonly repository: string;
  readonly commit: string;
  readonly url: string;
}

/** A name without an owner, by the Hub's rules. */
const REPOSITORY = /^([\w.-]+\/)?[\w.-]+$/;
/** The last byte of a large file is sent long before the Hub has stored it. */
const SILENCE_MS = 600_000;

/** Raises ConfigError for an invalid repository name. */
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

  /** A repository's name with its owner, by default the token's account. Raises the errors of `publish`. */
  async fullName(repository: string): Promise<string> {
    this.#requireUsable();
    checkRepository(repository, 'the repository');
    return this.#explained(repository, () => this.#withOwner(repository));
  }

  /**
   * Publishes files as one commit. Raises ConfigError if Hub queries are disabled or there is no token, and
   * EndpointError if the Hub cannot be reached or refuses.
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
      // An existing branch stays unchanged.
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
      // Large files are uploaded with plain requests. The Hub's other protocol needs much CPU time.
      const made = await commit({ ...asking, branch, title, operations, useXet: false, abortSignal: this.signal });
      const { endpoint } = this.environment;
      const url = `${endpoint}/${repository}${branch === 'main' ? '' : `/tree/${branch}`}`;
      return { repository, commit: made?.commit.oid ?? '', url };
    });
  }

  #requireUsable(): void {
    const { offline, token } = this.environment;
    if (offline) {
      throw new ConfigError('HF_HUB_OFFLINE disables requests to the Hub', {
        where: 'HF_HUB_OFFLINE',
        next: 'Unset it, and export again.',
      });
    }
    if (token === null) {
      throw new ConfigError('publishing on the Hub needs a token, but there is none', {
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
      throw new Refused(response.status, "the token's account is unknown");
    }
    return `${name}/${repository}`;
  }

  /**
   * Creates the repository unless it exists. An account without the right to create one may still have write access to
   * an existing one.
   */
  async #make(repository: string, isPrivate: boolean): Promise<void> {
    try {
      await createRepo({
        ...this.#asking(),
        // The library requires a token and would reject those of other servers. `#fetch` sets the real one.
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

  /** Error messages, without the token. */
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
        throw new EndpointError('the Hub rejected the token', { where, next: 'Set HF_TOKEN to a valid one.' });
      }
      if (status === 403) {
        throw new EndpointError('the token has no write access', {
          where,
          next: 'Use a token with write access to this repository, or with the right to create it; or another repository.',
        });
      }
      if (status !== null) {
        const reason = error instanceof Error ? error.message.slice(0, 300) : '';
        throw new EndpointError(`the Hub rejected the upload (${status}: ${reason})`, { where });
      }
      throw new EndpointError(`the Hub cannot be reached (${codeOf(error)})`, {
        where: endpoint,
        next: 'Check the network (HTTPS_PROXY is read from the environment) and HF_ENDPOINT, then export again.',
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

/** The status of the Hub's answer. Null if the error is not an answer of the Hub. */
function statusOf(error: unknown): number | null {
  const { statusCode } = (error ?? {}) as { readonly statusCode?: unknown };
  return typeof statusCode === 'number' ? statusCode : null;
}
