/** Loads versions of weights onto a vLLM server through a shared folder, as adapters or as whole models. */
import { closeSync, mkdirSync, openSync, renameSync, rmSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import type { Deadline } from '../../../core/clock.js';
import { diskError } from '../../../core/files.js';
import type { CheckpointContent, CheckpointFiles } from '../../../models/files.js';
import { EndpointError } from '../../../core/errors.js';
import { SHARE_FOLDER, type VllmClient, type VllmReply, messageOf } from './client.js';
import { createHash } from 'node:crypto';

/** How a request selects the weights. */
export interface ServedAs {
  readonly model: string;
  /** The version that the server reports. Null if `model` alone identifies the weights. */
  readonly version: string | null;
}

export interface WeightsLoader {
  /** Removes weights of an earlier attempt, locally and on the server. */
  clear(within: Deadline): Promise<void>;
  /** The name of weights with this version and with files of this SHA-256. */
  nameOf(version: string, digest: string): string;
  /**
   * Writes a folder and loads it on the server. Raises RunError on a disk error, EndpointError when the server
   * does.
   */
  add(name: string, files: CheckpointFiles, within: Deadline): Promise<void>;
  /** Call again after the server has lost the weights in a restart. */
  load(name: string, within: Deadline): Promise<void>;
  remove(name: string, within: Deadline): Promise<void>;
  servedAs(name: string): ServedAs;
}

/** The path of these weights on the server. */
export function pathOnServer(seenAs: string, name: string): string {
  return `${seenAs.replace(/\/+$/, '')}/${name}`;
}

/** Writes a folder, which gets its final name once it is complete. Raises RunError on a disk error. */
export function writeFolder(folder: string, files: CheckpointFiles): void {
  const unfinished = `${folder}.partial`;
  try {
    rmSync(unfinished, { recursive: true, force: true });
    mkdirSync(unfinished, { recursive: true });
    for (const [name, content] of Object.entries(files)) writeContent(join(unfinished, name), content);
    rmSync(folder, { recursive: true, force: true });
    renameSync(unfinished, folder);
  } catch (cause) {
    rmSync(unfinished, { recursive: true, force: true });
    throw diskError(folder, cause);
  }
}

/** Writes in pieces, because all weights of a model may exceed the size of a buffer. */
function writeContent(path: string, content: CheckpointContent): void {
  const pieces =
    typeof content === 'string' ? [Buffer.from(content)] : content instanceof Uint8Array ? [content] : content;
  const file = openSync(path, 'w');
  try {
    for (const bytes of pieces) {
      let done = 0;
      while (done < bytes.length) done += writeSync(file, bytes, done, Math.min(bytes.length - done, 2 ** 30));
    }
  } finally {
    closeSync(file);
  }
}

export interface AdapterLoaderOptions {
  readonly client: VllmClient;
  /** The folder, and its path on the server. */
  readonly folder: string;
  readonly seenAs: string;
  /** Prefix of the names of all attempts at the run. Other runs on the server use other prefixes. */
  readonly own: string;
  /** Prefix of this attempt's names, equal on all ranks. Begins with `own`. */
  readonly prefix: string;
  /** The rank that the server must support. */
  readonly rank: number;
}

/** Loads one adapter folder with one name per version of the weights. Keeps only the latest. */
export class AdapterLoader implements WeightsLoader {
  constructor(private readonly options: AdapterLoaderOptions) {}

  async clear(within: Deadline): Promise<void> {
    const { client, folder, own } = this.options;
    for (const { id } of await client.models(within)) if (id.startsWith(own)) await this.#unload(id, within);
    rmSync(folder, { recursive: true, force: true });
  }

  nameOf(version: string): string {
    return `${this.options.prefix}${version}`;
  }

  /** A request names the adapter. */
  servedAs(name: string): ServedAs {
    return { model: name, version: null };
  }

  async add(name: string, files: CheckpointFiles, within: Deadline): Promise<void> {
    writeFolder(join(this.options.folder, name), files);
    await this.load(name, within);
  }

  async load(name: string, within: Deadline): Promise<void> {
    const { client, seenAs } = this.options;
    const path = pathOnServer(seenAs, name);
    const reply = await client.load(name, path, within);
    if (reply.status === 200) return;
    // Each name is used once. So either the reply to an earlier request was lost, or another rank was first.
    if (/already been loaded/.test(messageOf(reply.body))) return;
    throw this.#refused(reply, path);
  }

  async remove(name: string, within: Deadline): Promise<void> {
    await this.#unload(name, within);
    rmSync(join(this.options.folder, name), { recursive: true, force: true });
  }

  /** Unloads an adapter. A restarted server without it counts as success. */
  async #unload(name: string, within: Deadline): Promise<void> {
    const { client } = this.options;
    const { status, body } = await client.unload(name, within);
    if (status === 200 || status === 404) return;
    throw new EndpointError(`vLLM does not unload the adapter ${name}: status ${status}: ${messageOf(body)}`, {
      where: client.url,
      next: 'Read the vLLM log.',
    });
  }

  #refused({ status, body }: VllmReply, path: string): EndpointError {
    const { client, rank } = this.options;
    const message = messageOf(body);
    const found = remedies.find(([matches]) => matches(status, message));
    return new EndpointError(`vLLM does not load the adapter at ${path}: status ${status}: ${message}`, {
      where: client.url,
      next: found === undefined ? 'Read the vLLM log.' : found[1](rank),
    });
  }
}

