/**
 * The cost of judging, with a stub judge in its own process that has a fixed latency and a cap on concurrency. The client asks it directly,
 * through the gateway, from several processes, and inside a run. `npm run bench -- judge` measures all parts but the last; with a part's name it
 * measures one: client, gateway, burst, iteration, faults [judgements]. `EDITRL_BENCH_ROUNDS` sets another number of rounds than three.
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
/** A gateway serves a whole sweep, so its first thousands of calls, in which its code is compiled, are not counted. */
const GATEWAY_WARM_UP = 3;
const ROUNDS = Number(process.env['EDITRL_BENCH_ROUNDS'] ?? 3);

const parts: Readonly<Record<string, () => Promise<void>>> = {
  client: benchClient,
  gateway: benchGateway,
  burst: benchBurst,
  iteration: measureIterations,
};

/** Prints every figure beside its required value. */
export async function benchJudge(): Promise<void> {
  const part = process.argv[3];
  if (part === 'faults') await benchFaults(Number(process.argv[4] ?? 10_000));
  else if (part === undefined) for (const run of Object.values(parts)) await run();
  else if (Object.hasOwn(parts, part)) await parts[part]();
  else throw new UsageError(`npm run bench -- judge takes one of: ${Object.keys(parts).join(', ')}, faults`);
}

const stubArgs = ['--scores', 'digest', '--latency', String(LATENCY_MS)];
/** The shortest time that the cap allows, in seconds. */
const ideal = (CALLS * LATENCY_MS) / 1000 / CAP;

async function benchClient(): Promise<void> {
  const stub = await startStub([...stubArgs, '--max-concurrency', String(CAP)]);
  const items = editedItems(IMAGES);
  try {
    for (let round = 0; round <= ROUNDS; round++) {
      const encoding = await cpuOfEncoding(items);
      const scoring = await scoreAll(stub.url, items, CAP);
      // During a process's first thousand calls its code is compiled.
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

/** CPU seconds of encoding the same images as the client does, each once. */
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
    // In the first passes the gateway also measures how many requests its judge accepts at once.
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
  // The stub has no limit, so that it sees all requests that arrive.
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
  // Long timeouts, since only a busy machine causes delays here.
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
