/**
 * What judging costs: one stub judge with a fixed latency and a cap, in a process of its own, and the client in front of it, directly,
 * through the gateway, from several processes, and inside a run. `npm run bench -- judge` measures all of it; a part's name after it measures that
 * part: client, gateway, burst, iteration, faults [judgements]. `EDITRL_BENCH_ROUNDS` measures fewer times than three.
 */
import { UsageError } from '../../src/core/errors.js';
import { encodePng } from '../../src/core/image.js';
import { judgeUnderFaults, tallyText, type Trial } from './judge_faults.js';
import { measureIterations } from './judge_iteration.js';
import type { JudgeItem } from '../../src/rewards/score/types.js';
import { editedItems } from './judge_items.js';
import { cpuSecondsOf, startProcess, startStub, type Helper } from './judge_helpers.js';
import { scoreAll, type Scoring } from './judge_scoring.js';

const LATENCY_MS = 500;
const CAP = 64;
const IMAGES = 512;
const CALLS = 2 * IMAGES;
const LEAST_SHARE = 0.9;
const MOST_CLIENT_MS = 1.5;
const MOST_GATEWAY_MS = 1;
const CLIENTS = 4;
/** A gateway stands for a whole sweep; its first thousands of calls pay for compiling what the others run. */
const GATEWAY_WARM_UP = 3;
const ROUNDS = Number(process.env['EDITRL_BENCH_ROUNDS'] ?? 3);

const parts: Readonly<Record<string, () => Promise<void>>> = {
  client: benchClient,
  gateway: benchGateway,
  burst: benchBurst,
  iteration: measureIterations,
};

/** Prints every figure beside what it has to be. */
export async function benchJudge(): Promise<void> {
  const part = process.argv[3];
  if (part === 'faults') await benchFaults(Number(process.argv[4] ?? 10_000));
  else if (part === undefined) for (const run of Object.values(parts)) await run();
  else if (Object.hasOwn(parts, part)) await parts[part]();
  else throw new UsageError(`npm run bench -- judge takes one of: ${Object.keys(parts).join(', ')}, faults`);
}

const stubArgs = ['--scores', 'digest', '--latency', String(LATENCY_MS)];
/** What the cap allows, in seconds. */
const ideal = (CALLS * LATENCY_MS) / 1000 / CAP;

async function benchClient(): Promise<void> {
  const stub = await startStub([...stubArgs, '--max-concurrency', String(CAP)]);
  const items = editedItems(IMAGES);
  try {
    for (let round = 0; round <= ROUNDS; round++) {
      const encoding = await cpuOfEncoding(items);
      const scoring = await scoreAll(stub.url, items, CAP);
      // A process's first thousand calls pay for compiling what the others run.
      report(round === 0 ? 'directly, the first of this process' : 'directly', scoring);
      const each = ((scoring.cpuSeconds - encoding) / CALLS) * 1000;
      console.log(
        `  the client's CPU: ${each.toFixed(2)} ms a call beyond encoding (at most ${MOST_CLIENT_MS}); ${scoring.cpuSeconds.toFixed(2)} s, of them encoding ${encoding.toFixed(2)} s`,
      );
    }
    console.log(
      `  the judge saw at most ${(await stub.stats()).max_in_flight} at once, refused ${(await stub.stats()).refused}`,
    );
  } finally {
    await stub.close();
  }
}

/** The same images, encoded as the client encodes them: each once. */
async function cpuOfEncoding(items: readonly JudgeItem[]): Promise<number> {
  const images = new Set(items.flatMap(({ source, edited }) => [source, edited]));
  const cpu = process.cpuUsage();
  for (const image of images) {
    if (image !== null) Buffer.from(await encodePng(image)).toString('base64');
  }
  const { user, system } = process.cpuUsage(cpu);
  return (user + system) / 1e6;
}

