/** Weights on a vLLM server: one version after the other, in a folder that it sees, as adapters or as whole models. */
import { closeSync, mkdirSync, openSync, renameSync, rmSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import type { Deadline } from '../../../core/clock.js';
import { diskError } from '../../../core/files.js';
import type { CheckpointContent, CheckpointFiles } from '../../../models/files.js';
import { EndpointError } from '../../../core/errors.js';
import { SHARE_FOLDER, type VllmClient, type VllmReply, messageOf } from './client.js';
import { createHash } from 'node:crypto';

/** How a request names the weights. */
export interface ServedAs {
  readonly model: string;
  /** The name that the server says to have sampled under. Null where `model` alone names the weights. */
  readonly version: string | null;
}

export interface WeightsLoader {
  /** Removes what an earlier attempt left, here and on the server. */
  clear(within: Deadline): Promise<void>;
  /** The name of weights by their version and the SHA-256 of their files. */
  nameOf(version: string, digest: string): string;
  /** Writes a folder and has the server load it. Raises RunError when the disk refuses, EndpointError when the server does. */
  add(name: string, files: CheckpointFiles, within: Deadline): Promise<void>;
  /** Call again after the server has lost them in a restart. */
  load(name: string, within: Deadline): Promise<void>;
  remove(name: string, within: Deadline): Promise<void>;
  servedAs(name: string): ServedAs;
}

/** The path of these weights on the server. */
export function pathOnServer(seenAs: string, name: string): string {
  return `${seenAs.replace(/\/+$/, '')}/${name}`;
}

/** Writes a folder that is complete as soon as it has its name. Raises RunError when the disk refuses. */
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

/** Piece by piece: all weights of a model may be more than a buffer holds. */
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
  /** Where they are written, and the path of that folder on the server. */
  readonly folder: string;
  readonly seenAs: string;
  /** Prefix of the names of all attempts at the run, which no other run on the same server uses. */
  readonly own: string;
  /** Prefix of their names, the same on all ranks; begins with `own`. */
  readonly prefix: string;
  /** The rank that the server has to be started for. */
  readonly rank: number;
}

/** One adapter folder and one name for each version of the weights. Only the latest is kept. */
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
    // Names are not used twice: either an earlier request got through but its reply did not, or another rank was first.
    if (/already been loaded/.test(messageOf(reply.body))) return;
    throw this.#refused(reply, path);
  }

  async remove(name: string, within: Deadline): Promise<void> {
    await this.#unload(name, within);
    rmSync(join(this.options.folder, name), { recursive: true, force: true });
  }

  /** A restarted server that does not have it counts as having unloaded it. */
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
    const said = messageOf(body);
    const found = remedies.find(([matches]) => matches(status, said));
    return new EndpointError(`vLLM does not load the adapter at ${path}: status ${status}: ${said}`, {
      where: client.url,
      next: found === undefined ? 'Read the vLLM log.' : found[1](rank),
    });
  }
}

type Matches = (status: number, said: string) => boolean;

const remedies: readonly (readonly [Matches, (rank: number) => string])[] = [
  [
    (status, said) => status === 404 && !/adapter/i.test(said),
    () => 'Start vLLM with VLLM_ALLOW_RUNTIME_LORA_UPDATING=True in its environment, and with --enable-lora.',
  ],
  [(_status, said) => /no adapter found|no such file/i.test(said), () => SHARE_FOLDER],
  [(_status, said) => /max_lora_rank/.test(said), (rank) => `Start vLLM with --max-lora-rank of at least ${rank}.`],
  [(_status, said) => /enable.lora|lora is not enabled/i.test(said), () => 'Start vLLM with --enable-lora.'],
];

export interface ModelLoaderOptions {
  readonly client: VllmClient;
  /** Where they are written, and the path of that folder on the server. */
  readonly folder: string;
  readonly seenAs: string;
  /** Prefix of their names, different in each attempt. */
  readonly prefix: string;
  /** What the server calls its model. */
  readonly model: string;
}

/** Digits of a digest in a name. */
const DIGITS = 12;
/** The name of weights that are being replaced. */
const REPLACED = 'editrl-replaced';
/** The digest of a parameter that the server stores in another form. */
const OF_NOTHING = createHash('sha256').digest('hex');
/** Parameters that no training makes 0: weights of norms may be offsets from 1, and biases often begin as 0. */
const NEVER_ZERO = /^(?!.*(?:norm|ln_)).*\.weight$/;

/**
 * A folder of all weights for each version, from which the server reads its weights again. Only the latest is kept. Answers name the version that they
 * were sampled under, so that a server which has restarted, and samples from the original model, is noticed.
 */
export class ModelLoader implements WeightsLoader {
  /** Digests of the server's parameters where all of them are 0. */
  #zeroed: ReadonlyMap<string, string> | null = null;

  constructor(private readonly options: ModelLoaderOptions) {}

  /** A server that an earlier attempt left paused goes on. */
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
      // What went wrong is told, whatever becomes of the server.
      await client.resume(within).catch(() => undefined);
      throw error;
    }
    await client.resume(within);
  }

  async remove(name: string): Promise<void> {
    rmSync(join(this.options.folder, name), { recursive: true, force: true });
  }

  /** Weights that are still 0 were not read. Raises EndpointError for such, and where there is nothing to tell by. */
  #requireRead(found: ReadonlyMap<string, string>, path: string): void {
    const looked = [...(this.#zeroed ?? [])].filter(([name, digest]) => NEVER_ZERO.test(name) && digest !== OF_NOTHING);
    if (looked.length === 0) {
      throw new EndpointError('vLLM reports no digests of its weights, so editrl cannot verify that it reloaded them', {
        where: this.options.client.url,
        next: 'Train an adapter (policy.lora), or sample in this process (rollout.engine: null).',
      });
    }
    const unread = looked.filter(([name, digest]) => found.get(name) === digest).map(([name]) => name);
    if (unread.length === 0) return;
    throw new EndpointError(
      `vLLM reports that it reloaded its weights, but ${unread.length} of ${looked.length} did not change: ${unread.slice(0, 3).join(', ')}`,
      {
        where: this.options.client.url,
        next: `Check in the vLLM log which weights it did not load from ${path}, and restart it. Its weights are 0 now.`,
      },
    );
  }
}
