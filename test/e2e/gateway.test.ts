/** The gateway as a process in front of judges that are processes, asked by several clients at once. */
import { spawn } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { RandomStream } from '../../src/core/random.js';
import { encodePng } from '../../src/core/images/image.js';
import { builtInPrompts, withInstruction } from '../../src/rewards/judge/prompts.js';
import { drawScene } from '../../src/data/tiny/draw.js';
import { EDIT_KINDS, instructionOf } from '../../src/data/tiny/edits.js';
import { drawOfKind } from '../../src/data/tiny/generate.js';
import { DEFAULT_GEOMETRY } from '../../src/data/tiny/world.js';
import { scoresText, startStubJudge, stubModel } from '../rewards/judge/stub_judge.js';
import { Guardian } from '../../src/launch/processes/guardian.js';
import { freePort } from '../../src/launch/processes/supervise.js';
import { SharedGateways } from '../../src/launch/servers/gateway.js';
import { waitUntilReady } from '../../src/rewards/judge/readiness.js';
import { childrenOf, isRunning, Place, ROOT, sleep, until, type Live } from './editrl.js';

const model = 'editrl-rule-judge';
const clients = 4;

let dir: string;
beforeAll(() => {
  dir = mkdtempSync(join(tmpdir(), 'editrl-e2e-gateway-'));
});
afterAll(() => rmSync(dir, { recursive: true, force: true }));

const live: Live[] = [];
afterEach(async () => {
  for (const process of live.splice(0).reverse()) {
    process.kill('SIGKILL');
    await process.ended;
  }
});

function start(args: readonly string[]): Live {
  const started = Place.at(dir).start(args);
  live.push(started);
  return started;
}

/** The status and body of an address; null where nobody listens. */
async function look(url: string): Promise<{ readonly status: number; readonly text: string } | null> {
  try {
    const reply = await fetch(url);
    return { status: reply.status, text: await reply.text() };
  } catch {
    return null;
  }
}

async function untilText(what: string, url: string, holds: (text: string) => boolean): Promise<void> {
  let text = '';
  const deadline = Date.now() + 90_000;
  while (!holds(text)) {
    if (Date.now() > deadline) throw new Error(`waited in vain until ${what}: ${text}`);
    await sleep(10);
    text = (await look(url))?.text ?? '';
  }
}

const readyUpstreams = (text: string): number => text.split('"state":"ready"').length - 1;

/** Starts a gateway and waits until so many of its upstreams are ready. */
async function gateway(upstreams: readonly string[], ...flags: readonly string[]): Promise<string> {
  const port = await freePort();
  start(['serve', 'gateway', ...upstreams.flatMap((url) => ['--upstream', url]), '--port', String(port), ...flags]);
  const origin = `http://127.0.0.1:${port}`;
  await untilText('the judges are ready', `${origin}/health`, (text) => readyUpstreams(text) === upstreams.length);
  return origin;
}

/** What a client process does: asks everything in a file, so many at once, without trying again. */
const clientScript = `
import { readFileSync } from 'node:fs';
const { url, bodies, atOnce } = JSON.parse(readFileSync(process.argv[1], 'utf8'));
const answers = new Array(bodies.length);
let next = 0;
await Promise.all(Array.from({ length: atOnce }, async () => {
  while (next < bodies.length) {
    const i = next++;
    try {
      const reply = await fetch(url, { method: 'POST', headers: { 'content-type': 'application/json' }, body: bodies[i] });
      const json = await reply.json();
      answers[i] = [reply.status, json.choices?.[0]?.message?.content ?? JSON.stringify(json)];
    } catch (error) {
      answers[i] = [0, String(error.cause ?? error)];
    }
  }
}));
process.stdout.write(JSON.stringify(answers));
`;

type Answers = readonly (readonly [number, string])[];

