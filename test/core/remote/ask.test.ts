import { describe, expect, it } from 'vitest';
import { askMembers, type AskPolicy, type AttemptResult } from '../../../src/core/remote/remote.js';
import { Member, Members } from '../../../src/core/remote/member.js';
import { Deadline, sleep } from '../../../src/core/clock.js';
import { ManualClock, settle } from '../manual_clock.js';

const policy: AskPolicy = {
  maxAttempts: 4,
  attemptTimeoutMs: 1_000,
  backoffBaseMs: 100,
  backoffCapMs: 300,
  retryAfterCapMs: 5_000,
};

type Says = Omit<AttemptResult<string>, 'reply' | 'ending'>;
const done: Says = { next: 'done' };
const elsewhere: Says = { next: 'elsewhere' };
const healthOf = { done: 'works', elsewhere: 'fails', busy: 'works', second_best: 'works' } as const;

/** Servers by name that say what they are told to, the last thing for ever; the log has who was asked when. */
function world(says: Readonly<Record<string, readonly Says[]>>, failures = 2) {
  const clock = new ManualClock();
  const log: string[] = [];
  const members = new Members(
    Object.keys(says).map((name) => new Member(name, clock, { cap: 8, failures, doubts: failures, pauseMs: 10_000 })),
  );
  const asked = new Map<string, number>();
  /** What a question comes to, once time has passed. */
  const question = async (withinMs = 60_000, caller?: AbortSignal) => {
    const within = new Deadline(clock, withinMs, caller);
    let settled = false;
    const asking = askMembers({
      members,
      policy,
      clock,
      random: () => 1,
      within,
      ask: ({ url }: Member) => {
        const count = asked.get(url) ?? 0;
        asked.set(url, count + 1);
        log.push(`${url}@${clock.now()}`);
        const said = says[url][Math.min(count, says[url].length - 1)];
        return Promise.resolve({
          reply: `${url}${count}`,
          ending: { load: 'nothing', health: healthOf[said.next] },
          ...said,
        });
      },
    }).finally(() => (settled = true));
    for (await settle(); !settled; await settle()) await clock.pass((clock.next ?? 0) - clock.now());
    within.dispose();
    return asking;
  };
  return { clock, log, question, members };
}

describe('a question', () => {
  it('goes to each server once, and waits only when all were tried, twice as long each time', async () => {
    const { question, log } = world({ a: [elsewhere], b: [elsewhere, done] }, 9);
    expect(await question()).toEqual({ reply: 'b1', attempts: 4 });
    expect(log).toEqual(['a@0', 'b@0', 'a@100', 'b@100']);
    const alone = world({ a: [elsewhere] }, 9);
    await alone.question();
    expect(alone.log).toEqual(['a@0', 'a@100', 'a@300', 'a@600']);
  });

  it('lets a server that wants to be left alone rest, whoever asks, and goes to the others', async () => {
    const busy: Says = { next: 'busy', retryAfterMs: 2_000 };
    const { question, log, clock } = world({ a: [busy, done], b: [done] });
    expect(await question()).toEqual({ reply: 'b0', attempts: 2 });
    expect(await question()).toEqual({ reply: 'b1', attempts: 1 });
    expect(log.map((line) => line[0]).join('')).toBe('abb');
    const alone = world({ a: [{ next: 'busy', retryAfterMs: 1e9 }, busy, busy, busy, busy, done] });
    expect(await alone.question()).toEqual({ reply: 'a5', attempts: 6 });
    expect(alone.log.slice(0, 3)).toEqual(['a@0', 'a@5100', 'a@7300']);
    expect(clock.now()).toBeLessThan(2_000);
  });

  it('does not begin a pause that outlasts its time', async () => {
    const { question, clock } = world({ a: [{ next: 'elsewhere', retryAfterMs: 5_000 }] });
    expect(await question(4_000)).toEqual({ reply: 'a0', attempts: 1 });
    expect(clock.now()).toBeLessThan(1_000);
  });

  it('takes the second best reply when every other server was asked once', async () => {
    const { question, log } = world({ a: [{ next: 'second_best' }], b: [elsewhere], c: [{ next: 'busy' }, done] });
    expect(await question()).toEqual({ reply: 'c1', attempts: 4 });
    expect(log.map((line) => line[0]).join('')).toBe('abcc');
    const worse = world({ a: [{ next: 'second_best' }], b: [elsewhere] });
    expect(await worse.question()).toEqual({ reply: 'a0', attempts: 2 });
  });
});

describe('a server that fails', () => {
  it('is skipped alone, and asked again later', async () => {
    const { question, log, clock } = world({ a: [elsewhere, elsewhere, done], b: [done] });
    for (let i = 0; i < 6; i++) expect((await question()).reply).toMatch(/^b/);
    expect(log.filter((line) => line.startsWith('a'))).toHaveLength(2);
    await clock.pass(10_000);
    const replies = [await question(), await question()].map(({ reply }) => reply?.[0]);
    expect(replies.sort()).toEqual(['a', 'b']);
  });

  it('counts a question once, and keeps those that have begun', async () => {
    const { question, members } = world({ a: [elsewhere] });
    expect(await question()).toEqual({ reply: 'a3', attempts: 4 });
    expect(members.all[0].breaker.blocks).toBe(false);
    expect(await question()).toEqual({ reply: 'a7', attempts: 4 });
    expect(members.all[0].breaker.blocks).toBe(true);
    expect(await question()).toEqual({ reply: null, attempts: 0 });
  });
});

it('reports what was found before the request that the end of its time cut short', async () => {
  const clock = new ManualClock();
  const members = new Members([new Member('a', clock, { cap: 8, failures: 9, doubts: 9, pauseMs: 1_000 })]);
  const within = new Deadline(clock, 500);
  let asked = 0;
  const asking = askMembers<Member, string>({
    members,
    policy,
    clock,
    random: () => 1,
    within,
    ask: async (_member, own) => {
      const first = asked++ === 0;
      if (!first) await sleep(clock, 10_000, own.signal);
      const reply = first ? 'too much to do' : 'no answer in time';
      return { reply, next: 'elsewhere', ending: { load: 'nothing', health: 'fails' } };
    },
  });
  await settle();
  await clock.pass(100);
  await settle();
  await clock.pass(400);
  expect(await asking).toEqual({ reply: 'too much to do', attempts: 2 });
  within.dispose();
});

it('does not count a request that the caller canceled', async () => {
  const clock = new ManualClock();
  const member = new Member('a', clock, { cap: 1, failures: 1, doubts: 1, pauseMs: 1_000 });
  const caller = new AbortController();
  const within = new Deadline(clock, 1_000, caller.signal);
  const result = await askMembers({
    members: new Members([member]),
    policy,
    clock,
    random: () => 0,
    within,
    ask: () => {
      caller.abort();
      return Promise.resolve({ reply: 'late', next: 'elsewhere', ending: { load: 'overloaded', health: 'fails' } });
    },
  });
  expect([result, member.breaker.blocks, member.limit.inFlight]).toEqual([{ reply: 'late', attempts: 1 }, false, 0]);
});
