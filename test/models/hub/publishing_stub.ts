/**
 * The writing side of a Hub on loopback, as strict as the real one: large files go to another host first, which refuses the Hub's token; a
 * commit may name only what was stored there, with its size and digest; branches and repositories have to be there. Large is what has a
 * name of weights or many bytes.
 */
import { createHash } from 'node:crypto';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { listening, send, type Listening } from '../../support/stub_server.js';

export const WRITE_TOKEN = 'hf_writer';
const LARGE = 2000;

export interface PublishedRepository {
  readonly visibility: string;
  /** By branch: files by their paths. */
  readonly branches: Map<string, Map<string, Buffer>>;
  readonly commits: { readonly branch: string; readonly title: string }[];
}

export type PublishingFault = { readonly status: number } | 'lost';

export class PublishingStub {
  readonly repositories = new Map<string, PublishedRepository>();
  readonly asked: string[] = [];
  readonly wrong: string[] = [];
  /** Whether the token may make repositories. */
  mayCreate = true;
  fault: (what: string) => PublishingFault | null = () => null;
  endpoint = '';
  #storage = '';
  readonly #stored = new Map<string, Buffer>();
  readonly #servers: Listening[] = [];

  async start(): Promise<this> {
    this.endpoint = await this.#listen('hub');
    this.#storage = await this.#listen('storage');
    return this;
  }

  async close(): Promise<void> {
    await Promise.all(this.#servers.map((server) => server.close()));
  }

  files(repository: string, branch = 'main'): Map<string, Buffer> {
    return this.repositories.get(repository)?.branches.get(branch) ?? new Map<string, Buffer>();
  }

  async #listen(host: 'hub' | 'storage'): Promise<string> {
    const server = await listening((request, response) => void this.#serve(host, request, response));
    this.#servers.push(server);
    return server.url;
  }

  async #serve(host: 'hub' | 'storage', request: IncomingMessage, response: ServerResponse): Promise<void> {
    const pieces: Buffer[] = [];
    for await (const piece of request) pieces.push(piece as Buffer);
    const body = Buffer.concat(pieces);
    const { method = '', url = '', headers } = request;
    const what = `${method} ${host === 'hub' ? '' : 'storage '}${decodeURIComponent(url.split('?')[0])}`;
    this.asked.push(what);
    const fault = this.fault(what);
    if (fault !== null && fault !== 'lost') return send(response, fault.status, { error: 'too much to do' });
    const [status, answer] =
      host === 'storage' ? this.#put(url, headers.authorization, body) : this.#hub(what, headers.authorization, body);
    if (fault === 'lost') return void request.socket.destroy();
    send(response, status, answer);
  }

