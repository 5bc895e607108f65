/** The sender that works in a thread, which only exists once it is built. */
import { execFile } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { promisify } from 'node:util';
import { afterEach, describe, expect, it } from 'vitest';
import type { JudgeImage } from '../../src/rewards/judge/images.js';
import { ThreadSender } from '../../src/rewards/judge/sender_thread.js';
import { first, queryAbout, senderContract, senderOptions } from '../rewards/judge/sender_contract.js';
import { startStubJudge, type StubJudge } from '../rewards/judge/stub_judge.js';
import { ROOT } from './editrl.js';

const built = (file: string): URL => pathToFileURL(join(ROOT, 'dist/src/rewards/judge', file));
const script = built('sender_thread_main.js');

senderContract('in a thread of its own', (options) => new ThreadSender(options, script));

const unpreparable: JudgeImage = {
  digest: 'x',
  dataUrl: () => Promise.resolve(''),
  get picture(): never {
    throw new Error('no pixels');
  },
};

describe('the thread of a sender', () => {
  const stubs: StubJudge[] = [];
  afterEach(async () => {
    for (const stub of stubs.splice(0)) await stub.close();
  });

  it('tells everyone who waits when it cannot be started, and whoever asks later', async () => {
    const sender = new ThreadSender(senderOptions('http://127.0.0.1:1/v1'), built('no_such_file.js'));
    const failure = /internal: the judge's thread failed: .*no_such_file/;
    await expect(sender.send(queryAbout(1), first)).rejects.toThrow(failure);
    await expect(sender.send(queryAbout(1), first)).rejects.toThrow(failure);
    await sender.close();
  });

  it('hands nothing over for a question that is called off before', async () => {
    const stub = await startStubJudge(() => ({ kind: 'text', text: 'fine' }));
    stubs.push(stub);
    const sender = new ThreadSender(senderOptions(stub.url), script);
    const unreadable = { ...queryAbout(1), messages: [{ role: 'user' as const, parts: [unpreparable] }] };
    expect(await sender.send(unreadable, first, AbortSignal.abort())).toMatchObject({ reply: { problem: 'aborted' } });
    await sender.close();
  });

  it('waits for no question that cannot be handed over, and takes the next', async () => {
    const stub = await startStubJudge(() => ({ kind: 'text', text: 'fine' }));
    stubs.push(stub);
    const sender = new ThreadSender(senderOptions(stub.url), script);
    const unreadable = { ...queryAbout(1), messages: [{ role: 'user' as const, parts: [unpreparable] }] };
    await expect(sender.send(unreadable, first)).rejects.toThrow('no pixels');
    expect(await sender.send(queryAbout(1), first)).toMatchObject({ reply: { text: 'fine' } });
    await sender.close();
  });

  it('ends once, refuses whoever asks then, and answers what was under way', async () => {
    const stub = await startStubJudge(async () => {
      await new Promise((resolve) => setTimeout(resolve, 100));
      return { kind: 'text', text: 'late' };
    });
    stubs.push(stub);
    const sender = new ThreadSender(senderOptions(stub.url), script);
    const asked = sender.send(queryAbout(1), first);
    while (stub.requests.length === 0) await new Promise((resolve) => setTimeout(resolve, 5));
    const closed = [sender.close(), sender.close()];
    await expect(sender.send(queryAbout(2), first)).rejects.toThrow('told to end');
    expect(await asked).toMatchObject({ reply: { text: 'late' } });
    await Promise.all(closed);
  });

  it('keeps no process alive that asks nothing any more', async () => {
    const stub = await startStubJudge(() => ({ kind: 'text', text: 'fine' }));
    stubs.push(stub);
    const program = `
      const { ThreadSender } = await import(${JSON.stringify(built('sender_thread.js').href)});
      const sender = new ThreadSender(${JSON.stringify(senderOptions(stub.url))});
      const query = { messages: [{ role: 'user', parts: ['?'] }], format: null, temperature: 0, maxCompletionTokens: 4 };
      const { reply } = await sender.send(query, ${JSON.stringify(first)});
      console.log(reply.text);`;
    const folder = mkdtempSync(join(tmpdir(), 'sender-'));
    try {
      writeFileSync(join(folder, 'program.mjs'), program);
      const run = promisify(execFile)(process.execPath, [join(folder, 'program.mjs')], { timeout: 20_000 });
      expect((await run).stdout).toBe('fine\n');
    } finally {
      rmSync(folder, { recursive: true });
    }
  });
});
