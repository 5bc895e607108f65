/** A run's adapters on a vLLM server: one folder and one name for each version of the weights; only the latest is kept. */
import { rmSync } from 'node:fs';
import { join } from 'node:path';
import type { Deadline } from '../../../core/deadline.js';
import { EndpointError } from '../../../core/errors.js';
import { SHARE_FOLDER, type VllmClient, type VllmReply } from '../../../engines/vllm/client.js';
import { messageOf } from '../../../engines/vllm/wire.js';
import type { CheckpointFiles } from '../../../models/files.js';
import { pathOnServer, writeFolder, type ServedAs, type WeightsShelf } from './shelf.js';

export interface AdapterShelfOptions {
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

export class AdapterShelf implements WeightsShelf {
  constructor(private readonly options: AdapterShelfOptions) {}

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
    throw new EndpointError(`vLLM does not let go of the adapter ${name}: status ${status}: ${messageOf(body)}`, {
      where: client.url,
      next: 'Look for the reason in the log of vLLM.',
    });
  }

  #refused({ status, body }: VllmReply, path: string): EndpointError {
    const { client, rank } = this.options;
    const said = messageOf(body);
    const found = remedies.find(([matches]) => matches(status, said));
    return new EndpointError(`vLLM does not load the adapter at ${path}: status ${status}: ${said}`, {
      where: client.url,
      next: found === undefined ? 'Look for the reason in the log of vLLM.' : found[1](rank),
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
