/**
 * A strict stand-in for servers of the OpenAI images API. It refuses fields that they do not know, and what it draws says what it was asked
 * for: the first pixels of a picture hold the digest of its prompt, its seed and the picture that it was made of.
 */
import { createHash } from 'node:crypto';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { decodeImage, encodePng, sha256, type RgbImage } from '../../../src/core/image.js';

/** What goes wrong with one request, in place of its answer. */
export type Fault =
  | { readonly kind: 'status'; readonly status: number; readonly body?: unknown; readonly retryAfter?: string }
  | { readonly kind: 'stall' }
  | { readonly kind: 'cut' }
  /** Cut off in the middle of its body. */
  | { readonly kind: 'half' }
  /** This body in place of the right one, which it is given. */
  | { readonly kind: 'body'; readonly body: (right: StubReply) => unknown };

export interface StubReply {
  readonly created: number;
  readonly data: readonly { readonly b64_json: string; readonly revised_prompt?: string }[];
}

export interface StubRequest {
  readonly path: string;
  readonly fields: Readonly<Record<string, unknown>>;
  /** SHA-256 of the picture that is to be edited. */
  readonly source: string | null;
  /** Its sides, as `size` says them. */
  readonly sourceSize: string | null;
  /** How many requests of this path came before it. */
  readonly earlier: number;
}

export interface StubOptions {
  readonly model?: string;
  readonly apiKey?: string;
  /** `hosted`: a service that knows no seed and no response_format; `bare`: it lists no models. */
  readonly kind?: 'open' | 'hosted' | 'bare';
  readonly port?: number;
  /** Added to what is drawn: another server draws otherwise. */
  readonly salt?: string;
}

const OPEN = ['prompt', 'model', 'n', 'size', 'response_format', 'negative_prompt', 'seed', 'output_format', 'lora'];
const SOLVER = ['num_inference_steps', 'guidance_scale', 'true_cfg_scale'];
const HOSTED = ['prompt', 'model', 'n', 'size', 'quality', 'background', 'moderation', 'output_format', 'user'];

/** The digest of what a picture shows. */
export function digestOf(prompt: string, seed: number | null, source: string | null = null, salt = ''): string {
  return createHash('sha256')
    .update(JSON.stringify([prompt, seed, source, salt]))
    .digest('hex');
}

/** What a picture says that it was asked for. */
export function digestIn({ data }: RgbImage): string {
  return Buffer.from(data.subarray(0, 32)).toString('hex');
}

export function pictureOf(digest: string, width: number, height: number): RgbImage {
  const data = new Uint8Array(3 * width * height).fill(200);
  data.set(Buffer.from(digest, 'hex'));
  return { width, height, data };
}

export class StubImages {
  readonly requests: StubRequest[] = [];
  /** Asked for every request. */
  fault: (request: StubRequest) => Fault | null = () => null;
  /** Most pictures under way at once. */
  peak = 0;
  #underWay = 0;
  readonly #counts = new Map<string, number>();
  readonly #server: Server;