  #put(url: string, token: string | undefined, body: Buffer): [number, unknown] {
    const digest = url.slice(1);
    if (token !== undefined) {
      this.wrong.push('the token went to the storage');
      return [400, {}];
    }
    if (sha256(body) !== digest) {
      this.wrong.push('bytes that are not those of their digest');
      return [400, {}];
    }
    this.#stored.set(digest, body);
    return [200, {}];
  }

  #hub(what: string, token: string | undefined, body: Buffer): [number, unknown] {
    if (token !== `Bearer ${WRITE_TOKEN}`) return [401, { error: `Invalid credentials ${token ?? ''}` }];
    if (what === 'GET /api/whoami-v2') return [200, { name: 'me', type: 'user' }];
    if (what === 'POST /api/repos/create') return this.#create(JSON.parse(body.toString()) as Record<string, string>);
    const lfs = /^POST \/([^/]+\/[^/]+)\.git\/info\/lfs\/objects\/batch$/.exec(what);
    if (lfs !== null) return this.#batch(lfs[1], JSON.parse(body.toString()) as Batch);
    const [, name = '', action = '', branch = ''] =
      /^\w+ \/api\/models\/([^/]+\/[^/]+)(?:\/(\w+)\/([^/]+))?/.exec(what) ?? [];
    const repository = this.repositories.get(name);
    if (repository === undefined) return [404, { error: 'Repository not found' }];
    if (action === '') return [200, { id: name }];
    if (action === 'branch') {
      return this.#branch(repository, branch, JSON.parse(body.toString()) as Record<string, unknown>);
    }
    const files = repository.branches.get(branch);
    if (files === undefined) return [404, { error: `Invalid rev id: ${branch}` }];
    switch (action) {
      case 'tree':
        return [
          200,
          [...files].map(([path, bytes]) => ({ type: 'file', path, size: bytes.length, oid: '0'.repeat(40) })),
        ];
      case 'preupload': {
        const asked = JSON.parse(body.toString()) as { files: { path: string; size: number; sample: string }[] };
        return [
          200,
          {
            files: asked.files.map(({ path, size }) => ({ path, uploadMode: isLarge(path, size) ? 'lfs' : 'regular' })),
          },
        ];
      }
      case 'commit':
        return this.#commit(repository, branch, files, body.toString());
      default:
        this.wrong.push(`unknown: ${what}`);
        return [400, { error: 'not known here' }];
    }
  }

  #create({ name, organization, visibility, type }: Record<string, string>): [number, unknown] {
    if (type !== 'model') this.wrong.push(`a repository of type ${type}`);
    const full = `${organization}/${name}`;
    if (this.repositories.has(full)) return [409, { error: 'You already created this model repo' }];
    if (!this.mayCreate) return [403, { error: "You don't have the rights to create a model" }];
    const main = new Map([['.gitattributes', Buffer.from('*.safetensors filter=lfs')]]);
    this.repositories.set(full, { visibility, branches: new Map([['main', main]]), commits: [] });
    return [200, { url: `${this.endpoint}/${full}`, id: 'x' }];
  }

  #branch(
    { branches }: PublishedRepository,
    branch: string,
    { overwrite }: Record<string, unknown>,
  ): [number, unknown] {
    if (branches.has(branch)) return overwrite === true ? [200, {}] : [409, { error: 'Reference already exists' }];
    branches.set(branch, new Map(branches.get('main')));
    return [200, {}];
  }

  #batch(name: string, { operation, transfers, objects }: Batch): [number, unknown] {
    if (!this.repositories.has(name) || operation !== 'upload' || !transfers.includes('basic')) {
      return [400, { error: 'no' }];
    }
    const answered = objects.map(({ oid, size }) => {
      const stored = this.#stored.get(oid);
      return stored?.length === size
        ? { oid, size }
        : { oid, size, actions: { upload: { href: `${this.#storage}/${oid}`, header: {} } } };
    });
    return [200, { transfer: 'basic', objects: answered }];
  }

  #commit(
    { commits }: PublishedRepository,
    branch: string,
    files: Map<string, Buffer>,
    body: string,
  ): [number, unknown] {
    const [header, ...operations] = body.split('\n').map((line) => JSON.parse(line) as Operation);
    if (header.key !== 'header') this.wrong.push('a commit without its header');
    for (const { key, value } of operations) {
      const path = value.path ?? '';
      if (key === 'deletedFile') {
        if (!files.delete(path)) return [400, { error: `${path} is not there` }];
      } else if (key === 'file') {
        const bytes = Buffer.from(value.content ?? '', 'base64');
        if (isLarge(path, bytes.length)) this.wrong.push(`${path} is large, and was sent within the commit`);
        files.set(path, bytes);
      } else {
        const bytes = this.#stored.get(value.oid ?? '');
        if (bytes?.length !== value.size) return [400, { error: `${path}: this object was not stored` }];
        files.set(path, bytes as Buffer);
      }
    }
    commits.push({ branch, title: header.value.summary ?? '' });
    return [
      200,
      {
        commitOid: createHash('sha1').update(body).digest('hex'),
        commitUrl: `${this.endpoint}/commit`,
        hookOutput: '',
      },
    ];
  }
}

interface Batch {
  readonly operation: string;
  readonly transfers: readonly string[];
  readonly objects: readonly { readonly oid: string; readonly size: number }[];
}

interface Operation {
  readonly key: string;
  readonly value: {
    readonly summary?: string;
    readonly path?: string;
    readonly content?: string;
    readonly oid?: string;
    readonly size?: number;
  };
}

function isLarge(path: string, bytes: number): boolean {
  return path.endsWith('.safetensors') || bytes >= LARGE;
}

function sha256(bytes: Buffer): string {
  return createHash('sha256').update(bytes).digest('hex');
}
