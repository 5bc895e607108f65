/** The attacks of `npm run attack --`. */
import { once } from 'node:events';
import { encodePng } from '../../src/core/images/image.js';
import { attackedModel, large, swift, thinking, unfit, type Asks } from './process.js';
import { addressOf, chatBody, counted, open, post, pour, replyOf, statusOf } from './wire.js';
import { cpuSecondsOf } from './helpers.js';

/** The server that an attack is aimed at. */
export interface Scene {
  /** The base URL that the server printed. */
  readonly url: string;
  readonly pid: number;
}

export interface Attack {
  /** The number of judges behind the server. */
  readonly upstreams?: number;
  /** The arguments of the command that starts the server. */
  readonly server: (folder: string, upstreams: readonly string[]) => readonly string[];
  /** Set if the attack tells the server to end. */
  readonly ends?: true;
  /** The kind of server that the innocent run asks, by default the gateway; false if there is no innocent run. */
  readonly innocent?: Asks | false;
  /** Attacks; returns a description of the outcome, and whether the server behaved correctly as far as the attacker can see. */
  readonly run: (scene: Scene) => Promise<{ readonly text: string; readonly held: boolean }>;
}

const gateway: Attack['server'] = (_, upstreams) => [
  'serve',
  'gateway',
  ...upstreams.flatMap((url) => ['--upstream', url]),
];
const rewardServer: Attack['server'] = () => ['serve', 'rewards', '--terms', 'jpeg_size'];
const ruleJudge: Attack['server'] = () => ['serve', 'judge'];

const chat = '/v1/chat/completions';
const mb = 1_000_000;

/** Sends requests with several concurrent senders, each one request after another; returns the statuses. */
async function fetchMany(
  url: string,
  {
    times,
    atOnce,
    body,
    headers,
  }: { times: number; atOnce: number; body: (i: number) => string; headers?: (i: number) => Record<string, string> },
): Promise<string[]> {
  const statuses: string[] = [];
  let next = 0;
  await Promise.all(
    Array.from({ length: atOnce }, async () => {
      for (let i = next++; i < times; i = next++) {
        try {
          const reply = await fetch(`${url}/chat/completions`, {
            method: 'POST',
            headers: { 'content-type': 'application/json', 'x-run-name': 'attacker', ...headers?.(i) },
            body: body(i),
            signal: AbortSignal.timeout(20_000),
          });
          await reply.arrayBuffer();
          statuses.push(String(reply.status));
        } catch (error) {
          statuses.push(error instanceof Error ? error.name : 'error');
        }
      }
    }),
  );
  return statuses;
}

/** Sends unfit requests, which every judge answers with 500. */
async function sendUnfit({ url }: Scene): ReturnType<Attack['run']> {
  const statuses = await fetchMany(url, { times: 120, atOnce: 64, body: (i) => chatBody(`${unfit} ${i}`) });
  return { text: `120 unfit requests: ${counted(statuses)}`, held: statuses.every((status) => status === '500') };
}

/** Bodies of this many bytes, just below the limit, with the most expensive content: tiny values, an image, text, non-ASCII characters. */
function costlyBodies(bytes: number): readonly Buffer[] {
  const around = (content: string, more = ''): Buffer =>
    Buffer.from(`{"model":"${attackedModel}","messages":[{"role":"user","content":${content}}]${more}}`);
  const value = '{"a":1},';
  const image = `"data:image/png;base64,${pngHead}${'A'.repeat(Math.floor(bytes / 4) * 4 - 4_000)}"`;
  return [
    around('"hi"', `,"x":[${value.repeat(bytes / value.length - 100)}0]`),
    around(`[{"type":"image_url","image_url":{"url":${image}}}]`),
    around(`"${'x'.repeat(bytes - 1_000)}"`),
    around(`"${'\u00e9'.repeat(bytes / 2 - 1_000)}"`),
  ];
}