  private constructor(private readonly options: StubOptions) {
    this.#server = createServer((incoming, response) => {
      response.on('error', () => undefined);
      this.#answer(incoming, response).catch((error: unknown) => send(response, 500, failure(String(error))));
    });
  }

  static async start(options: StubOptions = {}): Promise<StubImages> {
    const stub = new StubImages(options);
    await new Promise<void>((resolve) => stub.#server.listen(options.port ?? 0, '127.0.0.1', resolve));
    return stub;
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  get url(): string {
    return `http://127.0.0.1:${this.port}`;
  }

  /** Those that asked for pictures. */
  get asked(): readonly StubRequest[] {
    return this.requests.filter(({ path }) => path.startsWith('/v1/images/'));
  }

  /** Resolves when nobody holds a connection to it: what a client that was killed had sent is counted by then. */
  async idle(): Promise<void> {
    const open = (): Promise<number> =>
      new Promise((resolve, reject) =>
        this.#server.getConnections((error, count) => (error === null ? resolve(count) : reject(error))),
      );
    while ((await open()) > 0) await new Promise((resolve) => setTimeout(resolve, 20));
  }

  close(): Promise<void> {
    return new Promise((resolve) => {
      this.#server.close(() => resolve());
      this.#server.closeAllConnections();
    });
  }

  async #answer(incoming: IncomingMessage, response: ServerResponse): Promise<void> {
    const pieces: Buffer[] = [];
    for await (const piece of incoming) pieces.push(piece as Buffer);
    const path = incoming.url ?? '';
    const { apiKey } = this.options;
    if (apiKey !== undefined && incoming.headers.authorization !== `Bearer ${apiKey}`) {
      return send(response, 401, failure('Incorrect API key provided'));
    }
    const body = await readBody(Buffer.concat(pieces), incoming.headers['content-type'] ?? '');
    const earlier = this.#counts.get(path) ?? 0;
    this.#counts.set(path, earlier + 1);
    const request = { path, ...body, earlier };
    this.requests.push(request);
    const fault = this.fault(request);
    switch (fault?.kind) {
      case 'status':
        return send(response, fault.status, fault.body ?? failure('as the test says'), fault.retryAfter);
      case 'stall':
        return;
      case 'cut':
        return void incoming.socket.resetAndDestroy();
      case 'half':
        response.writeHead(200, { 'content-type': 'application/json', 'content-length': '400' }).write('{"data": [');
        return void setTimeout(() => incoming.socket.resetAndDestroy(), 5);
      case 'body':
      case undefined:
        break;
    }
    this.#underWay++;
    this.peak = Math.max(this.peak, this.#underWay);
    // Those that come together are under way together.
    await new Promise((resolve) => setImmediate(resolve));
    try {
      await this.#route(request, response, fault?.kind === 'body' ? fault.body : (right) => right);
    } finally {
      this.#underWay--;
    }
  }

  async #route(request: StubRequest, response: ServerResponse, change: (right: StubReply) => unknown): Promise<void> {
    const { model = 'stub-image', kind = 'open' } = this.options;
    switch (request.path) {
      case '/v1/models':
        if (kind === 'bare') return send(response, 404, { detail: 'Not Found' });
        return send(response, 200, { object: 'list', data: [{ id: model, object: 'model' }] });
      case '/v1/images/generations':
      case '/v1/images/edits':
        return this.#draw(request, response, change);
      default:
        return send(response, 404, { detail: 'Not Found' });
    }
  }

  async #draw(
    { path, fields, source, sourceSize }: StubRequest,
    response: ServerResponse,
    change: (right: StubReply) => unknown,
  ): Promise<void> {
    const { model = 'stub-image', kind = 'open', salt = '' } = this.options;
    const known = kind === 'hosted' ? HOSTED : [...OPEN, ...SOLVER];
    const unknown = Object.keys(fields).find((name) => !known.includes(name));
    if (unknown !== undefined) {
      const message = `Unknown parameter: '${unknown}'.`;
      const error = { message, type: 'invalid_request_error', param: unknown, code: 'unknown_parameter' };
      return send(response, 400, { error });
    }
    if (fields['model'] !== model) {
      return send(response, 404, failure(`The model '${String(fields['model'])}' does not exist`));
    }
    const [width, height] = String(fields['size']).split('x').map(Number);
    if (!(width >= 8 && height >= 8)) return send(response, 400, { detail: `Invalid size ${String(fields['size'])}` });
    if (Number(fields['n']) !== 1) return send(response, 400, { detail: 'n is to be 1 here' });
    if ((path === '/v1/images/edits') !== (source !== null)) {
      return send(response, 422, { detail: [{ msg: 'Field required', loc: ['body', 'image'] }] });
    }
    if (source !== null && sourceSize !== fields['size']) {
      return send(response, 400, { detail: `a picture of ${sourceSize} is not edited to ${String(fields['size'])}` });
    }
    if (kind === 'open' && fields['response_format'] !== 'b64_json') {
      return send(response, 400, { detail: 'there is no storage for urls' });
    }
    const seed = fields['seed'] === undefined ? null : Number(fields['seed']);
    const picture = pictureOf(digestOf(String(fields['prompt']), seed, source, salt), width, height);
    const right = { created: 0, data: [{ b64_json: Buffer.from(await encodePng(picture)).toString('base64') }] };
    send(response, 200, change(right));
  }
}

async function readBody(bytes: Buffer, type: string): Promise<Pick<StubRequest, 'fields' | 'source' | 'sourceSize'>> {
  const none = { source: null, sourceSize: null };
  if (bytes.length === 0) return { fields: {}, ...none };
  if (!type.startsWith('multipart/form-data')) {
    return { fields: JSON.parse(bytes.toString('utf8')) as Record<string, unknown>, ...none };
  }
  const form = await new Response(new Uint8Array(bytes), { headers: { 'content-type': type } }).formData();
  const image = form.get('image');
  form.delete('image');
  const fields = Object.fromEntries(form);
  if (!(image instanceof File)) return { fields, ...none };
  const file = new Uint8Array(await image.arrayBuffer());
  const { width, height } = await decodeImage(file, 'the source');
  return { fields, source: sha256(file), sourceSize: `${width}x${height}` };
}

function failure(message: string): object {
  return { error: { message, type: 'Error', param: null, code: null } };
}

function send(response: ServerResponse, status: number, body: unknown, retryAfter?: string): void {
  response
    .writeHead(status, {
      'content-type': 'application/json',
      ...(retryAfter === undefined ? {} : { 'retry-after': retryAfter }),
    })
    .end(typeof body === 'string' ? body : JSON.stringify(body));
}

/** A PNG of a few bytes whose header claims so many pixels. */
export async function bomb(width: number, height: number): Promise<string> {
  const file = Buffer.from(await encodePng(pictureOf(digestOf('', null), 16, 16)));
  const { crc32 } = await import('node:zlib');
  file.writeUInt32BE(width, 16);
  file.writeUInt32BE(height, 20);
  file.writeUInt32BE(crc32(file.subarray(12, 29)), 29);
  return file.toString('base64');
}
