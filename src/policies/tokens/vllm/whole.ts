/**
 * All weights of a model on a vLLM server: a folder for each version, from which the server reads its weights anew; only the latest is kept. Answers
 * name the version that they were sampled under, so that a server which has started again, and samples from the model as it was, is noticed.
 */
import { createHash } from 'node:crypto';
import { rmSync } from 'node:fs';
import { join } from 'node:path';
import type { Deadline } from '../../../core/deadline.js';
import { EndpointError } from '../../../core/errors.js';
import type { VllmClient } from '../../../engines/vllm/client.js';
import type { CheckpointFiles } from '../../../models/files.js';
import { pathOnServer, writeFolder, type ServedAs, type WeightsShelf } from './shelf.js';

export interface WholeShelfOptions {
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
/** What a parameter has as its digest that the server keeps in another form. */
const OF_NOTHING = createHash('sha256').digest('hex');
/** Parameters that no training makes 0: weights of norms may be offsets from 1, and biases often begin as 0. */
const NEVER_ZERO = /^(?!.*(?:norm|ln_)).*\.weight$/;

export class WholeShelf implements WeightsShelf {
  /** Digests of the server's parameters where all of them are 0. */
  #zeroed: ReadonlyMap<string, string> | null = null;

  constructor(private readonly options: WholeShelfOptions) {}

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
      throw new EndpointError(
        'vLLM has digests of none of its matrices, so nobody can tell whether it read them anew',
        {
          where: this.options.client.url,
          next: 'Train an adapter (policy.lora), or let the policy sample itself (rollout.engine: null).',
        },
      );
    }
    const unread = looked.filter(([name, digest]) => found.get(name) === digest).map(([name]) => name);
    if (unread.length === 0) return;
    throw new EndpointError(
      `vLLM says that it has read its weights anew, but ${unread.length} of ${looked.length} did not change: ${unread.slice(0, 3).join(', ')}`,
      {
        where: this.options.client.url,
        next: `Look in the log of vLLM for what it did not load from ${path}, and start it again: its weights are 0 now.`,
      },
    );
  }
}
