/** A public API in small: it wants a key, and counts what it charges for. */
import type { IncomingMessage } from 'node:http';
import { listening } from '../../support/stub_server.js';
import { completion } from './stub_judge.js';

/** A status and a body that is sent as JSON, or as it is where it is a text. */
export type ApiReply = readonly [status: number, body: unknown];

export interface PaidApi {
  /** Base URL ending in `/v1`. */
  readonly url: string;
  /** Paths that were asked for with the right key, in order; `!` before those with another. */
  readonly asked: readonly string[];
  readonly close: () => Promise<void>;
}

export interface PaidApiOptions {
  readonly key: string;
  /** What the listing answers; the models below by default. */
  readonly models?: ApiReply;
  /** Whether the listing is there for everyone. */
  readonly openListing?: boolean;
  /** What a chat answers; a text by default. */
  readonly chat?: (model: string) => ApiReply;
}

export const apiModel = 'stub-judge';

export function apiError(status: number, message: string): ApiReply {
  return [status, { error: { message, type: 'invalid_request_error', param: null, code: null } }];
}

const listing: ApiReply = [200, { object: 'list', data: [{ id: apiModel, object: 'model' }, { id: 'other' }] }];

async function bodyOf(request: IncomingMessage): Promise<string> {
  let text = '';
  for await (const chunk of request.setEncoding('utf8')) text += chunk as string;
  return text;
}

export async function startPaidApi(options: PaidApiOptions): Promise<PaidApi> {
  const { key, models = listing, openListing = false, chat } = options;
  const asked: string[] = [];

  async function answer(request: IncomingMessage): Promise<ApiReply> {
    const text = await bodyOf(request);
    const path = (request.url ?? '').replace(/^\/v1/, '');
    const right = request.headers.authorization === `Bearer ${key}`;
    asked.push(right ? path : `!${path}`);
    const listed = path === '/models';
    if (!right && !(listed && openListing)) {
      return apiError(401, `Incorrect API key provided: ${request.headers.authorization}`);
    }
    if (listed) return models;
    if (path !== '/chat/completions') return apiError(404, `Invalid URL (POST ${request.url})`);
    const { model } = JSON.parse(text) as { model: string };
    if (chat !== undefined) return chat(model);
    if (model !== apiModel) {
      return apiError(404, `The model \`${model}\` does not exist or you do not have access to it.`);
    }
    return [200, completion('Two grey squares.', 'stop')];
  }

  const { url, close } = await listening((request, response) => {
    void answer(request).then(([status, body]) => {
      const type = typeof body === 'string' ? 'text/html' : 'application/json';
      response.writeHead(status, { 'content-type': type });
      response.end(typeof body === 'string' ? body : JSON.stringify(body));
    });
  });
  return { url: `${url}/v1`, asked, close };
}
