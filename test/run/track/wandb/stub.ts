/**
 * A W&B server on loopback, as strict as its protocol: lines have to come without gaps and in one request at a time, a line that is sent
 * again has to be the same unless the test allows another, sizes are bounded, the key goes to the server and never to the storage. What
 * a client does wrong stands in `wrong`.
 */
import { createHash } from 'node:crypto';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { send, StubServer } from '../../../support/stub_server.js';

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

export interface StubCall {
  readonly what: 'graphql' | 'file_stream' | 'upload';
  readonly operation: string;
  readonly body: Record<string, unknown>;
  readonly incoming: IncomingMessage;
  readonly bytes: Buffer;
}

/** The request is done, and its answer does not arrive. */
interface Lost {
  readonly kind: 'lost';
}

export class StubWandb extends StubServer<StubCall, Lost> {
  readonly runs = new Map<string, StubRun>();
  /** What a client did against the protocol. */
  readonly wrong: string[] = [];
  /** Whether a line may be replaced by another one, as after a run that went back. */
  mayChange = false;
  stopped = false;
  #streaming = 0;

  /** The environment of a client. */
  get env(): NodeJS.ProcessEnv {
    return { WANDB_BASE_URL: this.url, WANDB_API_KEY: KEY };
  }

  run(name: string, project = 'edits', entity = 'team'): StubRun {
    const run = this.runs.get(`${entity}/${project}/${name}`);
    if (run === undefined) throw new Error(`no run ${name}; there are ${[...this.runs.keys()].join(', ')}`);
    return run;
  }

  /** Somebody else writes behind what is there, and into the summary. */
  write(name: string, lines: Partial<Record<FileName, readonly string[]>>, summary: Record<string, unknown>): void {
    const run = this.run(name);
    for (const file of FILES) run.files[file].push(...(lines[file] ?? []));
    run.summary = JSON.stringify({ ...parseExtended(run.summary), ...summary });
  }

  /** Rows as they are in the end. */
  history(name: string): Record<string, unknown>[] {
    return this.run(name).files['wandb-history.jsonl'].map((line) => parseExtended(line));
  }

  protected override readonly refuses = ({ url = '', headers }: IncomingMessage): [number, unknown] | null => {
    const { authorization } = headers;
    const isUpload = isStorage(url);
    if (isUpload && authorization !== undefined) this.wrong.push('the key went to the storage');
    const known = isUpload || authorization === `Basic ${Buffer.from(`api:${KEY}`).toString('base64')}`;
    return known ? null : [401, { error: `invalid key ${String(authorization)} ${KEY}` }];
  };

  protected read(incoming: IncomingMessage, bytes: Buffer): StubCall {
    const { url = '' } = incoming;
    const what = isStorage(url) ? 'upload' : url === '/graphql' ? 'graphql' : 'file_stream';
    const body = what === 'upload' ? {} : (JSON.parse(bytes.toString('utf8')) as Record<string, unknown>);
    const operation = typeof body['operationName'] === 'string' ? body['operationName'] : url;
    return { what, operation, body, incoming, bytes };
  }

  protected async reply(call: StubCall, response: ServerResponse, fault: Lost | null): Promise<void> {
    const isStream = call.what === 'file_stream';
    if (isStream && this.#streaming++ > 0) this.wrong.push('two requests at once');
    await new Promise((resolve) => setImmediate(resolve));
    const { status = 200, body } = this.#do(call);
    if (isStream) this.#streaming--;
    if (fault === null) send(response, status, body);
    else response.destroy();
  }

  #do({ what, operation, body, incoming, bytes }: StubCall): Answer {
    const { url = '' } = incoming;
    switch (what) {
      case 'upload':
        return this.#upload(incoming, bytes);
      case 'graphql':
        return this.#graphql(operation, (body['variables'] ?? {}) as Record<string, unknown>, incoming);
      case 'file_stream':
        return this.#stream(url, body, bytes.length);
    }
  }

  #graphql(operation: string, variables: Record<string, unknown>, { headers }: IncomingMessage): Answer {
    const path = [variables['entity'] ?? 'team', variables['project'], variables['name'] ?? variables['run']].join('/');
    switch (operation) {
      case 'Viewer':
        return { body: { data: { viewer: { id: 'u', entity: 'team', username: 'me' } } } };
      // What W&B's own SDK asks besides, and does without.
      case 'ServerFeaturesQuery':
      case 'OrganizationCoreWeaveOrganizationID':
        return { body: { data: {} } };
      case 'RunResumeStatus':
        return { body: { data: { model: { bucket: this.#bucket(path) } } } };
      case 'UpsertBucket':
        return this.#upsert(path, variables, headers['user-agent'] === 'editrl');
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

  #upsert(path: string, variables: Record<string, unknown>, resumesAlways: boolean): Answer {
    const known = this.runs.get(path);
    const given = variables['config'] as string | null;
    const config = given === null ? (known?.config ?? {}) : (JSON.parse(given) as StubRun['config']);
    if ((config['_wandb']?.value as Record<string, unknown> | undefined)?.['t'] === undefined) {
      this.wrong.push('a config without t');
    }
    // The SDK updates without it what it has created.
    if (known !== undefined && resumesAlways && variables['id'] !== known.id) {
      this.wrong.push('a run that is resumed has an id');
    }
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

  #upload({ method, url = '', headers }: IncomingMessage, bytes: Buffer): Answer {
    const { pathname, searchParams } = new URL(url, this.url);
    const place = pathname.slice('/storage/'.length);
    const run = this.runs.get(place);
    const name = searchParams.get('file') ?? '';
    if (headers['x-signed'] !== 'yes') this.wrong.push('an upload without its headers');
    if (headers['content-type'] !== undefined) this.wrong.push('an upload with a content type');
    if (Number(headers['content-length']) !== bytes.length) this.wrong.push('an upload without its length');
    if (method !== 'PUT' || run === undefined) return { status: 400, body: {} };
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

function isStorage(url: string): boolean {
  return url.startsWith('/storage/');
}

/** As a reader that knows bare words for numbers. */
export function parseExtended(line: string): Record<string, unknown> {
  const quoted = line.replace(/([:,[])(NaN|-?Infinity)(?=[,}\]])/g, '$1"$2"');
  return JSON.parse(quoted) as Record<string, unknown>;
}
