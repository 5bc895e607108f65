/**
 * The processor time that an exam takes for a question, beyond sending it. A rule judge in its own process is asked an exam's questions, and then the same bodies as
 * the gateway sends them, in turns. Both times are of this process with all its threads; the judge's own is in neither. `npm run bench -- exam` asks about
 * the tiny world, `exam SIDE` about pairs of pictures of so many pixels a side, with noise as photographs have. `EDITRL_BENCH_ROUNDS` sets another number of
 * rounds than five.
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import pLimit from 'p-limit';
import { InternalError, UsageError } from '../../src/core/errors.js';
import { decodeImage, encodePngToSend, type RgbImage } from '../../src/core/image.js';
import { RandomStream } from '../../src/core/random.js';
import { createHttpPool } from '../../src/http/pool.js';
import { runExam } from '../../src/launch/reward/exam.js';
import { rewardFromFlags } from '../../src/launch/reward/flags.js';
import type { ExamSet } from '../../src/rewards/exam/cases.js';
import { openPairs } from '../../src/rewards/exam/pairs.js';
import type { ExamRecord } from '../../src/run/exams.js';
import { tinyExam } from '../../src/tiny/judge/exam_cases.js';
import { JUDGE_MODEL } from '../../src/tiny/judge/server.js';
import { startStub } from './judge_helpers.js';
import { median } from './short_run.js';

const CASES = 49;
const PAIRS = 10;
/** Required for the tiny world, in milliseconds a question. */
const MOST_MS = 5;
const ROUNDS = Number(process.env['EDITRL_BENCH_ROUNDS'] ?? 5);

/** Prints the milliseconds of each round, and their medians beside the required value. */
export async function benchExam(): Promise<void> {
  const side = process.argv[3] === undefined ? null : Number(process.argv[3]);
  if (side !== null && !(Number.isInteger(side) && side >= 28 && side <= 1024)) {
    throw new UsageError('npm run bench -- exam takes the pixels of a side, from 28 to 1024, or nothing');
  }
  // It cannot read photographs: scores that mean nothing will do.
  const judge = await startStub(side === null ? [] : ['--scores', 'digest']);
  const folder = mkdtempSync(join(tmpdir(), 'editrl-bench-exam-'));
  try {
    const set = side === null ? tinyExam(CASES) : await photographs(folder, side);
    await measure(judge.url, set);
  } finally {
    rmSync(folder, { recursive: true });
    await judge.close();
  }
}

async function measure(url: string, set: ExamSet): Promise<void> {
  const { bodies, concurrency } = await questionsOf(url, set);
  const pictures = await picturesOf(bodies);
  const about = `${set.length} cases of ${set.name}, ${bodies.length} questions, ${concurrency} at once`;
  console.log(`an exam of ${about}; CPU ms a question:`);
  const rounds: { readonly exam: number; readonly sent: number; readonly encoded: number }[] = [];
  const each = async (work: () => Promise<unknown>): Promise<number> => ((await cpuOf(work)) / bodies.length) * 1e3;
  for (let round = 0; round < ROUNDS; round++) {
    const exam = await each(() => examine(url, set));
    const sent = await each(() => sendAll(url, bodies, concurrency));
    const encoded = await each(() => encodeAll(pictures));
    rounds.push({ exam, sent, encoded });
    const [all, requests, png] = [exam, sent, encoded].map((value) => value.toFixed(2));
    console.log(`  the exam ${all}, its requests alone ${requests}, compressing its pictures alone ${png}`);
  }
  const exam = median(rounds.map((one) => one.exam));
  const more = median(rounds.map((one) => one.exam - one.sent));
  const rest = median(rounds.map((one) => one.exam - one.sent - one.encoded));
  console.log(
    `  medians: ${exam.toFixed(2)}; ${more.toFixed(2)} more than its requests (at most ${MOST_MS} in the tiny world), ${rest.toFixed(2)} without compressing its pictures`,
  );
}

/** Pairs of pictures with smooth shapes and noise of a few levels, in this folder. */
async function photographs(folder: string, side: number): Promise<ExamSet> {
  const lines: string[] = [];
  for (let pair = 0; pair < PAIRS; pair++) {
    const line: Record<string, string> = { instruction: `make it warmer by ${pair} levels` };
    for (const [at, role] of ['source', 'better', 'worse'].entries()) {
      line[role] = `${pair}_${role}.png`;
      writeFileSync(join(folder, line[role]), await encodePngToSend(photograph(side, pair, at)));
    }
    lines.push(JSON.stringify(line));
  }
  const file = join(folder, 'pairs.jsonl');
  writeFileSync(file, `${lines.join('\n')}\n`);
  return openPairs(file);
}