async function benchGateway(): Promise<void> {
  const stub = await startStub([...stubArgs, '--max-concurrency', String(CAP)]);
  const gateway = await startGatewayProcess(stub.url);
  const items = editedItems(IMAGES);
  try {
    // In the first passes the gateway also finds out what its judge takes.
    for (let round = -GATEWAY_WARM_UP; round < ROUNDS; round++) {
      const direct = await scoreAll(stub.url, items, CAP);
      const before = cpuSecondsOf(gateway.pid);
      const through = await scoreAll(gateway.url, items, CAP);
      const own = cpuSecondsOf(gateway.pid) - before;
      report(round < 0 ? "through the gateway, one of its process's first passes" : 'through the gateway', through);
      const more = ((through.cpuSeconds + own - direct.cpuSeconds) / CALLS) * 1000;
      console.log(
        `  CPU through the gateway: ${more.toFixed(2)} ms a call more than directly (at most ${MOST_GATEWAY_MS}); the gateway's own ${((own / CALLS) * 1000).toFixed(2)} ms`,
      );
    }
    console.log(
      `  the judge saw at most ${(await stub.stats()).max_in_flight} at once, refused ${(await stub.stats()).refused}`,
    );
  } finally {
    await gateway.close();
    await stub.close();
  }
}

async function benchBurst(): Promise<void> {
  // Without a limit of its own, so that it sees whatever comes.
  const stub = await startStub(stubArgs);
  const gateway = await startGatewayProcess(stub.url);
  const clients: Helper[] = [];
  try {
    const count = IMAGES / CLIENTS;
    for (let c = 0; c < CLIENTS; c++) {
      clients.push(await startProcess('client', { url: gateway.url, first: c * count, count, concurrency: CAP }));
    }
    const start = performance.now();
    const done = await Promise.all(
      clients.map((client) => {
        client.say('go');
        return client.nextLine() as Promise<{ scored: number; of: number }>;
      }),
    );
    const seconds = (performance.now() - start) / 1000;
    const scored = done.reduce((sum, each) => sum + each.scored, 0);
    const { max_in_flight, requests } = await stub.stats();
    console.log(
      `a burst of ${CLIENTS} processes with ${CAP} questions each at once: ${scored} of ${IMAGES} images scored in ${seconds.toFixed(1)} s with ${requests} requests; the judge saw at most ${max_in_flight} at once (at most ${CAP})`,
    );
  } finally {
    for (const client of clients) await client.close();
    await gateway.close();
    await stub.close();
  }
}

async function benchFaults(judgements: number): Promise<void> {
  const spec = 'rate=0.3,down_s=0.2,latency_ms=200';
  const trial = { episodes: judgements / 2, episodesPerIteration: 256, seed: 1 };
  await faultTrial(spec, ['--faults', spec, '--faults-seed', '1'], trial);
  // Patient, since here nothing but a busy machine is late.
  await faultTrial('without faults', [], { ...trial, policy: { attemptTimeoutMs: 60_000 }, queryTimeoutMs: 300_000 });
}

async function faultTrial(name: string, args: readonly string[], trial: Omit<Trial, 'url'>): Promise<void> {
  const stub = await startStub(['--scores', 'digest', ...args]);
  try {
    const start = performance.now();
    const tally = await judgeUnderFaults({ ...trial, url: stub.url });
    console.log(`${name}: ${((performance.now() - start) / 1000).toFixed(0)} s`);
    console.log(tallyText(tally));
    const { requests, faults } = await stub.stats();
    const injected = Object.values(faults).reduce((sum, count) => sum + count, 0);
    const list = Object.entries(faults).map(([kind, count]) => `${kind} ${count}`);
    console.log(`  the judge got ${requests} requests and injected ${injected} faults: ${list.join(', ') || 'none'}`);
  } finally {
    await stub.close();
  }
}

function report(how: string, { outcomes, seconds }: Scoring): void {
  const scored = outcomes.filter(({ kind }) => kind === 'scored').length;
  console.log(
    `${CALLS} calls ${how}, ${LATENCY_MS} ms each, ${CAP} at once: ${scored} of ${IMAGES} images scored in ${seconds.toFixed(2)} s, ${((ideal / seconds) * 100).toFixed(0)}% of what the cap allows (at least ${LEAST_SHARE * 100}%)`,
  );
}

async function startGatewayProcess(upstream: string): Promise<Helper & { readonly url: string }> {
  const helper = await startProcess('gateway', { upstream, cap: CAP });
  const { url } = helper.ready as { url: string };
  return { ...helper, url };
}