/** The base64 of the first 24 bytes of a PNG of 64x64 pixels. */
const pngHead = 'iVBORw0KGgoAAAANSUhEUgAAAEAAAABA';

/** Four senders of large bodies, without a pause. */
async function sendBodies({ url }: Scene, bodies: readonly Buffer[], path = chat): ReturnType<Attack['run']> {
  const until = performance.now() + 6_000;
  const statuses: string[] = [];
  await Promise.all(
    Array.from({ length: 4 }, async (_, sender) => {
      for (let i = sender; performance.now() < until; i++) {
        const body = bodies[i % bodies.length];
        statuses.push(await statusOf(addressOf(url), post(path, body.length), body));
      }
    }),
  );
  const megabytes = (bodies[0].length / mb).toFixed(0);
  return {
    text: `four at once, bodies of ${megabytes} MB: ${counted(statuses)}`,
    held: statuses.every((status) => /^(?:200|400|404|413|429)$/.test(status)),
  };
}

/** Sends bodies without their ends. */
async function sendUnfinished({ url }: Scene): ReturnType<Attack['run']> {
  const piece = Buffer.alloc(mb, 'x');
  let sentMb = 0;
  const statuses = await Promise.all(
    Array.from({ length: 40 }, async () => {
      const socket = open(addressOf(url));
      // If a body made progress within a time window, the server checks it again only after the next window.
      const status = replyOf(socket, 60_000);
      socket.write(post(chat, 15 * mb));
      for (let i = 0; i < 14 && !socket.destroyed && socket.writable; i++) {
        await pour(socket, piece, 1);
        sentMb++;
      }
      return status;
    }),
  );
  const image = costlyBodies(15 * mb)[1];
  const after = await statusOf(addressOf(url), post(chat, image.length), image);
  return {
    text: `40 uploads of 15 MB without their ends, ${sentMb} MB sent: ${counted(statuses)}; a whole one then: ${after}`,
    held: after === '200' && statuses.every((status) => /^(?:408|429)$/.test(status)),
  };
}

/** Opens connections that send nothing. */
async function holdConnections({ url }: Scene): ReturnType<Attack['run']> {
  // The sockets must be read from, or they would not notice that the server closed them.
  const sockets = Array.from({ length: 3_000 }, () => open(addressOf(url)).resume());
  const kept = (): number => sockets.filter((socket) => !socket.closed).length;
  await pause(5_000);
  // On a busy machine the last connections may not be closed yet.
  let left = Infinity;
  for (let looks = 0, same = 0; same < 5 && looks < 30; looks++) {
    same = left === kept() ? same + 1 : 0;
    left = kept();
    await pause(1_000);
  }
  for (const socket of sockets) socket.destroy();
  return { text: `3,000 silent connections: ${left} were kept`, held: left <= 1_024 };
}

/** A GIF of one pixel. */
const pixel = 'data:image/gif;base64,R0lGODlhAQABAAAAACwAAAAAAQABAAA=';

async function sendManyImages({ url, pid }: Scene): ReturnType<Attack['run']> {
  const part = { type: 'image_url', image_url: { url: pixel } };
  const body = JSON.stringify({
    model: attackedModel,
    messages: [{ role: 'user', content: Array.from({ length: 100_000 }, () => part) }],
  });
  const { host, port } = addressOf(url);
  const socket = open({ host, port });
  const cpu = cpuSecondsOf(pid);
  socket.write(post(chat, body.length));
  await pour(socket, Buffer.from(body), 1);
  await pause(2_000);
  socket.destroy();
  await pause(4_000);
  const used = cpuSecondsOf(pid) - cpu;
  return { text: `100,000 tiny images, and gone: ${used.toFixed(1)} s of CPU within 6 s`, held: used < 3 };
}

/**
 * Twenty senders that send a request as soon as the last one is answered, to judges that answer at once, so that the cost of the gateway decides.
 * Whether the requests succeed (`words`: '') or always fail (`unfit`), the innocent run beside them should keep the same share.
 */
