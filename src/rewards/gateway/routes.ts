/** The answers for each path of the gateway. */
import { createHash } from 'node:crypto';
import { Semaphore } from '../../core/semaphore.js';
import { bearerToken } from '../../http/guard.js';
import { badRequest, Refusal } from '../../http/refusal.js';
import { json, metricsPage, type Reply } from '../../http/reply.js';
import type { Call, Route } from '../../http/server.js';
import type { JudgeCheck } from '../judge/readiness.js';
import { readChatModel } from './chat_body.js';
import { answerChat, whyNotReady, type ChatServices } from './chat.js';
import { runNamePattern, type GatewayOptions } from './options.js';
import type { Upstream } from './upstream.js';

export interface GatewayState extends ChatServices {
  readonly options: GatewayOptions;
  readonly token: string | null;
  readonly upstreams: readonly Upstream[];
  /** What the last look at each upstream found. */
  readonly looks: ReadonlyMap<string, JudgeCheck>;
}

export function gatewayRoutes(state: GatewayState): Readonly<Record<string, Route>> {
  // One large body is parsed at a time, many small ones together: parsed, a body takes several times its bytes.
  const parsing = new Semaphore(state.options.maxBodyMb * 1e6);
  return {
    '/health': { open: true, GET: (call) => health(call, state) },
    '/metrics': {
      GET: ({ server }) => {
        const { metrics, upstreams, dispatcher } = state;
        return metricsPage(metrics.render(upstreams, dispatcher, server.replies.samples()));
      },
    },
    '/v1/models': { GET: () => json(200, { object: 'list', data: listing(state) }) },
    '/v1/models/': { GET: ({ rest }) => json(200, modelNamed(rest, listing(state))) },
    '/v1/chat/completions': { POST: (call) => chat(call, state, parsing) },
  };
}

/** 200 if at least one upstream is ready, else 503. Only callers with the token get details. */
function health({ trusted, server: { draining } }: Call, { upstreams, dispatcher }: GatewayState): Reply {
  const ready = upstreams.some((upstream) => upstream.ready) && !draining;
  const status = draining ? 'draining' : ready ? 'ready' : 'waiting';
  const details = {
    why: draining ? 'it is being stopped' : ready ? null : whyNotReady(upstreams).message,
    upstreams: upstreams.map((upstream) => ({
      url: upstream.url,
      state: upstream.state,
      found: upstream.found === '' ? null : upstream.found,
      models: upstream.models,
      in_flight: upstream.limit.inFlight,
      limit: upstream.limit.limit,
      cap: upstream.limit.cap,
    })),
    waiting: dispatcher.waiting,
    runs: Object.fromEntries(dispatcher.runs()),
  };
  return json(ready ? 200 : 503, trusted ? { status, ...details } : { status });
}

/** A model as `/v1/models` lists it. */
interface ModelEntry {
  readonly id: string;
}

/** The models of all ready upstreams; if none can become ready, what they list instead, so that a caller sees it. */
function listing({ upstreams, looks }: GatewayState): readonly ModelEntry[] {
  const ready = upstreams.filter((upstream) => upstream.ready);
  if (ready.length === 0 && !upstreams.every(({ hopeless }) => hopeless)) throw whyNotReady(upstreams);
  const listing = ready.length > 0 ? ready : upstreams;
  const ids = new Set(listing.flatMap(({ models }) => models));
  if (ids.size === 0) throw new Refusal('no_such_model_anywhere', whyNotReady(upstreams).message);
  const listed = listing.flatMap(({ url }) => looks.get(url)?.models ?? []);
  return [...ids].map((id) => {
    const same = listed.filter((model) => model.id === id);
    const lengths = same.flatMap(({ maxModelLen }) => (maxModelLen === null ? [] : [maxModelLen]));
    return {
      id,
      object: 'model',
      created: 0,
      owned_by: 'editrl-gateway',
      root: same.find(({ root }) => root !== null)?.root ?? id,
      // What fits here has to fit every judge.
      ...(lengths.length === 0 ? {} : { max_model_len: Math.min(...lengths) }),
    };
  });
}

function modelNamed(name: string, listed: readonly ModelEntry[]): ModelEntry {
  const found = listed.find(({ id }) => id === name);
  if (found !== undefined) return found;
  const known = listed.map(({ id }) => id).join(', ');
  throw new Refusal('not_found', `The model \`${name.slice(0, 200)}\` does not exist; known: ${known}.`, {
    param: 'model',
  });
}

async function chat(call: Call, state: GatewayState, parsing: Semaphore): Promise<Reply> {
  const { options } = state;
  const { gone } = call;
  const run = runOf(call, state);
  // A page in a browser can post other content types to a loopback address without a preflight request.
  if (!/^application\/json\b/i.test(call.request.headers['content-type'] ?? '')) {
    throw new Refusal('unsupported_media_type', 'The body has to be JSON: content-type application/json.');
  }
  const bytes = await call.read();
  const model = await parsing.run(
    () =>
      readChatModel(bytes, {
        maxImages: options.maxImages,
        maxImagePixels: options.maxImageMegapixels * 1e6,
        caller: gone,
      }),
    bytes.length,
  );
  const { status, body: text, headers } = await answerChat({ run, model, bytes, gone }, state);
  return { status, type: headers['content-type'] ?? 'application/json', body: text, headers };
}

/** The run whose quota a request counts against: the one it names, else the one for its key, else one shared by everyone who names nothing. */
function runOf({ request, scope }: Call, { token }: GatewayState): string {
  const named = request.headers['x-run-name'] ?? scope;
  if (typeof named === 'string') {
    if (runNamePattern.test(named)) return named;
    throw badRequest(
      'x-run-name or /run/NAME is no run name: letters, digits, dot, underscore and hyphen, 96 at most.',
    );
  }
  const key = token === null ? bearerToken(request.headers) : null;
  return key === null ? 'unnamed' : `key-${createHash('sha256').update(key).digest('hex').slice(0, 8)}`;
}
