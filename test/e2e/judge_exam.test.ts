import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { JUDGE_MODEL, startJudge, type RunningJudge } from '../../src/rewards/rule_judge/server.js';
import { Place, until } from './editrl.js';

const CASES = 21;
/** Seven answers twice and five tricks, two questions each. */
const QUESTIONS = CASES * 19 * 2;

let place: Place;
const judges: RunningJudge[] = [];
beforeEach(() => {
  place = Place.make();
});
afterEach(async () => {
  place.remove();
  await Promise.all(judges.splice(0).map((judge) => judge.close()));
});

async function judge(latencyMs = 0): Promise<RunningJudge> {
  // Noise that follows from what is asked: a question that was left out or asked in another way would show.
  const biases = { noise: 0.1 };
  const started = await startJudge({ port: 0, host: '127.0.0.1', latencyMs, biases });
  judges.push(started);
  return started;
}

const exam = ({ url }: RunningJudge, out: string): string[] => [
  ...['judge', 'exam', '--endpoint', url, '--model', JUDGE_MODEL, '--cases', String(CASES)],
  ...['--out', out, '--json'],
];

type Fields = Readonly<Record<string, unknown>>;

/** The fields but those of these names. */
function without(fields: Fields, ...names: readonly string[]): Fields {
  return Object.fromEntries(Object.entries(fields).filter(([name]) => !names.includes(name)));
}

/** What an exam found, without what depends on when and where it was made. */
function found(json: string): Fields {
  const record = JSON.parse(json) as Readonly<Record<'reward' | 'judgements' | 'costs', Fields>>;
  return {
    ...without(record, 'folder', 'made_at'),
    reward: without(record.reward, 'endpoint'),
    judgements: without(record.judgements, 'mean_seconds'),
    costs: without(record.costs, 'seconds'),
  };
}

/** Keys of the judgements in an exam's records. */
function recorded(out: string): string[] {
  const lines = readFileSync(join(out, 'judgements.jsonl'), 'utf8').split('\n').slice(0, -1);
  return lines.map((line) => (JSON.parse(line) as { readonly key: string }).key);
}

describe('an exam', () => {
  it('that is killed while it asks continues by the same command, asks nothing again, and comes to the same', async () => {
    const whole = await place.call(exam(await judge(), join(place.dir, 'whole')));
    expect(whole.code).toBe(0);

    const out = join(place.dir, 'killed');
    // Slow enough to be killed with questions under way.
    const slow = await judge(100);
    const live = place.start(exam(slow, out));
    await until('a third is asked', () => !live.isAlive() || slow.stats().requests > QUESTIONS / 3);
    live.kill('SIGKILL');
    expect(await live.ended).toMatchObject({ code: null, signal: 'SIGKILL' });
    const kept = recorded(out);
    expect(kept.length).toBeGreaterThan(QUESTIONS / 6);
    expect(kept.length).toBeLessThan(QUESTIONS);
    expect([existsSync(join(out, 'exam.json')), existsSync(join(out, 'lock'))]).toEqual([false, true]);

    // Another judge counts what is asked from here on: what the first one still had under way is none of it.
    const rest = await judge();
    const resumed = await place.call(exam(rest, out));
    expect(resumed).toMatchObject({ code: 0, err: '' });
    // An exam begins with one small question, by which it learns what the server takes.
    expect(rest.stats().requests).toBe(QUESTIONS - kept.length + 1);
    const keys = recorded(out);
    expect(keys.slice(0, kept.length)).toEqual(kept);
    expect([keys.length, new Set(keys).size]).toEqual([QUESTIONS, QUESTIONS]);
    expect(found(resumed.out)).toEqual(found(whole.out));
    expect(existsSync(join(out, 'lock'))).toBe(false);
  });
});
