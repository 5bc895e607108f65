/**
 * A W&B server on loopback, as strict as its protocol: lines have to come without gaps and in one request at a time, a line that is sent
 * again has to be the same unless the test allows another, sizes are bounded, the key goes to the server and never to the storage. What
 * a client does wrong stands in `wrong`.
 */
import { createHash } from 'node:crypto';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterAll } from 'vitest';

export const KEY = 'a'.repeat(36) + 'beef';

const FILES = ['wandb-history.jsonl', 'wandb-events.jsonl', 'output.log'] as const;
type FileName = (typeof FILES)[number];
const MOST_LINE_BYTES = 10 * 1024 * 1024 - 100 * 1024;
const MOST_REQUEST_BYTES = 11 * 1024 * 1024;

export interface StubRun {
  readonly id: string;
  readonly files: Record<FileName, string[]>;
  summary: string;
  config: Record<string, { value: unknown }>;
  params: Record<string, unknown>;
  readonly uploads: Map<string, Buffer>;
  readonly uploaded: Set<string>;
  complete: boolean;
  exitcode: number | null;
}

/** What goes wrong with a request: an answer instead of doing it, or doing it and losing the answer. */
export type WandbFault = { readonly status: number; readonly retryAfter?: string } | 'refused' | 'lost';

export interface StubCall {
  readonly what: 'graphql' | 'file_stream' | 'upload';
  readonly operation: string;
  readonly body: Record<string, unknown>;
}

export class StubWandb {
  readonly runs = new Map<string, StubRun>();
  readonly calls: StubCall[] = [];
  /** What a client did against the protocol. */
  readonly wrong: string[] = [];
  fault: (call: StubCall) => WandbFault | null = () => null;
  /** Whether a line may be replaced by another one, as after a run that went back. */
  mayChange = false;
  stopped = false;
  url = '';
  #server: Server | null = null;
  #streaming = 0;

