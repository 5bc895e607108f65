/** Stub judges and clients of them, closed after each test. */
import { afterEach } from 'vitest';
import { JudgeClient, type JudgeClientOptions } from '../../../src/rewards/judge/client.js';
import { MemoryJudgementStore } from './memory_store.js';
import { fastClock, startStubJudge, stubModel, type Behave, type StubJudge, type StubOptions } from './stub_judge.js';

export function stubPlace() {
  const closing: (() => Promise<void>)[] = [];
  afterEach(async () => {
    for (const close of closing.splice(0).reverse()) await close();
  });
  return {
    closing,
    async serve(this: void, behave: Behave, options: StubOptions = {}): Promise<StubJudge> {
      const stub = await startStubJudge(behave, options);
      closing.push(stub.close);
      return stub;
    },
    /** One test second is 100 of the client's; limits that only silence reaches. */
    connect(this: void, stub: StubJudge, options: Partial<JudgeClientOptions> = {}) {
      const store = new MemoryJudgementStore();
      const client = new JudgeClient({
        endpoints: [stub.url],
        model: stubModel,
        store,
        clock: fastClock(100),
        random: () => 0.5,
        policy: { attemptTimeoutMs: 2_000_000 },
        queryTimeoutMs: 5_000_000,
        ...options,
      });
      closing.push(() => client.close());
      return { client, store };
    },
  };
}
