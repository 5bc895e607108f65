import { afterEach, describe, expect, it } from 'vitest';
import { EndpointError } from '../../../src/core/errors.js';
import { EmbeddedJudges } from '../../../src/launch/servers/gateway.js';
import { ManualClock } from '../../core/manual_clock.js';
import { testFolders } from '../../support/folder.js';
import { ask, KeptProgram, until } from './kept_program.js';

const folder = testFolders('embedded-judge');
const closing: EmbeddedJudges[] = [];
afterEach(async () => {
  for (const judges of closing.splice(0)) await judges.close();
});

function prepare() {
  const program = new KeptProgram(folder());
  const clock = new ManualClock();
  const said: string[] = [];
  const judges = new EmbeddedJudges({ say: (line) => said.push(line), program: program.path, clock });
  closing.push(judges);
  return { program, clock, said, judges };
}

const embedded = { endpoint: 'embedded', model: 'a-judge' } as const;

describe('the embedded judge', () => {
  it('is one for all who ask the same model, and none for those who have a judge', async () => {
    const { program, judges } = prepare();
    expect(await judges.addressOf({ endpoint: 'http://a:1', model: 'a-judge' })).toEqual({
      endpoint: 'http://a:1',
      token: null,
    });
    expect(program.pids).toEqual([]);
    const [one, other] = await Promise.all([judges.addressOf(embedded), judges.addressOf(embedded)]);
    expect(one.endpoint).toMatch(/^http:\/\/127\.0\.0\.1:\d+$/);
    expect(one.token).toMatch(/^[0-9a-f]{32,}$/);
    expect(other).toEqual(one);
    expect(program.pids).toHaveLength(1);
    const third = await judges.addressOf({ ...embedded, model: 'another-judge' });
    expect(third.endpoint).not.toBe(one.endpoint);
    expect(third.token).not.toBe(one.token);
  });

  it('that does not start any more is given up: who waits is let go; and it is started again for whoever asks later', async () => {
    const { program, clock, said, judges } = prepare();
    const lost: string[] = [];
    const user = { notice: () => undefined, lost: (error: Error) => lost.push(error.message) };
    const { endpoint } = await judges.addressOf(embedded, { ...user, over: new AbortController().signal });
    const { origin } = new URL(endpoint);
    program.spoil('broken');
    await expect(ask(`${origin}/die`)).rejects.toThrow();
    await until(() => said.length === 1);
    for (const [restart, pauseMs] of [250, 500, 1000, 2000, 4000].entries()) {
      expect(said).toHaveLength(restart + 1);
      expect(lost).toEqual([]);
      await clock.pass(pauseMs);
      await until(() => said.length === restart + 2);
    }
    expect(lost).toEqual([
      'the embedded judge keeps ending: 5 restarts failed, and the last time it ended with exit code 7\n  | there is no memory',
    ]);
    await expect(ask(origin)).rejects.toThrow('ECONNREFUSED');
    expect(program.pids).toHaveLength(6);
    // One that does not start is no reason for the next not to.
    await expect(judges.addressOf(embedded)).rejects.toThrow(EndpointError);
    program.mend();
    const later = await judges.addressOf(embedded);
    expect(await ask(later.endpoint as string)).toBe(String(program.pids.at(-1)));
  });
});
