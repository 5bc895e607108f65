/**
 * A strict stand-in for servers of the OpenAI images API. It refuses fields that they do not know, and what it draws says what it was asked
 * for: the first pixels of an image hold the digest of its prompt, its seed and the image that it was made of.
 */
import { createHash } from 'node:crypto';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { decodeImage, encodePng, sha256, type RgbImage } from '../../../../src/core/images/image.js';
import { failure, send, StubServer, type Fault as CommonFault } from '../../../support/stub_server.js';

/** This body in place of the right one, which it is given. */
interface OtherBody {
  readonly kind: 'body';
  readonly body: (right: StubReply) => unknown;
}

export type Fault = CommonFault | OtherBody;

export interface StubReply {
  readonly created: number;
  readonly data: readonly { readonly b64_json: string; readonly revised_prompt?: string }[];
}

export interface StubRequest {
  readonly path: string;
  readonly fields: Readonly<Record<string, unknown>>;
  /** SHA-256 of the image that is to be edited. */
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

/** The digest of what an image shows. */
export function digestOf(prompt: string, seed: number | null, source: string | null = null, salt = ''): string {
  return createHash('sha256')
    .update(JSON.stringify([prompt, seed, source, salt]))
    .digest('hex');
}

/** What an image says that it was asked for. */
export function digestIn({ data }: RgbImage): string {
  return Buffer.from(data.subarray(0, 32)).toString('hex');
}

export function imageOf(digest: string, width: number, height: number): RgbImage {
  const data = new Uint8Array(3 * width * height).fill(200);
  data.set(Buffer.from(digest, 'hex'));
  return { width, height, data };
}

export class StubImages extends StubServer<StubRequest, OtherBody> {
  readonly #counts = new Map<string, number>();

  private constructor(private readonly options: StubOptions) {
    super();
  }

  static start(options: StubOptions = {}): Promise<StubImages> {
    return new StubImages(options).listen(options.port);
  }

  /** Requests for images. */
  get asked(): readonly StubRequest[] {
    return this.requests.filter(({ path }) => path.startsWith('/v1/images/'));
  }

  protected override readonly refuses = ({ headers }: IncomingMessage): [number, unknown] | null => {
    const { apiKey } = this.options;
    if (apiKey === undefined || headers.authorization === `Bearer ${apiKey}`) return null;
    return [401, failure('Incorrect API key provided')];
  };

  protected async read({ url: path = '', headers }: IncomingMessage, content: Buffer): Promise<StubRequest> {
    const body = await readBody(content, headers['content-type'] ?? '');
    const earlier = this.#counts.get(path) ?? 0;
    this.#counts.set(path, earlier + 1);
    return { path, ...body, earlier };
  }

  protected reply(request: StubRequest, response: ServerResponse, fault: OtherBody | null): Promise<void> {
    return this.#route(request, response, fault?.body ?? ((right) => right));
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
      return send(response, 400, { detail: `an image of ${sourceSize} is not edited to ${String(fields['size'])}` });
    }
    if (kind === 'open' && fields['response_format'] !== 'b64_json') {
      return send(response, 400, { detail: 'there is no storage for urls' });
    }
    const seed = fields['seed'] === undefined ? null : Number(fields['seed']);
    const image = imageOf(digestOf(String(fields['prompt']), seed, source, salt), width, height);
    const right = { created: 0, data: [{ b64_json: Buffer.from(await encodePng(image)).toString('base64') }] };
    const body = change(right);
    // A text stands for broken JSON.
    const sent = typeof body === 'string' ? body : JSON.stringify(body);
    response.writeHead(200, { 'content-type': 'application/json' }).end(sent);
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

/** A PNG of a few bytes whose header claims so many pixels. */
export async function bomb(width: number, height: number): Promise<string> {
  const file = Buffer.from(await encodePng(imageOf(digestOf('', null), 16, 16)));
  const { crc32 } = await import('node:zlib');
  file.writeUInt32BE(width, 16);
  file.writeUInt32BE(height, 20);
  file.writeUInt32BE(crc32(file.subarray(12, 29)), 29);
  return file.toString('base64');
}
