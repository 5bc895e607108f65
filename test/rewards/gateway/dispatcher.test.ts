import { setMaxListeners } from 'node:events';
import { describe, expect, it, vi } from 'vitest';
import { Dispatcher, type DispatcherOptions, type Lease, type Turn } from '../../../src/rewards/gateway/dispatcher.js';
import type { HealthSign } from '../../../src/core/remote/member.js';
import { Upstream } from '../../../src/rewards/gateway/upstream.js';
import { ManualClock, settle } from '../../core/manual_clock.js';

const never = new AbortController().signal;
setMaxListeners(0, never);
const ready = { state: 'ready', maxModelLen: null, models: [{ id: 'm', root: null, maxModelLen: null }] } as const;

function world(caps: readonly number[], options: Partial<DispatcherOptions> = {}) {
  const clock = new ManualClock();
  const opened: string[] = [];
  const woken: string[] = [];
  const upstreams = caps.map(
    (cap, i) =>
      new Upstream(`http://u${i}/v1`, {
        clock,
        cap,
        breakerFailures: 3,
        check: () => Promise.reject(new Error('nobody watches')),
        onChange: ({ url, state }) => {
          if (state === 'open') opened.push(url);
          dispatcher.upstreamsChanged();
        },
        log: () => undefined,
      }),
  );
  for (const upstream of upstreams) vi.spyOn(upstream, 'wake').mockImplementation(() => woken.push(upstream.url));
  const dispatcher = new Dispatcher(clock, upstreams, {
    quota: null,
    maxQueued: 100,
    maxWaiting: 1000,
    ...options,
  });
  for (const upstream of upstreams) upstream.checked(ready);
  const order: string[] = [];
  const leases: Lease[] = [];
  const ask = (run: string, more: Partial<Parameters<Dispatcher['acquire']>[0]> = {}): Promise<Turn> =>
    dispatcher.acquire({ run, allowed: () => true, signal: never, ...more }).then((turn) => {
      order.push(turn.kind === 'lease' ? run : `${run}: ${turn.kind}`);
      if (turn.kind === 'lease') leases.push(turn.lease);
      return turn;
    });
  /** Ends the lease that is in flight for longest. */
  const endOne = async (): Promise<void> => {
    leases.shift()?.end({ load: 'carried', health: 'works' });
    await settle();
  };
  return { clock, dispatcher, upstreams, order, leases, ask, endOne, opened, woken };
}

async function leaseOf(turn: Promise<Turn>): Promise<Lease> {
  const got = await turn;
  if (got.kind !== 'lease') throw new Error(got.kind);
  return got.lease;
}

describe('whose turn it is', () => {
  it('is that of each run in turn, however many requests one of them has waiting', async () => {
    const { ask, order, endOne, dispatcher } = world([1]);
    for (let i = 0; i < 6; i++) void ask('a');
    for (let i = 0; i < 2; i++) void ask('b');
    void ask('c');
    await settle();
    for (let i = 0; i < 9; i++) await endOne();
    expect(order.join('')).toBe('aabcabaaa');
    expect([dispatcher.waiting, dispatcher.runs().size]).toEqual([0, 0]);
  });

  it('comes no sooner than the quota allows', async () => {
    const { ask, order, endOne, dispatcher } = world([10], { quota: 2 });
    for (let i = 0; i < 5; i++) void ask('a');
    void ask('b');
    await settle();
    expect(order.join('')).toBe('aab');
    expect(dispatcher.runs().get('a')).toEqual({ inFlight: 2, waiting: 3 });
    await endOne();
    expect(order.join('')).toBe('aaba');
  });

  it('never comes for more than the caps together, whatever ends and comes', async () => {
    const { ask, leases, upstreams, dispatcher } = world([3, 5]);
    let state = 7;
    const random = (): number => (state = (state * 1103515245 + 12345) % 2147483648) / 2147483648;
    for (let i = 0; i < 2000; i++) {
      if (random() < 0.6) void ask(`run${Math.floor(random() * 4)}`);
      else if (leases.length > 0) {
        const [lease] = leases.splice(Math.floor(random() * leases.length), 1);
        lease.end({ load: random() < 0.1 ? 'overloaded' : 'carried', health: 'works' });
      }
      await settle();
      for (const { limit } of upstreams) expect(limit.inFlight).toBeLessThanOrEqual(limit.cap);
      const room = upstreams.some(({ limit }) => limit.hasRoom);
      expect(room && dispatcher.waiting > 0).toBe(false);
    }
  });

  it('never comes where the queue is full, the caller left, or no upstream would do', async () => {
    const { ask, order, dispatcher } = world([1], { maxQueued: 2 });
    const leaving = new AbortController();
    void ask('a');
    void ask('a', { signal: leaving.signal });
    void ask('a');
    void ask('a');
    void ask('a', { again: true });
    void ask('a', { allowed: () => false });
    await settle();
    expect(order).toEqual(['a', 'a: queue_full', 'a: no_upstream']);
    leaving.abort();
    await settle();
    expect(order.at(-1)).toBe('a: given_up');
    expect(dispatcher.waiting).toBe(2);
  });
});

