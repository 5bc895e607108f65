/**
 * Faults that a test's rule judge injects: everything that real judge servers have been seen to do to their clients. Which request meets which
 * fault is a pure function of a seed and the request's number, so that a failure can be reproduced.
 */
import { z } from 'zod';
import { RandomStream } from '../../../src/core/random.js';
import { writeAnswer, type Answer } from '../../../src/rewards/rule_judge/protocol.js';
import { malformations, type MalformationName } from './malformations.js';

/** The content of a chat completion: a text, or what broken servers send instead. */
export type ChatContent =
  | { readonly content: string; readonly finishReason: 'stop' | 'length' }
  | { readonly content: null }
  | { readonly choices: 'none' };

/** What becomes of a request. */
export type Effect =
  /** The right answer, this much later. */
  | { readonly does: 'delay'; readonly milliseconds: number }
  | { readonly does: 'hang' }
  | { readonly does: 'reset' }
  /** Headers and the beginning of a body, then nothing. */
  | { readonly does: 'stall' }
  /** The server stops listening and drops every connection for this long. */
  | { readonly does: 'die'; readonly milliseconds: number }
  | {
      readonly does: 'reply';
      readonly status: number;
      readonly headers: Readonly<Record<string, string>>;
      readonly body: string;
    }
  | { readonly does: 'garble'; readonly garble: (answer: Answer) => ChatContent };

/** Decides what becomes of each request. */
export interface FaultSource {
  /** The fault of a chat request, counted from 0. */
  at(request: number): { readonly name: string; readonly effect: Effect } | null;
  /** Whether a request for the list of models, counted from 0, gets another model's name. */
  hidesModel(look: number): boolean;
}

interface Context {
  readonly random: RandomStream;
  readonly spec: FaultSpec;
}

interface FaultKind {
  readonly description: string;
  readonly effect: (context: Context) => Effect;
}

const json = { 'content-type': 'application/json' };

function errorReply(status: number, type: string, message: string, headers: Record<string, string> = {}): Effect {
  const body = JSON.stringify({ error: { message, type, param: null, code: status } });
  return { does: 'reply', status, headers: { ...json, ...headers }, body };
}

/** What servers and their proxies write into `Retry-After`. */
const retryAfterForms: readonly (() => Record<string, string>)[] = [
  () => ({ 'retry-after': '1' }),
  () => ({ 'retry-after': '0.25' }),
  () => ({ 'retry-after-ms': '150' }),
  () => ({ 'retry-after': new Date(Date.now() + 1_000).toUTCString() }),
  () => ({ 'retry-after': new Date(0).toUTCString() }),
  () => ({}),
];
const tooMany = 'Too many requests.';
const absurdRetryAfters = ['86400', '1e9', '-5', 'soon'];

const html = '<!doctype html><html><head><title>Welcome</title></head><body><h1>It works: 10/10</h1></body></html>';

const ownKinds = {
  latency: {
    description: 'the right answer, latency_ms later',
    effect: ({ spec }) => ({ does: 'delay', milliseconds: spec.latencyMs }),
  },
  timeout: { description: 'no reply ever', effect: () => ({ does: 'hang' }) },
  reset: { description: 'the connection is reset', effect: () => ({ does: 'reset' }) },
  stall_after_headers: {
    description: 'headers and the beginning of a body, then nothing',
    effect: () => ({ does: 'stall' }),
  },
  http429: {
    description: 'too many requests, with a Retry-After in seconds, milliseconds, as a date, or without one',
    effect: ({ random }) => errorReply(429, 'RateLimitError', tooMany, random.pick(retryAfterForms)()),
  },
  http429_absurd: {
    description: 'too many requests, with a Retry-After of a day, or that is no time',
    effect: ({ random }) =>
      errorReply(429, 'RateLimitError', tooMany, { 'retry-after': random.pick(absurdRetryAfters) }),
  },
  http500: {
    description: 'an internal error',
    effect: () => errorReply(500, 'InternalServerError', 'EngineCore encountered an issue.'),
  },
  http503: {
    description: "unavailable, with a proxy's page as its body",
    effect: () => ({ does: 'reply', status: 503, headers: { 'content-type': 'text/html' }, body: html }),
  },
  html_body: {
    description: 'status 200 with a web page',
    effect: () => ({ does: 'reply', status: 200, headers: { 'content-type': 'text/html' }, body: html }),
  },
  broken_json: {
    description: 'status 200 with JSON that breaks off',
    effect: () => ({ does: 'reply', status: 200, headers: json, body: '{"id": "chatcmpl-1", "choices": [{"index"' }),
  },
  wrong_model: {
    description: 'status 404, as if another model were served',
    effect: () => errorReply(404, 'NotFoundError', 'The model does not exist.'),
  },
  choices_empty: {
    description: 'a completion without choices',
    effect: () => ({ does: 'garble', garble: () => ({ choices: 'none' }) }),
  },
  content_null: {
    description: 'a completion with null for its text',
    effect: () => ({ does: 'garble', garble: () => ({ content: null }) }),
  },
  truncated: {
    description: 'the text is cut at any place, finish_reason length',
    effect: ({ random }) => {
      const share = random.uniform();
      return {
        does: 'garble',
        garble: (answer) => {
          const text = writeAnswer(answer);
          return { content: text.slice(0, Math.floor(share * text.length)), finishReason: 'length' };
        },
      };
    },
  },
  engine_death: {
    description: 'every connection is dropped and none is taken for down_s seconds',
    effect: ({ spec }) => ({ does: 'die', milliseconds: spec.downS * 1000 }),
  },
} as const satisfies Readonly<Record<string, FaultKind>>;