function sendLanes(words: string): Attack['run'] {
  return async ({ url, pid }) => {
    const until = performance.now() + 6_000;
    const [cpu, own] = [cpuSecondsOf(pid), cpuSecondsOf(process.pid)];
    const statuses: string[] = [];
    await Promise.all(
      Array.from({ length: 20 }, async (_, lane) => {
        for (let i = 0; performance.now() < until; i++) {
          statuses.push(
            ...(await fetchMany(url, { times: 1, atOnce: 1, body: () => chatBody(`${swift} ${words} ${lane} ${i}`) })),
          );
        }
      }),
    );
    const used = cpuSecondsOf(pid) - cpu;
    const ms = ((1000 * used) / statuses.length).toFixed(2);
    const sent = `${used.toFixed(1)} s of CPU in the gateway, ${ms} ms a request, ${(cpuSecondsOf(process.pid) - own).toFixed(1)} s in the senders`;
    return { text: `20 lanes for 6 s: ${counted(statuses)}; ${sent}`, held: true };
  };
}

/** Sends more concurrent requests than there is room for, each with a different run name. */
async function sendFreshNames({ url }: Scene): ReturnType<Attack['run']> {
  const until = performance.now() + 6_000;
  const statuses: string[] = [];
  await Promise.all(
    Array.from({ length: 256 }, async (_, sender) => {
      for (let i = 0; performance.now() < until; i++) {
        statuses.push(
          ...(await fetchMany(url, {
            times: 1,
            atOnce: 1,
            body: () => chatBody(`from ${sender}, ${i}`),
            headers: () => ({ 'x-run-name': `fresh-${sender}-${i}` }),
          })),
        );
      }
    }),
  );
  return {
    text: `256 at once, a name each: ${counted(statuses)}`,
    held: statuses.every((status) => status === '200' || status === '429'),
  };
}

async function askAsBrowser({ url }: Scene): ReturnType<Attack['run']> {
  const address = addressOf(url);
  const body = chatBody('hello');
  const from = (headers: Record<string, string>): Promise<string> =>
    statusOf(address, post(chat, body.length, headers), body);
  const statuses = {
    'Host: evil.example': await from({ host: `evil.example:${address.port}` }),
    'Origin: http://evil.example': await from({ origin: 'http://evil.example' }),
    'GET //': await statusOf(address, 'GET // HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n'),
    'GET /v1/models, Host: evil.example': await statusOf(
      address,
      `GET /v1/models HTTP/1.1\r\nhost: evil.example\r\n\r\n`,
    ),
  };
  const text = Object.entries(statuses).map(([what, status]) => `${what} ${status}`);
  return { text: text.join('; '), held: Object.values(statuses).every((status) => /^40[0345]$|^421$/.test(status)) };
}

/** Clients that request something large and do not read it while the server is told to end. */
async function neverRead({ url, pid }: Scene): ReturnType<Attack['run']> {
  const body = chatBody(`${large}15000000`);
  const sockets = Array.from({ length: 10 }, () => {
    const socket = open(addressOf(url));
    socket.pause();
    socket.write(post(chat, body.length));
    socket.write(body);
    return socket;
  });
  await pause(3_000);
  process.kill(pid, 'SIGTERM');
  const started = performance.now();
  // A reply may stay unread for a minute.
  const mostS = 75;
  while (isAlive(pid) && performance.now() - started < mostS * 1000) await pause(200);
  const seconds = (performance.now() - started) / 1000;
  const held = !isAlive(pid);
  for (const socket of sockets) socket.destroy();
  return {
    text: `ten that do not read, SIGTERM: ${held ? `ended after ${seconds.toFixed(0)} s` : `alive after ${mostS} s`}`,
    held,
  };
}

