/** The routes of vLLM's development mode by which its weights are replaced (0.32), in the stand-in of it. */
import { createHash } from 'node:crypto';
import { existsSync } from 'node:fs';
import type { ServerResponse } from 'node:http';
import { join } from 'node:path';
import { readSafetensors, type FloatTensor } from '../../../../src/core/safetensors.js';
import { failure, send } from '../../../support/stub_server.js';
import { ownNames, type StubParameters } from './stub_model.js';

type Body = Readonly<Record<string, unknown>>;

export class StubWeights {
  current: StubParameters;
  version = 'default';
  /** `deaf`: a reload is said to be done, and changes nothing; `partly`: it leaves out the last tensor. */
  reloads: 'rightly' | 'deaf' | 'partly' = 'rightly';
  /** Whether it has digests of its matrices; else of none, as where all are kept in another form. */
  hasDigests = true;
  paused = false;
  #waiting: (() => void)[] = [];

  constructor(
    /** Of the model that the server was started with. */
    readonly base: StubParameters,
    private readonly pathOf: (path: string) => string,
  ) {
    this.current = base;
  }

  /** As a server that was started again. */
  restart(): void {
    this.current = this.base;
    this.version = 'default';
  }

  /** Does that now, or after what is paused goes on. */
  whenRunning(work: () => void): void {
    if (this.paused) this.#waiting.push(work);
    else work();
  }

  /** Whether the path is one of these. */
  answer(path: string, body: Body, response: ServerResponse): boolean {
    switch (path) {
      case '/pause?mode=wait':
        this.paused = true;
        send(response, 200, { status: 'paused' });
        return true;
      case '/resume':
        this.paused = false;
        for (const work of this.#waiting.splice(0)) work();
        send(response, 200, { status: 'resumed' });
        return true;
      case '/weight_info':
        send(response, 200, { weight_version: this.version });
        return true;
      case '/update_weight_version':
        this.version = String(body['new_version']);
        send(response, 200, { success: true, new_version: this.version });
        return true;
      case '/weight_checker':
        this.#check(body, response);
        return true;
      case '/collective_rpc':
        this.#reload(body, response);
        return true;
      default:
        return false;
    }
  }

  #check({ action }: Body, response: ServerResponse): void {
    if (action === 'reset') {
      const zeroed = ([name, { shape, data }]: [string, FloatTensor]) =>
        [name, { shape, data: new Float32Array(data.length) }] as const;
      this.current = new Map([...this.current].map(zeroed));
      return send(response, 200, { status: 'reset' });
    }
    if (action !== 'checksum') return send(response, 400, failure("Input should be 'checksum' or 'reset'", 400));
    const digest = ({ data }: FloatTensor): string =>
      createHash('sha256')
        .update(new Uint8Array(data.buffer, data.byteOffset, data.byteLength))
        .digest('hex');
    // On a CPU it keeps some of them in another form, and has nothing to digest.
    const nothing = createHash('sha256').digest('hex');
    const checksums = [...this.current].map(([name, tensor]) => {
      return [
        `dp0:tp0:${name}`,
        !this.hasDigests || name.endsWith('o_proj.weight') ? nothing : digest(tensor),
      ] as const;
    });
    send(response, 200, { checksums: Object.fromEntries(checksums) });
  }

  #reload({ method, kwargs }: Body, response: ServerResponse): void {
    const path = (kwargs as { weights_path?: unknown } | undefined)?.weights_path;
    if (method !== 'reload_weights' || typeof path !== 'string') return send(response, 400, failure('no', 400));
    const file = join(this.pathOf(path), 'model.safetensors');
    if (!existsSync(file)) {
      const said = `Worker failed with error 'Repo id must be in the form 'repo_name' or 'namespace/repo_name': '${path}'.'`;
      return send(response, 500, failure(`Call to collective_rpc method failed: ${said}`, 500));
    }
    const read = [...ownNames(readSafetensors(file))];
    const known = read.filter(([name]) => this.base.has(name));
    const taken = { rightly: known, deaf: [], partly: known.slice(0, -1) }[this.reloads];
    this.current = new Map([...this.current, ...taken]);
    send(response, 200, { results: [null] });
  }
}
