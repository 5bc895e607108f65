/**
 * A strict stand-in for render servers. What it draws says what it was asked for: the first pixels of an image hold the digest of its hidden
 * states, its seed, its steps and the image that it was made of.
 */
import { createHash } from 'node:crypto';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { decodeImage, encodePng, sha256 } from '../../../../src/core/images/image.js';
import { send, StubServer, type Fault } from '../../../support/stub_server.js';
import { imageOf } from '../images_api/stub_images.js';

/** These bytes in place of the image. */
interface OtherBytes {
  readonly kind: 'bytes';
  readonly bytes: Uint8Array;
}

export type RenderFault = Fault | OtherBytes;

export interface RenderRequest {
  readonly method: string;
  /** SHA-256 of the states' bytes; null where it asks who the server is. */
  readonly states: string | null;
  readonly fields: Readonly<Record<string, unknown>>;
  readonly source: string | null;
  /** Tokens of the states, and of those of a blank instruction where a request has them. */
  readonly tokens: readonly number[];
  /** What its image shows. */
  readonly digest: string | null;
}

export interface StubRenderOptions {
  readonly model?: string;
  /** Width of the hidden states that it accepts. */
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

/** A request with its tensors; without any where it asks who the server is. */
interface ReadRequest extends RenderRequest {
  readonly tensors: ReadonlyMap<string, Parsed>;
}

export class StubRender extends StubServer<ReadRequest, OtherBytes> {
  private constructor(private readonly options: StubRenderOptions) {
    super();
  }

  static start(options: StubRenderOptions = {}): Promise<StubRender> {
    return new StubRender(options).listen();
  }

  /** Requests for images. */
  get asked(): readonly RenderRequest[] {
    return this.requests.filter(({ method }) => method === 'POST');
  }

  protected override readonly refuses = ({ url, headers }: IncomingMessage): [number, unknown] | null => {
    const { apiKey } = this.options;
    if (apiKey !== undefined && headers.authorization !== `Bearer ${apiKey}`) return [401, { error: 'no such key' }];
    return url === '/v1/render' ? null : [404, { error: 'there is nothing here' }];
  };

  protected override readonly canFail = ({ method }: RenderRequest): boolean => method === 'POST';

  protected override broken(error: unknown): [number, unknown] {
    return [400, { error: String(error) }];
  }

  protected read({ method = '' }: IncomingMessage, body: Buffer): ReadRequest {
    if (method === 'GET') {
      return { method, states: null, fields: {}, source: null, tokens: [], digest: null, tensors: new Map() };
    }
    const { tensors, fields } = parse(body);
    const isGuided = this.#isGuided(fields);
    const [states, source, blank] = ['prompt_embeds', 'source', 'negative_prompt_embeds'].map((name) =>
      tensors.get(name),
    );
    if (states === undefined || source === undefined || tensors.size !== (isGuided ? 3 : 2)) {
      throw new Error('other tensors');
    }
    const told = isGuided && blank !== undefined ? [states, blank] : [states];
    const blankDigest = isGuided && blank !== undefined ? sha256(blank.bytes) : null;
    return {
      method,
      states: sha256(states.bytes),
      fields,
      source: sha256(source.bytes),
      tokens: told.map(({ shape }) => shape[0]),
      digest: renderDigest(sha256(states.bytes), fields, sha256(source.bytes), this.options.salt, blankDigest),
      tensors,
    };
  }

  protected async reply(request: ReadRequest, response: ServerResponse, fault: OtherBytes | null): Promise<void> {
    const { model = 'stub-editor', width = 16, unguided = false } = this.options;
    const { method, fields, tensors, digest } = request;
    if (method === 'GET') {
      const protocols = unguided ? {} : { protocols: ['editrl-render/1', 'editrl-render/2'] };
      return send(response, 200, { protocol: 'editrl-render/1', ...protocols, model, states_width: width });
    }
    if (fault !== null) return void response.writeHead(200, { 'content-type': 'image/png' }).end(fault.bytes);
    const isGuided = this.#isGuided(fields);
    const source = tensors.get('source') as Parsed;
    const told = [...tensors].filter(([name]) => name !== 'source').map(([, tensor]) => tensor);
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
    const file = await encodePng(imageOf(digest as string, columns, rows));
    response.writeHead(200, { 'content-type': 'image/png' }).end(file);
  }

  #isGuided(fields: RenderRequest['fields']): boolean {
    return this.options.unguided !== true && fields['protocol'] === 'editrl-render/2';
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