async function askThinking({ url }: Scene): ReturnType<Attack['run']> {
  const statuses = await fetchMany(url, { times: 60, atOnce: 2, body: (i) => chatBody(`${thinking} ${i}`) });
  return {
    text: `60 questions that a judge thinks about too long: ${counted(statuses)}`,
    held: statuses.every((s) => s === '200'),
  };
}

/** Streams small files whose images decode to far more. */
async function unpackImages({ url }: Scene): ReturnType<Attack['run']> {
  const side = 2_048;
  const plain = await encodePng({ width: side, height: side, data: new Uint8Array(side * side * 3).fill(7) });
  const image = Buffer.from(plain.buffer, plain.byteOffset, plain.length).toString('base64');
  const item = { prompt: 'x', image, source: image, truth: image };
  const body = Array.from({ length: 250 }, (_, i) => `${JSON.stringify({ key: String(i), ...item })}\n`).join('');
  const headers = { 'content-type': 'application/x-ndjson', connection: 'close' };
  const ends = await Promise.all(
    Array.from({ length: 4 }, async () => {
      const socket = open(addressOf(url)).resume();
      socket.write(post('/v1/score', body.length, headers));
      socket.write(body);
      const signal = AbortSignal.timeout(60_000);
      const [broke] = (await once(socket, 'close', { signal }).catch(() => [null])) as [boolean | null];
      socket.destroy();
      return broke === null ? 'unfinished' : broke ? 'reset' : 'ended';
    }),
  );
  return {
    text: `four streams of ${(body.length / mb).toFixed(0)} MB with 750 images of 4 megapixels: ${counted(ends)}`,
    held: !ends.includes('reset'),
  };
}

async function askHealthAsBrowser({ url }: Scene): ReturnType<Attack['run']> {
  const address = addressOf(url);
  const ask = (headers: string): Promise<string> =>
    statusOf(address, `GET /health?judge HTTP/1.1\r\n${headers}\r\n\r\n`);
  const origin = await ask('host: 127.0.0.1\r\norigin: http://evil.example');
  const host = await ask('host: evil.example');
  return {
    text: `/health?judge from a web page: ${origin}, by another host name: ${host}`,
    held: origin === '403' && /^403$|^421$/.test(host),
  };
}

export const attacks: Readonly<Record<string, Attack>> = {
  unfit: { server: gateway, upstreams: 2, run: sendUnfit },
  'unfit-one-judge': { server: gateway, run: sendUnfit },
  bodies: { server: gateway, run: (scene) => sendBodies(scene, costlyBodies(15.9 * mb)) },
  'larger-bodies': { server: gateway, run: (scene) => sendBodies(scene, costlyBodies(31 * mb)) },
  connections: { server: gateway, run: holdConnections },
  unfinished: { server: gateway, run: sendUnfinished },
  images: { server: gateway, run: sendManyImages },
  'failing-lanes': { server: gateway, upstreams: 2, run: sendLanes(unfit) },
  'answered-lanes': { server: gateway, upstreams: 2, run: sendLanes('') },
  names: { server: gateway, run: sendFreshNames },
  browser: { server: gateway, run: askAsBrowser },
  readers: { server: gateway, ends: true, innocent: false, run: neverRead },
  thinking: { server: gateway, upstreams: 2, run: askThinking },
  'reward-images': { server: rewardServer, innocent: 'reward', run: unpackImages },
  'reward-bodies': {
    server: rewardServer,
    innocent: 'reward',
    run: (scene) => sendBodies(scene, [Buffer.from(`{"prompt":"x","image":"${'A'.repeat(31 * mb)}"}`)], '/score'),
  },
  'reward-browser': { server: rewardServer, innocent: 'reward', run: askHealthAsBrowser },
  'judge-bodies': {
    server: ruleJudge,
    innocent: 'judge',
    run: (scene) => sendBodies(scene, costlyBodies(60 * mb)),
  },
};

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}

function pause(milliseconds: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, milliseconds));
}