describe('where a request goes', () => {
  it('is the upstream with the smallest share of its limit in use', async () => {
    const { ask } = world([2, 4]);
    const urls = [];
    for (let i = 0; i < 6; i++) urls.push((await leaseOf(ask('a'))).upstream.url);
    expect(urls).toEqual([0, 1, 1, 0, 1, 1].map((i) => `http://u${i}/v1`));
  });

  it('is no upstream that others would do for while it is full', async () => {
    const { ask, upstreams, order } = world([1, 1]);
    await ask('a', { allowed: (upstream) => upstream === upstreams[0] });
    void ask('a', { allowed: (upstream) => upstream === upstreams[0] });
    expect((await leaseOf(ask('b'))).upstream).toBe(upstreams[1]);
    expect(order).toEqual(['a', 'b']);
  });
});

describe('the circuit', () => {
  /** How requests end, one after another. */
  const ends = async (
    { ask, leases }: ReturnType<typeof world>,
    health: HealthSign,
    requests: readonly unknown[],
  ): Promise<void> => {
    for (const request of requests) {
      await ask('a');
      leases.shift()?.end({ load: 'nothing', health, request, found: 'HTTP 503' });
    }
  };

  it('opens after so many requests in a row that failed, and then no one waits for that upstream', async () => {
    const made = world([1]);
    const { ask, leases, upstreams, opened, order } = made;
    await ends(made, 'fails', [1, 2]);
    await ends(made, 'works', [3]);
    await ends(made, 'fails', [4, 5, 5, 5]);
    expect([upstreams[0].state, opened]).toEqual(['ready', []]);
    await ask('a');
    void ask('b');
    await settle();
    leases.shift()?.end({ load: 'nothing', health: 'fails', request: 6, found: 'HTTP 503' });
    await settle();
    expect([upstreams[0].state, upstreams[0].found]).toEqual([
      'open',
      '3 requests in a row failed, the last one: HTTP 503',
    ]);
    expect(opened).toEqual(['http://u0/v1']);
    expect(order.at(-1)).toBe('b: no_upstream');
    upstreams[0].checked(ready);
    expect((await ask('c')).kind).toBe('lease');
  });

  it('is suspected, and serves on, where each of the requests may be at fault itself', async () => {
    const made = world([4]);
    await ends(made, 'unsure', [1, 2]);
    await ends(made, 'works', [3]);
    await ends(made, 'unsure', [4, 5, 5]);
    expect(made.woken).toEqual([]);
    await ends(made, 'unsure', [6]);
    expect([made.woken, made.upstreams[0].state]).toEqual([['http://u0/v1'], 'ready']);
    await ends(made, 'unsure', [7, 8, 9]);
    expect([made.woken.length, made.upstreams[0].state, made.opened]).toEqual([2, 'ready', []]);
  });
});

describe('stopping', () => {
  it('lets no one wait any more, and no one come', async () => {
    const { ask, order, dispatcher, endOne } = world([1]);
    for (const run of ['a', 'b']) void ask(run);
    await settle();
    dispatcher.stop();
    await settle();
    await endOne();
    void ask('c');
    await settle();
    expect(order).toEqual(['a', 'b: stopping', 'c: stopping']);
  });
});