export type FaultName = keyof typeof ownKinds | MalformationName;

const garblings = Object.entries(malformations).map(([name, { description, write }]): [string, FaultKind] => [
  name,
  {
    description: `the answer's text: ${description}`,
    effect: () => ({
      does: 'garble',
      garble: (answer) => ({ content: write[answer.form](answer), finishReason: 'stop' }),
    }),
  },
]);

/** Every kind of fault that a question can meet. */
export const faultKinds: Readonly<Record<FaultName, FaultKind>> = {
  ...ownKinds,
  ...(Object.fromEntries(garblings) as Record<MalformationName, FaultKind>),
};

export const faultNames = Object.keys(faultKinds) as readonly FaultName[];

/** How often each fault is injected. */
export interface FaultSpec {
  /** Shares of all requests, by kind; kinds that are not injected are absent. */
  readonly shares: ReadonlyMap<FaultName, number>;
  /** Share of requests for the list of models that are answered with another model's name. */
  readonly wrongListing: number;
  readonly latencyMs: number;
  readonly downS: number;
  /** This many requests at the beginning are left alone. */
  readonly after: number;
}

const share = z.number().min(0).max(1);
const specSchema = z.strictObject({
  ...(Object.fromEntries(faultNames.map((name) => [name, share.optional()])) as Record<
    FaultName,
    z.ZodOptional<typeof share>
  >),
  rate: share.default(0),
  wrong_listing: share.default(0),
  latency_ms: z.number().min(0).default(1_000),
  down_s: z.number().min(0).default(2),
  after: z.number().int().min(0).default(0),
});

/**
 * Reads `rate=0.3`, `timeout=0.05,reset=0.05`, or a mixture of both. `rate` is shared evenly by the kinds that are not named themselves. Throws for
 * other names, and for shares beyond 1.
 */
export function readFaultSpec(spec: string): FaultSpec {
  const pairs = spec.split(',').map((pair) => pair.split('='));
  const parsed = specSchema.parse(Object.fromEntries(pairs.map(([name, value]) => [name, Number(value)])));
  const { rate, wrong_listing, latency_ms, down_s, after, ...named } = parsed;
  const unnamed = faultNames.filter((name) => named[name] === undefined);
  const shares = new Map(
    faultNames.map((name) => [name, named[name] ?? rate / unnamed.length] as const).filter(([, each]) => each > 0),
  );
  const total = [...shares.values()].reduce((sum, each) => sum + each, 0);
  if (total > 1 + 1e-9) throw new Error(`the shares add up to ${total}`);
  return { shares, wrongListing: wrong_listing, latencyMs: latency_ms, downS: down_s, after };
}

export interface Fault {
  readonly name: FaultName;
  readonly effect: Effect;
}

/** Decides which fault, if any, each request meets. */
export class Faults implements FaultSource {
  constructor(
    readonly spec: FaultSpec,
    readonly seed: number,
  ) {}

  /** The fault of a chat request, counted from 0. */
  at(request: number): Fault | null {
    if (request < this.spec.after) return null;
    const random = new RandomStream('judge fault', this.seed, request);
    let left = random.uniform();
    for (const [name, each] of this.spec.shares) {
      left -= each;
      if (left < 0) return { name, effect: faultKinds[name].effect({ random, spec: this.spec }) };
    }
    return null;
  }

  /** Whether a request for the list of models, counted from 0, gets another model's name. */
  hidesModel(look: number): boolean {
    return new RandomStream('judge listing', this.seed, look).uniform() < this.spec.wrongListing;
  }
}
