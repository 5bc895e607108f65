/**
 * The overhead of a training server's client: CPU time for a datum of 1,000 tokens, and the peak memory of a batch of 5
 * MB beyond its own arrays. The server is a separate process that reads the body and answers with log-probabilities.
 */
import { spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { once } from 'node:events';
import { setTimeout } from 'node:timers/promises';
import { createInterface } from 'node:readline';
import { Deadline, systemClock } from '../../src/core/clock.js';
import { InternalError } from '../../src/core/errors.js';
import { TinkerConnection } from '../../src/train/policies/tinker/connection.js';
import { TinkerSession, type Dialect } from '../../src/train/policies/tinker/session.js';
import { bytesOf, type Datum } from '../../src/train/policies/tinker/wire.js';
import { PromptChunks } from '../../src/train/policies/tinker/prompts.js';

const TOKENS = 1000;
const ANSWER = 200;
const BATCH_BYTES = 5_000_000;
const ROUNDS = 20;
const SERVER = fileURLToPath(new URL('./tinker_process.js', import.meta.url));
const MEGABYTE = 1e6;
/** The body is sent, and the server still computes. */
const SENDING_MS = 200;
const chunks = new PromptChunks(null);

/** `bench tinker`: each dialect in its own process, so that each has its own peak. */
export async function benchTinker(): Promise<void> {
  const [, , , only] = process.argv;
  if (only === 'proto' || only === 'json') return measure(only);
  for (const dialect of ['proto', 'json']) {
    const child = spawn(process.execPath, ['--expose-gc', process.argv[1], 'tinker', dialect], { stdio: 'inherit' });
    const [code] = (await once(child, 'exit')) as [number | null];
    if (code !== 0) throw new InternalError(`the bench of ${dialect} ended with ${code}`);
  }
}

async function measure(dialect: Dialect): Promise<void> {
  const server = spawn(process.execPath, [SERVER, dialect, String(TOKENS)], { stdio: ['pipe', 'pipe', 'inherit'] });
  try {
    const [url] = (await once(createInterface(server.stdout), 'line')) as [string];
    const connection = new TinkerConnection({ url, concurrency: 2, timeoutMs: 60_000, apiKey: undefined });
    const lora = { rank: 8, seed: 1 };
    const options = { connection, dialect, baseModel: 'base', lora, tags: ['bench'], version: '0.25.0' };
    const session = new TinkerSession(options);
    const within = new Deadline(systemClock, 600_000);
    await session.begin(null, within);
    const [one] = await datums(1);
    const count = Math.floor(BATCH_BYTES / bytesOf(one));
    // Code is compiled, connections are open, and buffers have their size.
    for (let round = 0; round < 5; round++) await session.train(await datums(20), 'importance_sampling', within);
    const sequences = sequencesOf(count);
    const before = process.cpuUsage();
    for (let round = 0; round < ROUNDS; round++) {
      await session.train(await made(sequences), 'importance_sampling', within);
    }
    const { user, system } = process.cpuUsage(before);
    const perDatum = (user + system) / 1000 / (ROUNDS * count);
    const batch = await made(sequences);
    const peak = await peakOf(() => session.train(batch, 'importance_sampling', within));
    const megabytes = (batch.reduce((sum, each) => sum + bytesOf(each), 0) / MEGABYTE).toFixed(2);
    console.log(
      `${dialect}: ${perDatum.toFixed(3)} ms of CPU a datum of ${TOKENS} tokens; a batch of ${count} datums, ${megabytes} MB: at most ${(peak / MEGABYTE).toFixed(2)} MB in use beyond its arrays while it is sent`,
    );
    within.dispose();
    await session.close(new Deadline(systemClock, 5000));
    await connection.close();
  } finally {
    server.stdin.end();
  }
}

/** The peak of additional memory in use, in bytes: objects, texts and buffers. */
async function peakOf(work: () => Promise<unknown>): Promise<number> {
  for (let times = 0; times < 5; times++) {
    used();
    await setTimeout(20);
  }
  const before = used();
  let peak = 0;
  const look = (): void => {
    peak = Math.max(peak, used() - before);
  };
  const looking = setInterval(look, 1);
  const done = work();
  look();
  await setTimeout(SENDING_MS);
  clearInterval(looking);
  await done;
  return peak;
}

function used(): number {
  if (globalThis.gc === undefined) throw new InternalError('the bench needs --expose-gc');
  globalThis.gc();
  const { heapUsed, arrayBuffers } = process.memoryUsage();
  return heapUsed + arrayBuffers;
}

type Sequence = Parameters<PromptChunks['data']>[0][number];

function sequencesOf(count: number): Sequence[] {
  return Array.from({ length: count }, (_, i) => ({
    prompt: Array.from({ length: TOKENS + 1 - ANSWER }, (_each, t) => (7 * t + i) % 1000),
    answer: Int32Array.from({ length: ANSWER }, (_each, t) => (t + i) % 1000),
  }));
}

const datums = (count: number): Promise<Datum[]> => made(sequencesOf(count));

function made(sequences: readonly Sequence[]): Promise<Datum[]> {
  return chunks.data(sequences, ({ answer }) => ({
    advantages: new Float32Array(answer.length).fill(0.25),
    logprobs: new Float32Array(answer.length).fill(-1.25),
    weights: new Float32Array(answer.length).fill(1),
  }));
}
