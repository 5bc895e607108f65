/** What every remote does about servers that fail: one suite for every kind of client. */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { afterEach, describe, expect, it } from 'vitest';
import { Deadline } from '../../src/core/clock.js';
import { EndpointError } from '../../src/core/errors.js';
import { encodePng, sha256 } from '../../src/core/images/image.js';
import { TinkerConnection } from '../../src/train/policies/tinker/connection.js';
import { VllmClient } from '../../src/train/policies/vllm/client.js';
import { ImagesClient } from '../../src/train/environments/images_api.js';
import { RenderClient } from '../../src/train/environments/render_server.js';
import { blankImage } from '../../src/train/environments/served.js';
import { RewardPool } from '../../src/rewards/server/client/pool.js';
import { defaultTransportPolicy, Transport } from '../../src/rewards/judge/transport.js';
import { REWARD_HEADER, toWire } from '../../src/rewards/server/wire.js';
import { imagesApi } from '../../src/config/schema/images_api.js';
import { editorEnvironment, type RenderEditor } from '../../src/config/schema/editor.js';
import { completion, fastClock } from '../rewards/judge/stub_judge.js';
import { wholeItem } from '../rewards/terms/term_contract.js';
import { failure, send, StubServer, type Fault } from '../support/stub_server.js';

/** A second passes in ten milliseconds. */
const clock = fastClock(100);
const TIMEOUT_S = 60;
const ATTEMPTS = 3;
const size = { width: 8, height: 8 };
const PNG = await encodePng(blankImage(size));

interface Requested {
  readonly method: string;
  readonly body: Buffer;
}

/** Gives the one answer that a kind of client wants. */
class AnsweringStub extends StubServer<Requested> {
  constructor(private readonly answer: (asked: Requested) => object | Uint8Array) {
    super();
  }

  /** Requests for an answer, without those that ask what the server is. */
  get posts(): number {
    return this.requests.filter(({ method }) => method === 'POST').length;
  }

  protected override readonly canFail = ({ method }: Requested): boolean => method === 'POST';

  protected read({ method = '' }: IncomingMessage, body: Buffer): Requested {
    return { method, body };
  }

  protected reply(asked: Requested, response: ServerResponse): void {
    const answer = this.answer(asked);
    // Only clients of a reward server read it.
    response.setHeader(REWARD_HEADER, 'r');
    if (answer instanceof Uint8Array) response.writeHead(200, { 'content-type': 'image/png' }).end(answer);
    else send(response, 200, answer);
  }
}

interface Client {
  /** 'answered', or why there is no answer, in words. */
  ask(within: Deadline): Promise<string>;
  close(): Promise<void>;
}

interface Specification {
  readonly answer: (asked: Requested) => object | Uint8Array;
  /** A client of servers that makes at most `ATTEMPTS` attempts which fail, each of at most `TIMEOUT_S`. */
  readonly open: (urls: readonly string[], onWaiting: (found: string) => void) => Client;
  /** Whether a server that is away is waited for until the time is over, which counts as no failure, and is said. */
  readonly waits: boolean;
  /** Whether too much to do counts as a failure. */
  readonly countsBusy: boolean;
  /** Failures that are taken before giving up. */
  readonly attempts: number;
}

async function inWords(work: Promise<unknown>): Promise<string> {
  try {
    await work;
    return 'answered';
  } catch (error) {
    if (error instanceof EndpointError) return error.message;
    throw error;
  }
}

const random = (): number => 0.5;
const pictures = { served_model: 'm', timeout_s: TIMEOUT_S, max_attempts: ATTEMPTS };