/** Shares the questions out over client processes; the answers come in the order of the questions. */
async function askAll(url: string, bodies: readonly string[], atOnce: number): Promise<Answers> {
  const share = Math.ceil(bodies.length / clients);
  const parts = await Promise.all(
    Array.from({ length: clients }, async (_, client) => {
      const file = join(dir, `client-${client}.json`);
      writeFileSync(file, JSON.stringify({ url, bodies: bodies.slice(client * share, (client + 1) * share), atOnce }));
      const child = spawn(process.execPath, ['--input-type=module', '-e', clientScript, file], {
        stdio: ['ignore', 'pipe', 'inherit'],
      });
      let out = '';
      child.stdout.setEncoding('utf8').on('data', (text: string) => (out += text));
      await new Promise((resolve) => child.once('close', resolve));
      return JSON.parse(out) as Answers;
    }),
  );
  return parts.flat();
}

/** Questions about edits of the tiny world, each another one: done, not done, or another edit done to another scene. */
async function questions(count: number): Promise<string[]> {
  const url = async (image: Parameters<typeof encodePng>[0]): Promise<unknown> => ({
    type: 'image_url',
    image_url: { url: `data:image/png;base64,${Buffer.from(await encodePng(image)).toString('base64')}` },
  });
  return Promise.all(
    Array.from({ length: count }, async (_, i) => {
      const kind = EDIT_KINDS[i % EDIT_KINDS.length];
      const plan = drawOfKind(new RandomStream('gateway', kind, i), kind, DEFAULT_GEOMETRY);
      const text = withInstruction(builtInPrompts.sc, instructionOf(plan.edit, DEFAULT_GEOMETRY));
      const other = drawOfKind(new RandomStream('gateway', 'other', i), kind, DEFAULT_GEOMETRY);
      const edited = [plan.source, plan.expected, other.expected][i % 3];
      const images = [plan.source, edited].map((scene) => url(drawScene(scene)));
      return JSON.stringify({
        model,
        messages: [{ role: 'user', content: [{ type: 'text', text }, ...(await Promise.all(images))] }],
        temperature: 0,
        seed: 42,
        max_completion_tokens: 400,
      });
    }),
  );
}

