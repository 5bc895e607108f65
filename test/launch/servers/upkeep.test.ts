import { describe, expect, it } from 'vitest';
import { ServerEndedError, type EndpointError } from '../../../src/core/errors.js';
import { Upkeep } from '../../../src/launch/servers/upkeep.js';
import { sleep } from '../../../src/core/clock.js';
import { ManualClock } from '../../core/manual_clock.js';

/** A server that is kept up; `outcomes` are what its restarts come to, one after another, null for the rest; each takes `restartMs`. */
function keep(outcomes: (string | null)[] = [], restartMs = 0, endsItsUsers = false) {
  const clock = new ManualClock();
  const restarts: number[] = [];
  const said: [string, boolean][] = [];
  const events: string[] = [];
  const upkeep = new Upkeep({
    name: 'the judge',
    where: 'reward.endpoint',
    endsItsUsers,
    clock,
    say: (line, heard) => said.push([line, heard]),
    next: 'Look at it.',
    giveUp: () => events.push('given up'),
    restart: async () => {
      restarts.push(clock.now());
      if (restartMs > 0) await sleep(clock, restartMs);
      return outcomes.shift() ?? null;
    },
  });
  const use = (over = new AbortController()) => {
    const notices: string[] = [];
    const lost: EndpointError[] = [];
    upkeep.use({
      notice: (line) => notices.push(line),
      lost: (error) => {
        events.push('lost');
        lost.push(error);
      },
      over: over.signal,
    });
    return { notices, lost, over };
  };
  return { clock, restarts, said, events, upkeep, use };
}

const killed = 'was ended by SIGKILL';

describe('a server that ends', () => {
  it('is started again after a quarter of a second, and its users are told so in one line', async () => {
    const { clock, restarts, said, upkeep, use } = keep();
    const user = use();
    await clock.pass(1000);
    upkeep.ended(killed);
    const line = 'the judge was ended by SIGKILL; it is started again in 0.25 s (1 of 5)';
    expect(user.notices).toEqual([line]);
    expect(said).toEqual([[line, true]]);
    await clock.pass(249);
    expect(restarts).toEqual([]);
    await clock.pass(1);
    expect(restarts).toEqual([1250]);
  });

  it('is spoken of to nobody but the terminal where nobody asks it', () => {
    const { said, upkeep, use } = keep();
    const { notices, over } = use();
    over.abort();
    const { notices: late } = use(over);
    upkeep.ended(killed);
    expect(said).toMatchObject([[expect.stringContaining('the judge was ended'), false]]);
    expect([notices, late]).toEqual([[], []]);
  });

  it('is left alone longer and longer, and given up after five restarts without a steady minute', async () => {
    const { clock, restarts, said, events, upkeep, use } = keep([null, 'ended with exit code 7']);
    const user = use();
    upkeep.ended(killed);
    await clock.pass(250);
    upkeep.ended(killed);
    // The second restart fails by itself, and so the third follows.
    await clock.pass(500 + 1000);
    await clock.pass(59_999);
    upkeep.ended(killed);
    await clock.pass(2000);
    upkeep.ended(killed);
    await clock.pass(4000);
    expect(restarts).toEqual([250, 750, 1750, 63_749, 67_749]);
    expect(user.lost).toEqual([]);
    upkeep.ended('ended with exit code 7');
    expect(events).toEqual(['given up', 'lost']);
    expect(user.lost[0].toText()).toBe(
      'reward.endpoint: the judge does not stay up: it was started again 5 times, and the last time it ended with exit code 7\n  Look at it.',
    );
    expect(said.at(-1)).toEqual([user.lost[0].toText(), true]);
    await clock.pass(1e6);
    expect(restarts).toHaveLength(5);
  });

  it('is given up as well when every restart takes minutes to fail', async () => {
    const { clock, upkeep, use } = keep(Array<string>(10).fill('was not up within 120 s'), 120_000);
    const { lost } = use();
    upkeep.ended(killed);
    await clock.pass(5 * 120_000 + 7750);
    expect(lost.map(({ message }) => message)).toEqual([
      expect.stringContaining('the last time it was not up within 120 s'),
    ]);
  });

  it('counts from the first restart again after a steady minute', async () => {
    const { clock, said, upkeep, use } = keep();
    const { lost } = use();
    for (let death = 0; death < 20; death++) {
      upkeep.ended(killed);
      await clock.pass(250);
      await clock.pass(60_000);
    }
    expect(lost).toEqual([]);
    expect(new Set(said.map(([line]) => line)).size).toBe(1);
  });

  it('is given up at once where its users have lost what they had there', async () => {
    const { clock, restarts, events, upkeep, use } = keep([], 0, true);
    const { lost } = use();
    upkeep.ended(killed);
    await clock.pass(1e6);
    expect(restarts).toEqual([]);
    expect(events).toEqual(['given up', 'lost']);
    expect(lost[0]).toBeInstanceOf(ServerEndedError);
    expect(lost[0].toText()).toBe(
      'reward.endpoint: the judge that was started with the run was ended by SIGKILL\n  Look at it.\n  Run the same command again to continue from the last checkpoint; launch.max_restarts does so by itself.',
    );
  });

  it('is not started again once it is closed', async () => {
    const { clock, restarts, said, upkeep } = keep();
    upkeep.ended(killed);
    upkeep.close();
    await clock.pass(1e6);
    upkeep.ended(killed);
    expect(restarts).toEqual([]);
    expect(said).toHaveLength(1);
  });
});
