/**
 * Attacks on the gateway, the reward server and the rule judge with their defaults, each attack on its own servers, over loopback. During
 * every attack an innocent run sends requests at a steady pace. A server has to stay up with less than 1 GB resident, and the innocent run
 * has to keep 80% of its rate. `npm run attack -- [NAME]`; `EDITRL_BENCH_COMMAND` names another build's dist/src/cli/main.js.
 */
import { readFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { UsageError } from '../../src/core/errors.js';
import { attacks, type Attack, type Scene } from './attacks.js';
import type { Asks } from './process.js';
import { startHelper, type Helper } from './helpers.js';

const mostMb = 1000;
const leastShare = 0.8;
const quietS = 3;
const attackedS = 6;

const command = process.env['EDITRL_BENCH_COMMAND'] ?? fileURLToPath(new URL('../../src/cli/main.js', import.meta.url));
const roles = fileURLToPath(new URL('./process.js', import.meta.url));

async function attackAll(): Promise<void> {
  const only = process.argv[2];
  if (only !== undefined && !Object.hasOwn(attacks, only)) {
    throw new UsageError(`npm run attack -- takes one of: ${Object.keys(attacks).join(', ')}`);
  }
  let held = 0;
  const chosen = Object.entries(attacks).filter(([name]) => only === undefined || name === only);
  for (const [name, attack] of chosen) if (await tryAttack(name, attack)) held++;
  console.log(`${held} of ${chosen.length} attacks held off`);
  if (held < chosen.length) process.exitCode = 1;
}

interface Requested {
  readonly good: number;
  readonly other: Record<string, number>;
  readonly seconds: number;
}

async function tryAttack(name: string, attack: Attack): Promise<boolean> {
  const folder = await mkdtemp(join(tmpdir(), 'editrl-attack-'));
  const helpers: Helper[] = [];
  const start = async (file: string, args: readonly string[]): Promise<Helper> => {
    const helper = await startHelper(file, args);
    helpers.push(helper);
    return helper;
  };
  try {
    const upstreams: string[] = [];
    for (let i = 0; i < (attack.upstreams ?? 1); i++) {
      upstreams.push(((await start(roles, ['upstream'])).ready as { url: string }).url);
    }
    const args = [...attack.server(folder, upstreams), '--port', '0', '--json', '--exit-with-parent'];
    const server = await start(command, args);
    const { url } = server.ready as { url: string };
    // A gateway listens before its judges are ready, and would refuse every request until then.
    while (!(await fetch(new URL('/health', url))).ok) await new Promise((resolve) => setTimeout(resolve, 100));
    const { innocent: asks = 'gateway' } = attack;
    const innocent = asks === false ? null : await start(roles, ['innocent', innocentOptions(url, asks)]);
    const ask = async (seconds: number): Promise<Requested | null> => {
      innocent?.say(String(seconds));
      return ((await innocent?.nextLine()) as Requested | undefined) ?? null;
    };
    await ask(1);
    const quiet = await ask(quietS);
    const scene: Scene = { url, pid: server.pid };
    let mb = peakMb(scene.pid);
    const watch = setInterval(() => (mb = peakMb(scene.pid) ?? mb), 100);
    const [told, beside] = await Promise.all([attack.run(scene), ask(attackedS)]);
    clearInterval(watch);
    const up = peakMb(scene.pid) !== null || attack.ends === true;
    return report(name, { told, quiet, beside, mb, up });
  } finally {
    for (const helper of helpers.reverse()) await helper.close();
    await rm(folder, { recursive: true, force: true });
  }
}

function innocentOptions(url: string, asks: Asks): string {
  return JSON.stringify({ url, asks, atOnce: 4, perSecond: 40 });
}

interface Seen {
  readonly told: { readonly text: string; readonly held: boolean };
  readonly quiet: Requested | null;
  readonly beside: Requested | null;
  /** The server's peak resident memory in MB; null if it is not known. */
  readonly mb: number | null;
  /** Whether the server is alive, unless the attack ends it. */
  readonly up: boolean;
}

function report(name: string, { told, quiet, beside, mb, up }: Seen): boolean {
  const rate = (asked: Requested | null): number => (asked === null ? 1 : asked.good / asked.seconds);
  const share = rate(beside) / rate(quiet);
  const other = Object.entries(beside?.other ?? {}).map(([status, count]) => `, ${count} x ${status}`);
  const held = told.held && up && mb !== null && mb < mostMb && share >= leastShare;
  console.log(`${held ? 'held' : 'FELL'}  ${name}: ${told.text}`);
  const run =
    beside === null
      ? ''
      : `; innocent run ${rate(beside).toFixed(0)} of ${rate(quiet).toFixed(0)} a second (${(100 * share).toFixed(0)}%${other.join('')})`;
  console.log(`      ${up ? '' : 'the server is gone; '}at most ${mb?.toFixed(0) ?? '?'} MB resident${run}`);
  return held;
}

/** The peak resident memory of a process in MB (Linux: VmHWM); null for a process that ended. */
function peakMb(pid: number): number | null {
  try {
    const kb = /VmHWM:\s+(\d+) kB/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1];
    return kb === undefined ? null : Number(kb) / 1000;
  } catch {
    return null;
  }
}

await attackAll();