describe('a burst from four client processes', () => {
  it('loses nothing when a judge dies on the way, gives every question its own answer, and finds the judge again', async () => {
    const ports = [await freePort(), await freePort()];
    const judges = ports.map((port) => start(['serve', 'judge', '--port', String(port)]));
    const urls = ports.map((port) => `http://127.0.0.1:${port}`);
    const origin = await gateway(urls, '--model', model, '--max-concurrency', '8');
    const bodies = await questions(400);
    const asking = askAll(`${origin}/v1/chat/completions`, bodies, 16);
    await untilText('a good part is answered', `${origin}/metrics`, (text) => {
      return Number(/requests_total\{path="[^"]*completions",status="200"\} (\d+)/.exec(text)?.[1] ?? 0) > 60;
    });
    judges[0].kill('SIGKILL');
    const answers = await asking;
    expect(answers.filter(([status]) => status !== 200)).toEqual([]);
    const direct = await askAll(`${urls[1]}/v1/chat/completions`, bodies, 4);
    expect(answers).toEqual(direct);
    expect(new Set(answers.map(([, text]) => text)).size).toBeGreaterThan(5);
    await untilText('the dead judge is noticed', `${origin}/health`, (text) => text.includes('"state":"open"'));
    start(['serve', 'judge', '--port', String(ports[0])]);
    await untilText('it is found again', `${origin}/health`, (text) => readyUpstreams(text) === 2);
  });

  it('never has more requests at a judge than the cap, and ends requests in progress when it is stopped', async () => {
    const stub = await startStubJudge(async () => {
      await sleep(20);
      return scoresText(7, 8);
    });
    try {
      const origin = await gateway([stub.url], '--model', stubModel, '--max-concurrency', '6');
      const content = [
        { type: 'text', text: 'Instruction: x' },
        ...(JSON.parse((await questions(1))[0]) as { messages: { content: unknown[] }[] }).messages[0].content.slice(1),
      ];
      const body = JSON.stringify({ model: stubModel, messages: [{ role: 'user', content }] });
      const asking = askAll(
        `${origin}/v1/chat/completions`,
        Array.from({ length: 240 }, () => body),
        32,
      );
      await until('many wait', () => stub.requests.length > 40);
      const [server] = live;
      server.kill('SIGTERM');
      const answers = await asking;
      const statuses = new Set(answers.map(([status]) => status));
      // What came before the signal was answered; what came after it was refused, or found nobody.
      expect([...statuses].every((status) => [200, 503, 0].includes(status))).toBe(true);
      expect(answers.filter(([status]) => status === 200)).toHaveLength(stub.requests.length - 1);
      expect(await server.ended).toMatchObject({ code: 0 });
      expect(stub.peak()).toBe(6);
    } finally {
      await stub.close();
    }
  });
});

describe('the gateway that a launcher starts', () => {
  it('stands before several judges, names the run, is started again when it dies, and ends with its launcher', async () => {
    const stubs = await Promise.all([1, 2].map(() => startStubJudge(() => scoresText(7, 8))));
    const said: string[] = [];
    const guardian = new Guardian();
    guardian.watch();
    const gateways = new SharedGateways({
      severalRuns: false,
      guardian,
      say: (line) => said.push(line),
      program: join(ROOT, 'dist/src/cli/main.js'),
    });
    const user = { notice: () => undefined, lost: () => undefined, over: new AbortController().signal };
    const reward = { concurrency: 8, timeout_s: 60, model: stubModel, model_alias: false } as const;
    const run = { runName: 'a_run', baseExpDir: dir, reward, user };
    try {
      expect(await gateways.addressFor(stubs[0].url, run)).toEqual({ endpoint: stubs[0].url, token: null });
      const before = new Set(childrenOf(process.pid));
      const list = stubs.map(({ url }) => url);
      const address = await gateways.addressFor(list, run);
      const [url, token] = [address.endpoint as string, address.token as string];
      expect(url).toMatch(/^http:\/\/127\.0\.0\.1:\d+\/run\/a_run\/v1$/);
      expect(await gateways.addressFor([...list].reverse(), { ...run, runName: 'b_run' })).toEqual({
        endpoint: url.replace('a_run', 'b_run'),
        token,
      });
      await waitUntilReady(url, stubModel, { maxWaitS: 60, apiKey: token });
      const asked = (): number => stubs.reduce((sum, { requests }) => sum + requests.length, 0);
      const before401 = asked();
      for (const authorization of ['', 'Bearer none', `Bearer ${'0'.repeat(64)}`]) {
        const body = JSON.stringify({ model: stubModel, messages: [{ role: 'user', content: 'Instruction: x' }] });
        const headers = { 'content-type': 'application/json', ...(authorization === '' ? {} : { authorization }) };
        const reply = await fetch(`${url}/chat/completions`, { method: 'POST', headers, body });
        expect(reply.status).toBe(401);
      }
      expect(asked()).toBe(before401);
      expect(stubs.flatMap(({ requests }) => requests).map(({ authorization }) => authorization)).not.toContain(
        `Bearer ${token}`,
      );
      const [gatewayPid] = childrenOf(process.pid).filter((pid) => !before.has(pid));
      expect(readFileSync(`/proc/${gatewayPid}/cmdline`, 'utf8')).not.toContain(token);
      process.kill(gatewayPid, 'SIGKILL');
      await until('it is noticed', () => said.some((line) => line.includes('restarting it')));
      await waitUntilReady(url, stubModel, { maxWaitS: 60, apiKey: token });
      const [again] = childrenOf(process.pid).filter((pid) => !before.has(pid));
      await gateways.close();
      expect(isRunning(again)).toBe(false);
      expect(readFileSync(join(dir, 'gateway.log'), 'utf8')).not.toContain(token);
    } finally {
      await gateways.close();
      guardian.close();
      await Promise.all(stubs.map(({ close }) => close()));
    }
  });
});
