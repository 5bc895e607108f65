/**
 * A Hub on loopback, as strict as the real one where clients go wrong: large files come from another host, which refuses the Hub's token;
 * lists come in pages; small files are redirected on the same host; whoever asks for what it does not know is refused.
 */
import { createHash } from 'node:crypto';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { listening, type Listening } from '../../support/stub_server.js';

export interface StubModel {
  /** By commit: files by their paths. */
  readonly commits: Readonly<Record<string, Readonly<Record<string, Buffer | string>>>>;
  /** Commits of branches and tags. */
  readonly refs: Record<string, string>;
  readonly gated?: boolean;
  readonly private?: boolean;
}

export type Fault =
  | { readonly status: number; readonly retryAfter?: string }
  /** The connection breaks after so many bytes of the body. */
  | { readonly cutAfter: number }
  /** The body ends after so many bytes, and the headers say that this is all of it. */
  | { readonly endAfter: number }
  | { readonly garbled: true }
  /** Something else is answered; `cut`: and the connection breaks before its last byte. */
  | { readonly body: string; readonly cut?: true }
  /** Ranges are not heard of. */
  | { readonly whole: true };

export interface Requested {
  readonly host: 'hub' | 'cdn';
  readonly method: string;
  readonly path: string;
  readonly range: string | null;
  readonly token: string | null;
}

/** From so many bytes on a file is one of LFS. */
const LARGE = 200;
const PAGE = 3;
/** What is sent before a connection breaks has reached the reader's disk within it, on a busy machine, too. */
const READ_WITHIN_MS = 200;

export const TOKEN = 'hf_right';

export class StubHub {
  readonly asked: Requested[] = [];
  /** What goes wrong with a request; asked for each. */
  fault: (asked: Requested) => Fault | null = () => null;
  readonly #servers: Listening[] = [];
  endpoint = '';
  #cdn = '';

  constructor(readonly models: Record<string, StubModel>) {}

  async start(): Promise<this> {
    this.endpoint = await this.#listen('hub');
    this.#cdn = await this.#listen('cdn');
    return this;
  }

  async close(): Promise<void> {
    await Promise.all(this.#servers.map((server) => server.close()));
  }

  /** The paths that were asked for, with the ranges; those of the CDN by the names of their files. */
  paths(host?: Requested['host']): string[] {
    return this.asked
      .filter((one) => host === undefined || one.host === host)
      .map(({ path, range }) => (range === null ? path : `${path} ${range}`));
  }

  async #listen(host: Requested['host']): Promise<string> {
    const server = await listening((request, response) => {
      const { method = '', url = '', headers } = request;
      const asked = {
        host,
        method,
        path: decodeURIComponent(url.split('?')[0]),
        range: headers.range ?? null,
        token: headers.authorization?.replace(/^Bearer /, '') ?? null,
      };
      this.asked.push(asked);
      const fault = this.fault(asked);
      if (fault !== null && 'status' in fault) {
        const wait = fault.retryAfter === undefined ? {} : { 'retry-after': fault.retryAfter };
        response.writeHead(fault.status, wait).end('{"error":"too much to do"}');
        return;
      }
      if (fault !== null && 'body' in fault) {
        const { body, cut = false } = fault;
        response.writeHead(200, { 'content-length': Buffer.byteLength(body) + Number(cut) });
        response.write(body, () => (cut ? setTimeout(() => response.destroy(), 20) : response.end()));
        return;
      }
      if (host === 'cdn') this.#blob(asked, request, response, fault);
      else this.#hub(asked, new URL(url, this.endpoint), response, fault);
    });
    this.#servers.push(server);
    return server.url;
  }

  #hub(asked: Requested, url: URL, response: ServerResponse, fault: Fault | null): void {
    const pathname = url.pathname.replace(/^\/api\/datasets\//, '/api/models/datasets/');
    const cached = /^\/api\/resolve-cache\/models\/((?:datasets\/)?[^/]+\/[^/]+)\/([^/]+)\/(.+)$/.exec(pathname);
    const api = /^\/api\/models\/((?:datasets\/)?[^/]+\/[^/]+)\/(revision|tree)(?:\/([^/]+))?$/.exec(pathname);
    const file = /^\/((?:datasets\/)?[^/]+\/[^/]+)\/resolve\/([^/]+)\/(.+)$/.exec(pathname);
    const [, name = '', second = '', third = ''] = (cached ?? api ?? file ?? []).map((part) =>
      decodeURIComponent(part),
    );
    const model = Object.hasOwn(this.models, name) ? this.models[name] : undefined;
    if (asked.token !== null && asked.token !== TOKEN) {
      return refuse(response, 401, null, 'Invalid credentials in Authorization header');
    }
    if (model === undefined || (model.private === true && asked.token === null)) {
      return refuse(response, asked.token === null ? 401 : 404, 'RepoNotFound', 'Repository not found');
    }
    const revision = api === null ? second : third;
    const commit = model.refs[revision] ?? revision;
    if (!Object.hasOwn(model.commits, commit)) {
      return refuse(response, 404, 'RevisionNotFound', `Invalid rev id: ${revision}`);
    }
    const files = model.commits[commit];
    if (api !== null && second === 'revision') {
      return json(response, {
        _id: name,
        id: name,
        sha: commit,
        private: model.private ?? false,
        gated: model.gated === true ? 'auto' : false,
        lastModified: '2026-01-01T00:00:00Z',
        siblings: Object.keys(files).map((rfilename) => ({ rfilename })),
      });
    }
    if (api !== null && second === 'tree') return this.#tree(url, files, response);
    if (api !== null) return refuse(response, 400, null, 'not known here');
    // What a gated model is made of may be looked at by anybody, its files not.
    if (model.gated === true && asked.token === null) {
      return refuse(response, 401, 'GatedRepo', `Access to model ${name} is restricted.`);
    }
    if (!Object.hasOwn(files, third)) return refuse(response, 404, 'EntryNotFound', 'Entry not found');
    const bytes = Buffer.from(files[third]);
    const headers = { 'x-repo-commit': commit, etag: `"${gitHash(bytes)}"`, 'accept-ranges': 'bytes' };
    if (bytes.length >= LARGE) {
      response.writeHead(302, {
        ...headers,
        location: `${this.#cdn}/${name}/${third}?Signature=${digest(bytes)}`,
        'x-linked-size': bytes.length,
        'x-linked-etag': `"${digest(bytes)}"`,
        // The etag of the redirect's own body.
        etag: '"other"',
      });
      return void response.end('Found. Redirecting');
    }
    if (cached === null) {
      response.writeHead(307, { ...headers, location: `/api/resolve-cache/models/${name}/${commit}/${third}` });
      return void response.end('Temporary Redirect');
    }
    send(response, asked, bytes, headers, fault);
  }

