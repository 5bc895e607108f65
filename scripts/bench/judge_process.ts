/**
 * A process of the judge's benchmark: `node judge_process.js ROLE OPTIONS`, with the options as JSON. It prints one line of JSON when it is
 * ready or done, and ends when its standard input is closed.
 */
import { z } from 'zod';
import { InternalError } from '../../src/core/errors.js';
import type { JudgeItem } from '../../src/rewards/score/types.js';
import { startGateway } from '../../src/rewards/gateway/server.js';
import { JUDGE_MODEL } from '../../src/tiny/judge/server.js';
import { scoreAll } from './judge_scoring.js';
import { editedItems } from './judge_items.js';

/** Runs a gateway in front of a judge until it is told to end. */
async function gateway(options: unknown): Promise<void> {
  const { upstream, cap } = z.object({ upstream: z.string(), cap: z.number() }).parse(options);
  const running = await startGateway({ upstreams: [upstream], model: JUDGE_MODEL, port: 0, maxConcurrency: cap });
  await running.ready;
  say({ url: running.url, pid: process.pid });
  await untilInputEnds();
  await running.close();
}

/** Waits for a line, so that several processes begin together, then scores items and prints the outcomes. */
async function client(options: unknown): Promise<void> {
  const { url, first, count, concurrency } = z
    .object({ url: z.string(), first: z.number(), count: z.number(), concurrency: z.number() })
    .parse(options);
  const items: readonly JudgeItem[] = editedItems(count, first);
  say({ pid: process.pid });
  await new Promise((resolve) => process.stdin.once('data', resolve));
  const { outcomes } = await scoreAll(url, items, concurrency);
  say({ scored: outcomes.filter(({ kind }) => kind === 'scored').length, of: outcomes.length });
  process.stdin.destroy();
}

const roles: Readonly<Record<string, (options: unknown) => Promise<void>>> = { gateway, client };

function say(line: unknown): void {
  process.stdout.write(`${JSON.stringify(line)}\n`);
}

async function untilInputEnds(): Promise<void> {
  await new Promise((resolve) => {
    process.stdin.once('end', resolve);
    process.stdin.resume();
  });
}

const [role = '', options = '{}'] = process.argv.slice(2);
const play = Object.hasOwn(roles, role) ? roles[role] : undefined;
if (play === undefined) throw new InternalError(`the benchmark has no role '${role}'`);
await play(JSON.parse(options));
