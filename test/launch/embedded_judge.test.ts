import { afterEach, describe, expect, it } from 'vitest';
import { EndpointError } from '../../src/core/errors.js';
import { EmbeddedJudges } from '../../src/launch/embedded_judge.js';
import { ManualClock } from '../rewards/gateway/manual_clock.js';
import { testFolders } from '../support/folder.js';
import { ask, KeptProgram, until } from './kept_program.js';
import { rmSync } from 'node:fs';
import { join } from 'node:path';

const folder = testFolders('embedded-judge');
const closing: EmbeddedJudges[] = [];
afterEach(async () => {
  for (const judges of closing.splice(0)) await judges.close();
});

function prepare() {
  const dir = folder();
  const program = new KeptProgram(dir);
  const clock = new ManualClock();
  const said: string[] = [];
  const judges = new EmbeddedJudges({ say: (line) => said.push(line), program: program.path, clock });
  closing.push(judges);
  const mend = (): void => rmSync(join(dir, 'broken'));
  return { program, clock, said, judges, mend };
}

const embedded = { endpoint: 'embedded', model: 'a-judge' } as const;

describe('the embedded judge', () => {
  it('is one for all who ask the same model, and none for those who have a judge', async () => {
    const { program, judges } = prepare();
    expect(await judges.endpointOf({ endpoint: 'http://a:1', model: 'a-judge' })).toBe('http://a:1');
    expect(program.pids).toEqual([]);
    const [one, other] = await Promise.all([judges.endpointOf(embedded), judges.endpointOf(embedded)]);
    expect(one).toMatch(/^http:\/\/127\.0\.0\.1:\d+\/v1$/);
    expect(other).toBe(one);
    expect(program.pids).toHaveLength(1);
    expect(await judges.endpointOf({ ...embedded, model: 'another-judge' })).not.toBe(one);
  });

  it('that was killed answers whoever asks for it later, at the same address', async () => {
    const { clock, said, judges } = prepare();
    const endpoint = await judges.endpointOf(embedded);
    await expect(ask(`${new URL(String(endpoint)).origin}/die`)).rejects.toThrow();
    await until(() => said.length === 1);
    const notices: string[] = [];
    const user = { notice: (line: string) => notices.push(line), lost: () => undefined };
    expect(await judges.endpointOf(embedded, { ...user, over: new AbortController().signal })).toBe(endpoint);
    await clock.pass(250);
    await expect(ask(`${new URL(String(endpoint)).origin}/die`)).rejects.toThrow();
    await until(() => said.length === 2);
    expect(notices).toEqual(['the embedded judge was ended by SIGKILL; it is started again in 0.5 s (2 of 5)']);
  });

  it('that was given up is started anew for whoever asks for it later', async () => {
    const { program, clock, said, judges, mend } = prepare();
    const endpoint = String(await judges.endpointOf(embedded));
    program.breakIt();
    await expect(ask(`${new URL(endpoint).origin}/die`)).rejects.toThrow();
    for (const [restart, pauseMs] of [250, 500, 1000, 2000, 4000].entries()) {
      await until(() => said.length === restart + 1);
      await clock.pass(pauseMs);
    }
    await until(() => said.length === 6);
    expect(said[5]).toContain('reward.endpoint: the embedded judge does not stay up');
    // One that does not start is no reason for the next not to.
    await expect(judges.endpointOf(embedded)).rejects.toThrow(EndpointError);
    mend();
    const later = String(await judges.endpointOf(embedded));
    expect(await ask(later)).toBe(String(program.pids.at(-1)));
  });
});