type Matches = (status: number, message: string) => boolean;

const remedies: readonly (readonly [Matches, (rank: number) => string])[] = [
  [
    (status, message) => status === 404 && !/adapter/i.test(message),
    () => 'Start vLLM with VLLM_ALLOW_RUNTIME_LORA_UPDATING=True in its environment, and with --enable-lora.',
  ],
  [(_status, message) => /no adapter found|no such file/i.test(message), () => SHARE_FOLDER],
  [
    (_status, message) => /max_lora_rank/.test(message),
    (rank) => `Start vLLM with --max-lora-rank of at least ${rank}.`,
  ],
  [(_status, message) => /enable.lora|lora is not enabled/i.test(message), () => 'Start vLLM with --enable-lora.'],
];

export interface ModelLoaderOptions {
  readonly client: VllmClient;
  /** The folder, and its path on the server. */
  readonly folder: string;
  readonly seenAs: string;
  /** Prefix of the names, different in each attempt. */
  readonly prefix: string;
  /** The server's name of its model. */
  readonly model: string;
}

/** Number of digits of a digest in a name. */
const DIGITS = 12;
/** The version of weights that are being replaced. */
const REPLACED = 'editrl-replaced';
/** The digest of a parameter that the server stores in another form. */
const OF_NOTHING = createHash('sha256').digest('hex');
/** Parameters that training never sets to 0. Norm weights may be offsets from 1, and biases often begin at 0. */
const NEVER_ZERO = /^(?!.*(?:norm|ln_)).*\.weight$/;

/**
 * Writes a folder with all weights for each version and reloads the server from it. Keeps only the latest.
 * Answers report the version under which they were sampled. This detects a restarted server that samples from the
 * original model.
 */
export class ModelLoader implements WeightsLoader {
  /** Digests of the server's parameters when all of them are 0. */
  #zeroed: ReadonlyMap<string, string> | null = null;

  constructor(private readonly options: ModelLoaderOptions) {}

  /** Resumes a server that an earlier attempt left paused. */
  async clear(within: Deadline): Promise<void> {
    await this.options.client.resume(within);
    rmSync(this.options.folder, { recursive: true, force: true });
  }

  nameOf(version: string, digest: string): string {
    return `${this.options.prefix}${version}-${digest.slice(0, DIGITS)}`;
  }

  servedAs(name: string): ServedAs {
    return { model: this.options.model, version: name };
  }

  async add(name: string, files: CheckpointFiles, within: Deadline): Promise<void> {
    writeFolder(join(this.options.folder, name), files);
    await this.load(name, within);
  }

  async load(name: string, within: Deadline): Promise<void> {
    const { client, seenAs } = this.options;
    const path = pathOnServer(seenAs, name);
    await client.pause(within);
    try {
      await client.nameWeights(REPLACED, within);
      await client.zeroWeights(within);
      this.#zeroed ??= await client.checksums(within);
      await client.reloadWeights(path, within);
      this.#requireRead(await client.checksums(within), path);
      await client.nameWeights(name, within);
    } catch (error) {
      // The original error is raised, whatever happens to the server.
      await client.resume(within).catch(() => undefined);
      throw error;
    }
    await client.resume(within);
  }

  async remove(name: string): Promise<void> {
    rmSync(join(this.options.folder, name), { recursive: true, force: true });
  }

  /** Raises EndpointError if weights are still 0, because they were not read, and if no weights can be compared. */
  #requireRead(found: ReadonlyMap<string, string>, path: string): void {
    const compared = [...(this.#zeroed ?? [])].filter(
      ([name, digest]) => NEVER_ZERO.test(name) && digest !== OF_NOTHING,
    );
    if (compared.length === 0) {
      throw new EndpointError('vLLM reports no digests of its weights, so editrl cannot verify that it reloaded them', {
        where: this.options.client.url,
        next: 'Train an adapter (policy.lora), or sample in this process (rollout.engine: null).',
      });
    }
    const unread = compared.filter(([name, digest]) => found.get(name) === digest).map(([name]) => name);
    if (unread.length === 0) return;
    throw new EndpointError(
      `vLLM reports that it reloaded its weights, but ${unread.length} of ${compared.length} did not change: ${unread.slice(0, 3).join(', ')}`,
      {
        where: this.options.client.url,
        next: `Check in the vLLM log which weights it did not load from ${path}, and restart it. Its weights are 0 now.`,
      },
    );
  }
}
