/** Checks whether reward servers are ready, and whether they agree on what they score with. */
import { untilReady } from '../../../balance/readiness.js';
import { ConfigError, EndpointError } from '../../../core/errors.js';
import type { Clock } from '../../../core/clock.js';
import { Deadline } from '../../../core/deadline.js';
import type { HttpPool } from '../../../http/pool.js';
import { causeOf } from '../../../http/request.js';
import type { HealthReply } from '../wire.js';
import type { Protocol } from './protocol.js';
import type { Weights } from './recorded.js';

export interface CheckOptions {
  readonly http: HttpPool;
  readonly protocol: Protocol;
  readonly headers: Readonly<Record<string, string>>;
  /** The terms that the servers have to hold. */
  readonly weights: Weights | null;
  /** Whether the judge behind a server has to answer as well. */
  readonly judge: boolean;
  readonly maxWaitMs: number;
  readonly clock: Clock;
  readonly signal?: AbortSignal;
}

const lookEveryMs = 1_000;
const lookTimeoutMs = 10_000;

/** `final`: waiting does not help. */
type RewardServerCheck =
  | { readonly ready: true; readonly url: string; readonly health: HealthReply }
  | { readonly ready: false; readonly url: string; readonly found: string; readonly final: boolean };

/** Returns the identity of what the servers score with, once one of them is ready. Raises as described at `RewardPool.ready`. */
export async function checkRewardServers(urls: readonly string[], options: CheckOptions): Promise<string> {
  const { clock, maxWaitMs, signal } = options;
  const look = async () => {
    const looks = await Promise.all(urls.map((url) => checkRewardServer(url, options)));
    const ready = looks.filter((look) => look.ready);
    if (ready.length > 0) return { ready };
    const failed = looks.filter((look) => !look.ready);
    const error = new EndpointError(`no reward server is ready: ${failed.map(({ found }) => found).join('; ')}`, {
      where: urls.join(', '),
      next: 'Start one with `editrl reward-server`, check address and token, then run the same command again.',
    });
    return { error, final: failed.every(({ final }) => final) };
  };
  return agreed(await untilReady(look, { clock, maxWaitMs, signal, pauseMs: lookEveryMs }), options.weights);
}

async function checkRewardServer(
  url: string,
  { http, protocol, headers, judge, clock, signal }: CheckOptions,
): Promise<RewardServerCheck> {
  const deadline = new Deadline(clock, lookTimeoutMs, signal);
  const no = (found: string, final: boolean): RewardServerCheck => ({
    ready: false,
    url,
    found: `${url}: ${found}`,
    final,
  });
  try {
    const found = await protocol.look({ http, url, headers, judge, signal: deadline.signal });
    return 'health' in found ? { ready: true, url, health: found.health } : no(found.found, found.final);
  } catch (error) {
    if (deadline.over) return no('no answer in time', false);
    return no(causeOf(error), false);
  } finally {
    deadline.dispose();
  }
}

function agreed(ready: readonly Extract<RewardServerCheck, { ready: true }>[], weights: Weights | null): string {
  const [first, ...others] = ready;
  const other = others.find(({ health }) => health.reward !== first.health.reward);
  if (other !== undefined) {
    throw new ConfigError(
      `two servers of one pool score with different settings: ${describe(first.health)} and ${describe(other.health)}`,
      { where: `${first.url}, ${other.url}`, next: 'Start all servers of a pool with the same settings.' },
    );
  }
  const held = (first.health.terms ?? []).map(({ name }) => name);
  const missing = Object.keys(weights ?? {}).find((name) => !held.includes(name));
  if (missing !== undefined) {
    throw new ConfigError(`the reward servers hold no term '${missing}'; they hold: ${held.join(', ')}`, {
      where: first.url,
      next: 'Weigh terms that they hold, or start them with this one.',
    });
  }
  return first.health.reward ?? '';
}

function describe({ terms = [], reward = '' }: HealthReply): string {
  return `${terms.map(({ name, weight }) => `${weight} ${name}`).join(' + ')} (${reward.slice(0, 12)})`;
}