  async start(port = 0): Promise<this> {
    this.#server = createServer((request, response) => void this.#serve(request, response));
    await new Promise<void>((resolve) => this.#server?.listen(port, '127.0.0.1', resolve));
    this.url = `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
    return this;
  }

  async close(): Promise<void> {
    this.#server?.closeAllConnections();
    await new Promise((resolve) => this.#server?.close(resolve));
  }

  /** The environment of a client. */
  get env(): NodeJS.ProcessEnv {
    return { WANDB_BASE_URL: this.url, WANDB_API_KEY: KEY };
  }

  run(name: string, project = 'edits', entity = 'team'): StubRun {
    const run = this.runs.get(`${entity}/${project}/${name}`);
    if (run === undefined) throw new Error(`no run ${name}; there are ${[...this.runs.keys()].join(', ')}`);
    return run;
  }

  /** Rows as they are in the end. */
  history(name: string): Record<string, unknown>[] {
    return this.run(name).files['wandb-history.jsonl'].map((line) => parseExtended(line));
  }

  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const pieces: Buffer[] = [];
    for await (const piece of request) pieces.push(piece as Buffer);
    const bytes = Buffer.concat(pieces);
    const { method = '', url = '' } = request;
    const isUpload = url.startsWith('/storage/');
    const what = isUpload ? 'upload' : url === '/graphql' ? 'graphql' : 'file_stream';
    const body = isUpload ? {} : (JSON.parse(bytes.toString('utf8')) as Record<string, unknown>);
    const call: StubCall = {
      what,
      operation: typeof body['operationName'] === 'string' ? body['operationName'] : url,
      body,
    };
    this.calls.push(call);
    const { authorization } = request.headers;
    if (isUpload && authorization !== undefined) this.wrong.push('the key went to the storage');
    if (!isUpload && authorization !== `Basic ${Buffer.from(`api:${KEY}`).toString('base64')}`) {
      return reply(response, 401, { error: `invalid key ${String(authorization)} ${KEY}` });
    }
    const fault = this.fault(call);
    if (fault === 'refused') return void request.socket.destroy();
    if (fault !== null && fault !== 'lost') {
      const wait = fault.retryAfter === undefined ? {} : { 'retry-after': fault.retryAfter };
      return reply(response, fault.status, { error: 'not now' }, wait);
    }
    const answer = this.#do(call, method, url, bytes, request);
    if (fault === 'lost') return void request.socket.destroy();
    reply(response, answer.status ?? 200, answer.body);
  }

  #do(call: StubCall, method: string, url: string, bytes: Buffer, request: IncomingMessage): Answer {
    switch (call.what) {
      case 'upload':
        return this.#upload(method, url, bytes, request);
      case 'graphql':
        return this.#graphql(call.operation, (call.body['variables'] ?? {}) as Record<string, unknown>);
      case 'file_stream':
        this.#streaming++;
        try {
          return this.#stream(url, call.body, bytes.length);
        } finally {
          this.#streaming--;
        }
    }
  }

  #graphql(operation: string, variables: Record<string, unknown>): Answer {
    const path = [variables['entity'] ?? 'team', variables['project'], variables['name'] ?? variables['run']].join('/');
    switch (operation) {
      case 'Viewer':
        return { body: { data: { viewer: { id: 'u', entity: 'team', username: 'me' } } } };
      case 'RunResumeStatus':
        return { body: { data: { model: { bucket: this.#bucket(path) } } } };
      case 'UpsertBucket':
        return this.#upsert(path, variables);
      case 'CreateRunFiles': {
        const names = variables['files'] as string[];
        const files = names.map((name) => ({
          name,
          uploadUrl: `${this.url}/storage/${path}?file=${encodeURIComponent(name)}`,
        }));
        return { body: { data: { createRunFiles: { runID: 'x', uploadHeaders: ['X-Signed: yes'], files } } } };
      }
      default:
        this.wrong.push(`unknown operation ${operation}`);
        return { status: 400, body: { errors: [{ message: 'unknown operation' }] } };
    }
  }

  #bucket(path: string): unknown {
    const run = this.runs.get(path);
    if (run === undefined) return null;
    const [history, events, output] = FILES.map((name) => run.files[name]);
    return {
      id: run.id,
      historyLineCount: history.length,
      eventsLineCount: events.length,
      logLineCount: output.length,
      historyTail: JSON.stringify(history.slice(-1)),
      eventsTail: JSON.stringify(events.slice(-1)),
      summaryMetrics: run.summary,
      config: JSON.stringify(run.config),
      wandbConfig: JSON.stringify({ t: (run.config['_wandb']?.value as Record<string, unknown> | undefined)?.['t'] }),
    };
  }

  #upsert(path: string, variables: Record<string, unknown>): Answer {
    const known = this.runs.get(path);
    const config = JSON.parse(String(variables['config'])) as StubRun['config'];
    if ((config['_wandb']?.value as Record<string, unknown> | undefined)?.['t'] === undefined) {
      this.wrong.push('a config without t');
    }
    if (known !== undefined && variables['id'] !== known.id) this.wrong.push('a run that is resumed has an id');
    const [entity, project, name] = path.split('/');
    const run = known ?? {
      id: createHash('sha1').update(path).digest('hex'),
      files: { 'wandb-history.jsonl': [], 'wandb-events.jsonl': [], 'output.log': [] },
      summary: '{}',
      config: {},
      params: {},
      uploads: new Map(),
      uploaded: new Set(),
      complete: false,
      exitcode: null,
    };
    run.config = config;
    run.complete = false;
    run.params = {
      ...run.params,
      ...Object.fromEntries(Object.entries(variables).filter(([, value]) => value !== null)),
    };
    this.runs.set(path, run);
    const bucket = { id: run.id, name, displayName: name, project: { name: project, entity: { name: entity } } };
    return { body: { data: { upsertBucket: { bucket, inserted: known === undefined } } } };
  }

  #stream(url: string, body: Record<string, unknown>, bytes: number): Answer {
    const [, entity, project, name] = url.slice(1).split('/').map(decodeURIComponent);
    const run = this.runs.get([entity, project, name].join('/'));
    if (run === undefined) return { status: 404, body: { error: 'run not found' } };
    if (this.#streaming > 1) this.wrong.push('two requests at once');
    // The last request may come twice, where its answer was lost.
    if (run.complete && body['complete'] !== true) this.wrong.push('lines after the end');
    if (bytes > MOST_REQUEST_BYTES) this.wrong.push(`a request of ${bytes} bytes`);
    for (const [file, piece] of Object.entries(
      (body['files'] ?? {}) as Record<string, { offset: number; content: string[] }>,
    )) {
      this.#take(run, file, piece);
    }
    for (const file of (body['uploaded'] ?? []) as string[]) {
      if (!run.uploads.has(file)) this.wrong.push(`${file} is said to be uploaded, and is not`);
      run.uploaded.add(file);
    }
    if (body['complete'] === true) {
      run.complete = true;
      run.exitcode = Number(body['exitcode']);
    }
    return { body: { stopped: this.stopped, limits: {} } };
  }

  #take(run: StubRun, file: string, { offset, content }: { offset: number; content: string[] }): void {
    if (content.length === 0) this.wrong.push(`${file} without lines`);
    for (const line of content) {
      if (line.includes('\n')) this.wrong.push(`${file}: a line of two`);
      if (Buffer.byteLength(line) > MOST_LINE_BYTES) this.wrong.push(`${file}: a line of ${line.length}`);
    }
    if (file === 'wandb-summary.json') {
      if (offset !== 0 || content.length !== 1) this.wrong.push('a summary is one line at 0');
      run.summary = content[0];
      return;
    }
    if (!isFile(file)) return void this.wrong.push(`unknown file ${file}`);
    const lines = run.files[file];
    if (offset > lines.length) this.wrong.push(`${file}: a gap: ${offset} after ${lines.length}`);
    content.forEach((line, i) => {
      const before = lines.at(offset + i);
      if (before !== undefined && before !== line && !this.mayChange) {
        this.wrong.push(`${file}: line ${offset + i} changed`);
      }
      lines[offset + i] = line;
    });
  }

  #upload(method: string, url: string, bytes: Buffer, request: IncomingMessage): Answer {
    const { pathname, searchParams } = new URL(url, this.url);
    const run = this.runs.get(pathname.slice('/storage/'.length));
    const name = searchParams.get('file') ?? '';
    if (method !== 'PUT' || run === undefined) return { status: 400, body: {} };
    if (request.headers['x-signed'] !== 'yes') this.wrong.push('an upload without its headers');
    if (request.headers['content-type'] !== undefined) this.wrong.push('an upload with a content type');
    if (Number(request.headers['content-length']) !== bytes.length) this.wrong.push('an upload without its length');
    run.uploads.set(name, bytes);
    return { body: {} };
  }
}

interface Answer {
  readonly status?: number;
  readonly body: unknown;
}

function isFile(name: string): name is FileName {
  return (FILES as readonly string[]).includes(name);
}

function reply(response: ServerResponse, status: number, body: unknown, headers: object = {}): void {
  response.writeHead(status, { 'content-type': 'application/json', ...headers }).end(JSON.stringify(body));
}

/** As a reader that knows bare words for numbers. */
export function parseExtended(line: string): Record<string, unknown> {
  const quoted = line.replace(/([:,[])(NaN|-?Infinity)(?=[,}\]])/g, '$1"$2"');
  return JSON.parse(quoted) as Record<string, unknown>;
}

/** A stub for the tests of a file. Call it where `afterAll` may be called. */
export function stubWandb(): StubWandb {
  const stub = new StubWandb();
  afterAll(() => stub.close());
  return stub;
}
