/** A judge that does as it is told, on a free loopback port: good replies, and every bad one that real servers give. */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { decodeImage } from '../../../src/core/images/image.js';
import type { Clock } from '../../../src/core/clock.js';
import { listening } from '../../support/stub_server.js';

export interface StubRequest {
  readonly body: Readonly<Record<string, unknown>>;
  readonly system: string | null;
  readonly text: string;
  /** Data URLs of the images, in order. */
  readonly images: readonly string[];
  readonly kind: 'sc' | 'pq' | 'ground';
  readonly authorization: string | undefined;
  /** How often this very question was asked before. */
  readonly asked: number;
}

export type Behaviour =
  | { readonly kind: 'text'; readonly text: string; readonly finishReason?: string }
  | {
      readonly kind: 'json';
      readonly body: unknown;
      readonly status?: number;
      readonly headers?: Record<string, string>;
    }
  | {
      readonly kind: 'raw';
      readonly status: number;
      readonly contentType: string;
      readonly body: string;
      readonly headers?: Record<string, string>;
    }
  /** Takes the request and says nothing. */
  | { readonly kind: 'silent' }
  /** Sends headers and half a body, then nothing. */
  | { readonly kind: 'stall' }
  | { readonly kind: 'reset' };

export type Behave = (request: StubRequest) => Behaviour | Promise<Behaviour>;

export interface StubJudge {
  readonly url: string;
  readonly port: number;
  readonly requests: readonly StubRequest[];
  /** The most requests that were in flight at once. */
  readonly peak: () => number;
  readonly close: () => Promise<void>;
}

export interface StubOptions {
  /** A free one by default. */
  readonly port?: number;
  readonly models?: Behaviour | ((authorization: string | undefined) => Behaviour);
}

export const stubModel = 'stub-judge';
const listing: Behaviour = {
  kind: 'json',
  body: { object: 'list', data: [{ id: stubModel, object: 'model', max_model_len: 4096 }] },
};

export async function startStubJudge(behave: Behave, options: StubOptions = {}): Promise<StubJudge> {
  const requests: StubRequest[] = [];
  const askedBefore = new Map<string, number>();
  let underWay = 0;
  let peak = 0;

  async function answer(incoming: IncomingMessage, response: ServerResponse): Promise<void> {
    let content = '';
    for await (const chunk of incoming.setEncoding('utf8')) content += chunk as string;
    if (incoming.url === '/v1/models') {
      const { models = listing } = options;
      act(typeof models === 'function' ? models(incoming.headers.authorization) : models, incoming, response);
      return;
    }
    if (incoming.url !== '/v1/chat/completions') {
      act({ kind: 'json', status: 404, body: { detail: 'Not Found' } }, incoming, response);
      return;
    }
    const question = content.replace(/"(seed|temperature)":[\d.]+/g, '');
    const asked = askedBefore.get(question) ?? 0;
    askedBefore.set(question, asked + 1);
    const request = { ...read(JSON.parse(content) as ChatBody, asked), authorization: incoming.headers.authorization };
    requests.push(request);
    peak = Math.max(peak, ++underWay);
    try {
      act(await behave(request), incoming, response);
    } finally {
      underWay--;
    }
  }

  const { url, close, port } = await listening((incoming, response) => {
    answer(incoming, response).catch(() => incoming.socket.destroy());
  }, options.port);
  return { url: `${url}/v1`, port, requests, peak: () => peak, close };
}

interface ChatBody extends Record<string, unknown> {
  readonly messages: readonly { readonly role: string; readonly content: unknown }[];
}

type Part =
  | { readonly type: 'text'; readonly text: string }
  | { readonly type: 'image_url'; readonly image_url: { readonly url: string } };

function read(body: ChatBody, asked: number): Omit<StubRequest, 'authorization'> {
  const system = body.messages.find(({ role }) => role === 'system');
  const parts = body.messages.find(({ role }) => role === 'user')?.content as readonly Part[];
  const images = parts.flatMap((part) => (part.type === 'image_url' ? [part.image_url.url] : []));
  const text = parts.flatMap((part) => (part.type === 'text' ? [part.text] : [])).join('\n');
  const kind = system !== undefined ? 'ground' : images.length === 2 ? 'sc' : 'pq';
  return { body, system: system === undefined ? null : String(system.content), text, images, kind, asked };
}

function act(behaviour: Behaviour, incoming: IncomingMessage, response: ServerResponse): void {
  switch (behaviour.kind) {
    case 'text':
      sendJson(response, 200, completion(behaviour.text, behaviour.finishReason ?? 'stop'));
      return;
    case 'json':
      sendJson(response, behaviour.status ?? 200, behaviour.body, behaviour.headers);
      return;
    case 'raw':
      response
        .writeHead(behaviour.status, { 'content-type': behaviour.contentType, ...behaviour.headers })
        .end(behaviour.body);
      return;
    case 'silent':
      return;
    case 'stall':
      response.writeHead(200, { 'content-type': 'application/json' }).write('{"choices": [');
      return;
    case 'reset':
      incoming.socket.resetAndDestroy();
      return;
  }
}

function sendJson(response: ServerResponse, status: number, body: unknown, headers: Record<string, string> = {}): void {
  response.writeHead(status, { 'content-type': 'application/json', ...headers }).end(JSON.stringify(body));
}

export function completion(text: string | null, finishReason: string): unknown {
  return {
    id: 'chatcmpl-1',
    object: 'chat.completion',
    created: 0,
    model: stubModel,
    choices: [{ index: 0, message: { role: 'assistant', content: text }, finish_reason: finishReason }],
    usage: { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 },
  };
}

export function openAiError(status: number, message: string, headers: Record<string, string> = {}): Behaviour {
  return { kind: 'json', status, headers, body: { error: { message, type: 'Error', param: null, code: status } } };
}

/** A judge that refuses these fields in OpenAI's words, and answers by this name. */
export function choosy(fields: readonly string[], text: Behaviour, answersAs = stubModel): Behave {
  return ({ body }) => {
    const field = fields.find((name) => name in body);
    if (field !== undefined) return openAiError(400, `Unrecognized request argument supplied: ${field}`);
    if (text.kind !== 'text') return text;
    const said = completion(text.text, text.finishReason ?? 'stop') as object;
    return { kind: 'json', body: { ...said, model: answersAs } };
  };
}

export function scoresText(...scores: readonly number[]): Behaviour {
  return { kind: 'text', text: JSON.stringify({ score: scores, reasoning: 'as told' }) };
}

/** An image that carries a number below 256 in all its pixels. */
export function numberedImage(number: number, side = 32) {
  return { width: side, height: side, data: new Uint8Array(side * side * 3).fill(number) };
}

/** The number that an image carries. */
export async function numberOf(dataUrl: string): Promise<number> {
  const bytes = Buffer.from(dataUrl.slice('data:image/png;base64,'.length), 'base64');
  return (await decodeImage(bytes, 'stub')).data[0];
}

/** Real time, so many times faster; it records every wait that was asked for, in milliseconds. */
export function fastClock(factor: number): Clock & { readonly waits: readonly number[] } {
  const waits: number[] = [];
  return {
    waits,
    now: () => performance.now() * factor,
    after(milliseconds, callback) {
      waits.push(milliseconds);
      const timer = setTimeout(callback, milliseconds / factor);
      return () => clearTimeout(timer);
    },
  };
}