const specifications: Readonly<Record<string, Specification>> = {
  'a judge': {
    answer: () => completion('7', 'stop') as object,
    open: (endpoints) => {
      const policy = { ...defaultTransportPolicy, maxAttempts: ATTEMPTS, attemptTimeoutMs: TIMEOUT_S * 1000 };
      const urls = endpoints.map((url) => `${url}/v1`);
      const transport = new Transport({ endpoints: urls, apiKey: 'k', connections: 4, policy, clock, random });
      const request = { model: 'm', messages: [{ role: 'user' as const, content: 'which score?' }] };
      return {
        ask: async (within) => {
          const { reply } = await transport.send(request, within);
          return reply.kind === 'text' ? 'answered' : reply.detail;
        },
        close: () => transport.close(),
      };
    },
    waits: false,
    countsBusy: true,
    attempts: ATTEMPTS,
  },
  'a reward server': {
    answer: ({ body }) => {
      const { key } = JSON.parse(body.toString('utf8')) as { key: string };
      return { key, outcome: toWire({ kind: 'scored', value: 1, normalised: 1, parts: {} }), terms: {} };
    },
    open: (servers) => {
      const limits = { maxAttempts: ATTEMPTS, attemptTimeoutMs: TIMEOUT_S * 1000, clock, random };
      const pools: RewardPool[] = [];
      return {
        ask: async (within) => {
          const pool = new RewardPool({ servers, ...limits, itemTimeoutMs: within.remainingMs() });
          pools.push(pool);
          const outcome = await pool.score(wholeItem({ key: '1/0' }));
          return outcome.kind === 'unscored' ? outcome.detail : 'answered';
        },
        close: async () => void (await Promise.all(pools.map((pool) => pool.close()))),
      };
    },
    waits: false,
    countsBusy: false,
    attempts: ATTEMPTS,
  },
  vLLM: {
    answer: () => ({ choices: [{ token_ids: [2], finish_reason: 'stop', logprobs: { token_logprobs: [-1] } }] }),
    open: ([url], onWaiting) => {
      const client = new VllmClient({ url, concurrency: 4, timeoutMs: TIMEOUT_S * 1000, clock, random, onWaiting });
      const sampling = { max_tokens: 1, temperature: 1, top_p: 1, top_k: 0, seed: 1, stop_token_ids: [2], logprobs: 0 };
      return {
        ask: (within) => inWords(client.complete({ model: 'm', prompt: [1], ...sampling }, within)),
        close: () => client.close(),
      };
    },
    waits: true,
    countsBusy: false,
    attempts: 5,
  },
  'a training server': {
    answer: () => ({}),
    open: ([url], onWaiting) => {
      const options = { url, concurrency: 4, timeoutMs: TIMEOUT_S * 1000, clock, random, onWaiting };
      const connection = new TinkerConnection(options);
      return {
        ask: (within) => inWords(connection.ask('/optim_step', {}, within)),
        close: () => connection.close(),
      };
    },
    waits: true,
    countsBusy: false,
    attempts: 5,
  },
  'an images server': {
    answer: () => ({ data: [{ b64_json: Buffer.from(PNG).toString('base64') }] }),
    open: (base_url, onWaiting) => {
      const settings = imagesApi.parse({ type: 'images_api', base_url, size: '8x8', ...pictures });
      const client = new ImagesClient({ settings, clock, random, onWaiting });
      return {
        ask: (within) => inWords(client.draw({ prompt: 'a cat', seed: 1 }, within)),
        close: () => client.close(),
      };
    },
    waits: true,
    countsBusy: false,
    attempts: ATTEMPTS,
  },
  'a render server': {
    answer: ({ method }) =>
      method === 'GET' ? { protocol: 'editrl-render/1', model: 'm', states_width: 1 } : new Uint8Array(PNG),
    open: (base_url, onWaiting) => {
      const given = { base_url, max_pixels: 1024, guidance_scale: null, num_inference_steps: 2, ...pictures };
      const settings = editorEnvironment.parse({ type: 'render_server', ...given }) as RenderEditor;
      const client = new RenderClient({ settings, width: 1, clock, random, onWaiting });
      const bytes = new Uint8Array(4);
      const states = { dtype: 'F32' as const, shape: [1, 1], bytes };
      const asked = { states, statesDigest: sha256(bytes), blank: null, source: new Uint8Array(PNG), size, seed: 1 };
      return { ask: (within) => inWords(client.draw(asked, within)), close: () => client.close() };
    },
    waits: true,
    countsBusy: false,
    attempts: ATTEMPTS,
  },
};

const closers: (() => Promise<void>)[] = [];
afterEach(async () => {
  for (const close of closers.splice(0)) await close();
});

const within = (seconds: number): Deadline => new Deadline(clock, seconds * 1000);
const status = (code: number, retryAfter?: string): Fault => ({
  kind: 'status',
  status: code,
  body: failure('as the test says', code),
  ...(retryAfter === undefined ? {} : { retryAfter }),
});

const passing: Readonly<Record<string, Fault>> = {
  'an error of its own': status(500),
  'too much to do': status(429),
  'too much to do for some seconds': status(429, '2'),
  'not being ready': status(503),
  'a proxy that does not reach it': status(502),
  'a connection that is cut': { kind: 'cut' },
  'a reply that breaks off': { kind: 'half' },
  'a stall': { kind: 'stall' },
};

describe.each(Object.entries(specifications))('%s', (_name, { answer, open, waits, countsBusy, attempts }) => {
  async function started(port = 0): Promise<AnsweringStub> {
    const stub = await new AnsweringStub(answer).listen(port);
    closers.push(() => stub.close());
    return stub;
  }

  function clientOf(...stubs: readonly { readonly url: string }[]): Client & { readonly said: readonly string[] } {
    const said: string[] = [];
    const client = open(
      stubs.map(({ url }) => url),
      (found) => said.push(found),
    );
    closers.push(() => client.close());
    return { ...client, said };
  }

  it.each(Object.entries(passing))('is asked again after %s', async (_fault, fault) => {
    const stub = await started();
    stub.fault = () => (stub.posts === 1 ? fault : null);
    expect(await clientOf(stub).ask(within(600))).toBe('answered');
    expect(stub.posts).toBe(2);
  });

  it('is given up after a number of failures, which is reported', async () => {
    const stub = await started();
    stub.fault = () => status(500);
    expect(await clientOf(stub).ask(within(6000))).toContain('as the test says');
    expect(stub.posts).toBe(attempts);
  });

  it('is not asked again what it refuses', async () => {
    const stub = await started();
    stub.fault = () => status(400);
    expect(await clientOf(stub).ask(within(600))).toContain('as the test says');
    expect(stub.posts).toBe(1);
  });

  it('may have too much to do more often than it may fail, unless that counts as a failure', async () => {
    const stub = await started();
    stub.fault = () => (stub.posts <= attempts + 1 ? status(429, '1') : null);
    const said = await clientOf(stub).ask(within(600));
    if (countsBusy) expect(said).toContain('as the test says');
    else expect(said).toBe('answered');
    expect(stub.posts).toBe(countsBusy ? attempts : attempts + 2);
  });

  it('is waited for while it is unreachable, and that is reported, if a run cannot do without it', async () => {
    const gone = await started();
    const { port } = gone;
    await gone.close();
    const client = clientOf(gone);
    const asked = client.ask(within(600));
    if (!waits) {
      expect(await asked).toContain('ECONNREFUSED');
      return;
    }
    while (client.said.length === 0) await new Promise((resolve) => setTimeout(resolve, 5));
    expect(client.said[0]).toContain('ECONNREFUSED');
    await started(port);
    expect(await asked).toBe('answered');
  });

  it('does not keep its client beyond the time, and says what was found before that', async () => {
    const stub = await started();
    stub.fault = () => status(503);
    expect(await clientOf(stub).ask(within(20))).toContain('as the test says');
  });
});