function photograph(side: number, pair: number, at: number): RgbImage {
  const random = new RandomStream('bench', 'exam', pair, at);
  const data = new Uint8Array(side * side * 3);
  for (let i = 0; i < data.length; i++) {
    const pixel = Math.floor(i / 3);
    const [x, y] = [(pixel % side) / side, Math.floor(pixel / side) / side];
    const shape = 60 * Math.sin(6 * x * ((i % 3) + 1) + pair) + 50 * Math.cos(y * (5 + at));
    data[i] = 128 + shape + random.integer(8);
  }
  return { width: side, height: side, data };
}

/** Makes the exam in an empty folder. */
async function examine(endpoint: string, set: ExamSet): Promise<ExamRecord> {
  const folder = mkdtempSync(join(tmpdir(), 'editrl-bench-exam-'));
  const { signal } = new AbortController();
  try {
    return await runExam({
      settings: settingsFor(endpoint),
      set,
      repeats: 2,
      folder,
      resolveRun: () => {
        throw new InternalError('VIEScore needs no model of another run');
      },
      onWaiting: () => undefined,
      onNote: () => undefined,
      judge: { notice: () => undefined, lost: () => undefined, over: signal },
      signal,
    });
  } finally {
    rmSync(folder, { recursive: true });
  }
}

function settingsFor(endpoint: string): ReturnType<typeof rewardFromFlags> {
  return rewardFromFlags({ terms: ['viescore'], ocrWeight: null, vlmWeight: null, endpoint, model: JUDGE_MODEL });
}

interface Questions {
  readonly bodies: readonly Buffer[];
  readonly concurrency: number;
}

/** The bodies of an exam's questions, caught on their way; in this first exam its code is compiled. */
async function questionsOf(judge: string, set: ExamSet): Promise<Questions> {
  const bodies: Buffer[] = [];
  const between = createServer((request, response) => {
    void (async () => {
      const chunks: Buffer[] = [];
      for await (const chunk of request) chunks.push(chunk as Buffer);
      const body = Buffer.concat(chunks);
      const posts = request.method === 'POST';
      if (posts) bodies.push(body);
      const url = judge.replace(/\/v1$/, request.url ?? '');
      const reply = await fetch(url, posts ? { method: 'POST', body: new Uint8Array(body) } : {});
      response.writeHead(reply.status, { 'content-type': 'application/json' }).end(await reply.text());
    })();
  });
  await new Promise<void>((resolve) => between.listen(0, '127.0.0.1', resolve));
  try {
    const url = `http://127.0.0.1:${(between.address() as AddressInfo).port}/v1`;
    const { count } = (await examine(url, set)).judgements;
    // The first ones ask what the judge takes.
    return { bodies: bodies.slice(-count), concurrency: settingsFor(url).concurrency };
  } finally {
    between.close();
    between.closeAllConnections();
  }
}

/** The different pictures in these bodies. */
async function picturesOf(bodies: readonly Buffer[]): Promise<RgbImage[]> {
  const texts = new Set(
    bodies.flatMap((body) => [...body.toString().matchAll(/data:image\/png;base64,([^"]+)/g)].map(([, text]) => text)),
  );
  return Promise.all([...texts].map((text) => decodeImage(Buffer.from(text, 'base64'), 'a question')));
}

async function encodeAll(pictures: readonly RgbImage[]): Promise<void> {
  for (const picture of pictures) Buffer.from(await encodePngToSend(picture)).toString('base64');
}

/** Sends bodies as the gateway does. */
async function sendAll(url: string, bodies: readonly Buffer[], concurrency: number): Promise<void> {
  const pool = createHttpPool({ connections: concurrency, secret: null });
  const slots = pLimit(concurrency);
  const headers = { 'content-type': 'application/json' };
  const send = async (body: Buffer): Promise<void> => {
    const request = { method: 'POST', headers, body, signal: null } as const;
    const { status } = await pool.exchange(`${url}/chat/completions`, request);
    if (status !== 200) throw new InternalError(`the judge answered with HTTP ${status}`);
  };
  try {
    await Promise.all(bodies.map((body) => slots(() => send(body))));
  } finally {
    await pool.close();
  }
}

/** Processor seconds of this process, all threads. */
async function cpuOf(work: () => Promise<unknown>): Promise<number> {
  const before = process.cpuUsage();
  await work();
  const { user, system } = process.cpuUsage(before);
  return (user + system) / 1e6;
}
