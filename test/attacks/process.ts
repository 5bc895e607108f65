/**
 * A process of the attack benchmark: `node process.js ROLE OPTIONS`. It prints lines of JSON and ends when its standard input is closed.
 * `upstream`: a judge whose answers the attack determines. `innocent`: a run that sends requests at a steady pace and counts the replies.
 */
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { z } from 'zod';
import { InternalError } from '../../src/core/errors.js';
import { encodePng } from '../../src/core/images/image.js';

export const attackedModel = 'attacked-judge';
const ruleJudgeModel = 'editrl-rule-judge';

/** Words in a request that determine how the upstream of an attack answers. */
export const unfit = 'an unfit picture';
export const thinking = 'think for ever';
export const large = 'a large reply:';
export const swift = 'without a pause';

const latencyMs = 50;

async function upstream(): Promise<void> {
  const server = createServer((request, response) => {
    const pieces: Buffer[] = [];
    request.on('data', (piece: Buffer) => pieces.push(piece));
    request.on('error', () => undefined);
    request.on('end', () => {
      const body = Buffer.concat(pieces).toString('latin1');
      const answer = (status: number, reply: unknown): void => {
        setTimeout(
          () => response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(reply)),
          body.includes(swift) ? 0 : latencyMs,
        );
      };
      if (request.url?.endsWith('/models') === true) {
        response.writeHead(200, { 'content-type': 'application/json' });
        response.end(JSON.stringify({ object: 'list', data: [{ id: attackedModel, object: 'model' }] }));
        return;
      }
      const size = new RegExp(`${large}(\\d+)`).exec(body)?.[1];
      if (body.includes(unfit)) answer(500, { error: { message: 'image processor failed', code: 500 } });
      else if (body.includes(thinking)) {
        answer(200, completion({ content: null, reasoning_content: 'Let me see' }, 'length'));
      } else answer(200, completion({ content: size === undefined ? '{"score":[7,7]}' : 'x'.repeat(Number(size)) }));
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  say({ url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1` });
  await new Promise<void>((resolve) => process.stdin.once('end', resolve).resume());
  server.closeAllConnections();
  server.close();
}

function completion(message: Record<string, unknown>, finish = 'stop'): unknown {
  return {
    model: attackedModel,
    choices: [{ index: 0, message: { role: 'assistant', ...message }, finish_reason: finish }],
  };
}

/**
 * For each line, a number of seconds, sends requests for that long, `atOnce` at once and at most `perSecond` a second, and prints the number of
 * `good` replies, which are complete, and of `other` ones by their statuses.
 */
async function innocent(options: unknown): Promise<void> {
  const {
    url,
    asks: asksOf,
    atOnce,
    perSecond,
  } = z.object({ url: z.string(), asks: z.enum(asks), atOnce: z.number(), perSecond: z.number() }).parse(options);
  const question = questions[asksOf];
  say({});
  for await (const line of createInterface({ input: process.stdin })) {
    const until = performance.now() + Number(line) * 1000;
    const counts: Record<string, number> = {};
    const started = performance.now();
    let sent = 0;
    await Promise.all(
      Array.from({ length: atOnce }, async () => {
        while (performance.now() < until) {
          const due = started + (sent++ / perSecond) * 1000;
          await new Promise((resolve) => setTimeout(resolve, Math.max(0, due - performance.now())));
          const key = await ask(url, await question(sent));
          counts[key] = (counts[key] ?? 0) + 1;
        }
      }),
    );
    const { '200': good = 0, ...other } = counts;
    say({ good, other, seconds: (performance.now() - started) / 1000 });
  }
}

const asks = ['gateway', 'judge', 'reward'] as const;
/** The kind of server that an innocent run asks. */
export type Asks = (typeof asks)[number];

interface Question {
  readonly path: string;
  readonly body: unknown;
}

const picture = async (number: number): Promise<string> => {
  const png = await encodePng({ width: 64, height: 64, data: new Uint8Array(64 * 64 * 3).fill(number % 256) });
  return Buffer.from(png.buffer, png.byteOffset, png.length).toString('base64');
};

const questions: Readonly<Record<Asks, (number: number) => Promise<Question>>> = {
  gateway: async (number) => ({
    path: '/chat/completions',
    body: { model: attackedModel, messages: [{ role: 'user', content: `question ${number}` }] },
  }),
  judge: async (number) => {
    const url = `data:image/png;base64,${await picture(number)}`;
    const content = [
      { type: 'text', text: 'How good is it?' },
      { type: 'image_url', image_url: { url } },
    ];
    return { path: '/chat/completions', body: { model: ruleJudgeModel, messages: [{ role: 'user', content }] } };
  },
  reward: async (number) => ({ path: '/score', body: { prompt: `item ${number}`, image: await picture(number) } }),
};

async function ask(url: string, { path, body }: Question): Promise<string> {
  try {
    const reply = await fetch(`${url}${path}`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', 'x-run-name': 'innocent' },
      body: JSON.stringify(body),
      signal: AbortSignal.timeout(10_000),
    });
    await reply.text();
    return String(reply.status);
  } catch (error) {
    return error instanceof Error ? error.name : 'error';
  }
}

function say(line: unknown): void {
  process.stdout.write(`${JSON.stringify(line)}\n`);
}

const roles: Readonly<Record<string, (options: unknown) => Promise<void>>> = { upstream, innocent };

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const [role = '', options = '{}'] = process.argv.slice(2);
  const play = Object.hasOwn(roles, role) ? roles[role] : undefined;
  if (play === undefined) throw new InternalError(`the benchmark has no role '${role}'`);
  await play(JSON.parse(options));
}
