/**
 * A strict stand-in for render servers. What it draws says what it was asked for: the first pixels of a picture hold the digest of its hidden
 * states, its seed, its steps and the picture that it was made of.
 */
import { createHash } from 'node:crypto';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { decodeImage, encodePng, sha256 } from '../../../src/core/image.js';
import { pictureOf } from '../images_api/stub_images.js';

/** What goes wrong with one request, in place of its answer. */
export type RenderFault =
  | { readonly kind: 'status'; readonly status: number; readonly body?: unknown }
  | { readonly kind: 'stall' }
  | { readonly kind: 'cut' }
  /** These bytes in place of the picture. */
  | { readonly kind: 'bytes'; readonly bytes: Uint8Array };

export interface RenderRequest {
  readonly method: string;
  /** SHA-256 of the states' bytes; null where it asks who the server is. */
  readonly states: string | null;
  readonly fields: Readonly<Record<string, unknown>>;
  readonly source: string | null;
  /** Tokens of the states, and of those of a blank instruction where a request has them. */
  readonly tokens: readonly number[];
  /** What its picture shows. */
  readonly digest: string | null;
}

export interface StubRenderOptions {
  readonly model?: string;
  /** Of the hidden states that it takes. */
  readonly width?: number;
  readonly apiKey?: string;
  /** Whether it speaks the first version of the protocol alone, which knows no guidance. */
  readonly unguided?: boolean;
  /** Added to what is drawn: another server draws otherwise. */
  readonly salt?: string;
}

export function renderDigest(
  states: string,
  { seed, num_inference_steps: steps, guidance_scale }: Readonly<Record<string, unknown>>,
  source: string,
  salt = '',
  blank: string | null = null,
): string {
  const guided = blank === null ? [] : [guidance_scale, blank];
  return createHash('sha256')
    .update(JSON.stringify([states, seed, steps, source, salt, ...guided]))
    .digest('hex');
}

export class StubRender {
  readonly requests: RenderRequest[] = [];
  /** Asked for every request for a picture. */
  fault: (request: RenderRequest) => RenderFault | null = () => null;
  /** Most pictures under way at once. */
  peak = 0;
  #underWay = 0;
  readonly #server: Server;

  private constructor(private readonly options: StubRenderOptions) {
    this.#server = createServer((incoming, response) => {
      response.on('error', () => undefined);
      this.#answer(incoming, response).catch((error: unknown) => send(response, 400, { error: String(error) }));
    });
  }

  static async start(options: StubRenderOptions = {}): Promise<StubRender> {
    const stub = new StubRender(options);
    await new Promise<void>((resolve) => stub.#server.listen(0, '127.0.0.1', resolve));
    return stub;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  /** Those that asked for pictures. */
  get asked(): readonly RenderRequest[] {
    return this.requests.filter(({ method }) => method === 'POST');
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
    const { model = 'stub-editor', width = 16, apiKey, salt, unguided = false } = this.options;
    if (apiKey !== undefined && incoming.headers.authorization !== `Bearer ${apiKey}`) {
      return send(response, 401, { error: 'no such key' });
    }
    if (incoming.url !== '/v1/render') return send(response, 404, { error: 'there is nothing here' });
    if (incoming.method === 'GET') {
      this.requests.push({ method: 'GET', states: null, fields: {}, source: null, tokens: [], digest: null });
      const protocols = unguided ? {} : { protocols: ['editrl-render/1', 'editrl-render/2'] };
      return send(response, 200, { protocol: 'editrl-render/1', ...protocols, model, states_width: width });
    }
    const { tensors, fields } = parse(Buffer.concat(pieces));
    const isGuided = !unguided && fields['protocol'] === 'editrl-render/2';
    const [states, source, blank] = ['prompt_embeds', 'source', 'negative_prompt_embeds'].map((name) =>
      tensors.get(name),
    );
    if (states === undefined || source === undefined || tensors.size !== (isGuided ? 3 : 2)) {
      throw new Error('other tensors');
    }
    const told = isGuided && blank !== undefined ? [states, blank] : [states];
    const blankDigest = isGuided && blank !== undefined ? sha256(blank.bytes) : null;
    const digest = renderDigest(sha256(states.bytes), fields, sha256(source.bytes), salt, blankDigest);
    const request = {
      method: 'POST',
      states: sha256(states.bytes),
      fields,
      source: sha256(source.bytes),
      tokens: told.map(({ shape }) => shape[0]),
      digest,
    };
    this.requests.push(request);
    const fault = this.fault(request);
    switch (fault?.kind) {
      case 'status':
        return send(response, fault.status, fault.body ?? { error: 'as the test says' });
      case 'stall':
        return;
      case 'cut':
        return void incoming.socket.resetAndDestroy();
      case 'bytes':
        return void response.writeHead(200, { 'content-type': 'image/png' }).end(fault.bytes);
      case undefined:
        break;
    }
    this.peak = Math.max(this.peak, ++this.#underWay);
    // Those that come together are under way together.
    await new Promise((resolve) => setImmediate(resolve));
    this.#underWay--;
    const names = Object.keys(fields).sort().join();
    const more = isGuided ? 'guidance_scale,' : '';
    const version = isGuided ? 'protocol,' : '';
    if (names !== `${more}height,model,num_inference_steps,${version}seed,width`) {
      throw new Error(`other fields: ${names}`);
    }
    if (fields['model'] !== model) return send(response, 400, { error: `this is ${model}` });
    for (const { dtype, shape, bytes } of told) {
      if (dtype !== 'F32' && dtype !== 'BF16') throw new Error(`states of ${dtype}`);
      const [tokens, found] = shape;
      if (found !== width || bytes.length !== tokens * width * (dtype === 'F32' ? 4 : 2)) {
        return send(response, 400, { error: `states of [${shape.join()}] are not of width ${width}` });
      }
    }
    const { width: columns, height: rows } = await decodeImage(source.bytes, 'the source');
    if (columns !== fields['width'] || rows !== fields['height']) throw new Error('a size other than the source has');
    const file = await encodePng(pictureOf(digest, columns, rows));
    response.writeHead(200, { 'content-type': 'image/png' }).end(file);
  }
}

interface Parsed {
  readonly dtype: string;
  readonly shape: readonly number[];
  readonly bytes: Buffer;
}

/** A safetensors file, read by its description alone. */
function parse(file: Buffer): { tensors: Map<string, Parsed>; fields: Record<string, unknown> } {
  const length = Number(file.readBigUInt64LE(0));
  const { __metadata__: metadata, ...entries } = JSON.parse(file.toString('utf8', 8, 8 + length)) as Record<
    string,
    { dtype: string; shape: number[]; data_offsets: [number, number]; request?: string }
  >;
  const data = file.subarray(8 + length);
  const tensors = Object.entries(entries).map(
    ([
      name,
      {
        dtype,
        shape,
        data_offsets: [from, to],
      },
    ]) => {
      if (to > data.length) throw new Error('the body is cut off');
      return [name, { dtype, shape, bytes: data.subarray(from, to) }] as const;
    },
  );
  return { tensors: new Map(tensors), fields: JSON.parse(metadata.request ?? '') as Record<string, unknown> };
}

function send(response: ServerResponse, status: number, body: unknown): void {
  response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));
}