  #tree(url: URL, files: Readonly<Record<string, Buffer | string>>, response: ServerResponse): void {
    const from = Number(url.searchParams.get('cursor') ?? 0);
    const names = Object.keys(files);
    const folders = [...new Set(names.filter((path) => path.includes('/')).map((path) => path.split('/')[0]))];
    const all = [
      ...folders.map((path) => ({ type: 'directory', path, size: 0, oid: '0'.repeat(40) })),
      ...names.map((path) => {
        const bytes = Buffer.from(files[path]);
        const { length: size } = bytes;
        const lfs = { oid: digest(bytes), size, pointerSize: 130 };
        return { type: 'file', path, size, oid: gitHash(bytes), ...(size < LARGE ? {} : { lfs, oid: '1'.repeat(40) }) };
      }),
    ];
    const next = new URL(url);
    next.searchParams.set('cursor', String(from + PAGE));
    if (from + PAGE < all.length) response.setHeader('link', `<${next.href}>; rel="next"`);
    json(response, all.slice(from, from + PAGE));
  }

  /** What a CDN does: an address with a signature is all that it needs, and all that it takes. */
  #blob(asked: Requested, request: IncomingMessage, response: ServerResponse, fault: Fault | null): void {
    const url = new URL(request.url ?? '', this.#cdn);
    const [, repository, file] = /^\/((?:datasets\/)?[^/]+\/[^/]+)\/(.+)$/.exec(decodeURIComponent(url.pathname)) ?? [];
    const commits = Object.values(this.models[repository].commits);
    const path = [file];
    const all = commits.flatMap((files) =>
      Object.hasOwn(files, path.join('/')) ? [Buffer.from(files[path.join('/')])] : [],
    );
    const bytes = all.find((one) => digest(one) === url.searchParams.get('Signature'));
    if (request.headers.authorization !== undefined || bytes === undefined) {
      response.writeHead(400).end('<Error><Code>InvalidArgument</Code></Error>');
      return;
    }
    send(response, asked, bytes, { etag: `"${digest(bytes)}"`, 'accept-ranges': 'bytes' }, fault);
  }
}

function send(response: ServerResponse, asked: Requested, all: Buffer, headers: object, fault: Fault | null): void {
  const ranged = fault !== null && 'whole' in fault ? null : /^bytes=(\d+)-(\d*)$/.exec(asked.range ?? '');
  const from = ranged === null ? 0 : Number(ranged[1]);
  const end = ranged === null || ranged[2] === '' ? all.length - 1 : Number(ranged[2]);
  if (from >= all.length && all.length > 0) {
    response.writeHead(416, { 'content-range': `bytes */${all.length}` }).end();
    return;
  }
  let body = all.subarray(from, end + 1);
  if (fault !== null && 'garbled' in fault) body = Buffer.from(body.map((byte) => byte ^ 1));
  if (fault !== null && 'endAfter' in fault) body = body.subarray(0, fault.endAfter);
  response.writeHead(ranged === null ? 200 : 206, {
    ...headers,
    'content-length': body.length,
    ...(ranged === null ? {} : { 'content-range': `bytes ${from}-${end}/${all.length}` }),
  });
  if (asked.method === 'HEAD') response.end();
  else if (fault !== null && 'cutAfter' in fault && fault.cutAfter < body.length) {
    response.write(body.subarray(0, fault.cutAfter), () => setTimeout(() => response.destroy(), READ_WITHIN_MS));
  } else response.end(body);
}

function json(response: ServerResponse, value: unknown): void {
  response.writeHead(200, { 'content-type': 'application/json; charset=utf-8' }).end(JSON.stringify(value));
}

function refuse(response: ServerResponse, status: number, code: string | null, message: string): void {
  response.writeHead(status, {
    'content-type': 'application/json; charset=utf-8',
    ...(code === null ? {} : { 'x-error-code': code }),
    'x-error-message': message,
  });
  response.end(JSON.stringify({ error: message }));
}

/** What git calls a file. */
export function gitHash(bytes: Buffer): string {
  return createHash('sha1').update(`blob ${bytes.length}\0`).update(bytes).digest('hex');
}

export function digest(bytes: Buffer): string {
  return createHash('sha256').update(bytes).digest('hex');
}
