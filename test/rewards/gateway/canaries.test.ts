/** The canary set: told apart by real judges, and drift found. */
import { afterEach, describe, expect, it } from 'vitest';
import { genericCanaries } from '../../../src/rewards/gateway/canary_set.js';
import { DriftWatch } from '../../../src/rewards/gateway/drift.js';
import { startGateway, type RunningGateway } from '../../../src/rewards/gateway/server.js';
import { tinyCanaries } from '../../../src/tiny/judge/canaries.js';
import { JUDGE_MODEL, startJudge } from '../../../src/tiny/judge/server.js';
import { scoresText, startStubJudge, stubModel, type Behave } from '../judge/stub_judge.js';
import { fastClock } from '../judge/stub_judge.js';

const opened: (() => Promise<void>)[] = [];
afterEach(async () => {
  for (const close of opened.splice(0).reverse()) await close();
});

interface Health {
  readonly alarms: readonly string[];
  readonly upstreams: readonly { readonly state: string; readonly canary_drift: number | null }[];
}

async function health({ url }: RunningGateway): Promise<Health> {
  return (await (await fetch(new URL('/health', url))).json()) as Health;
}

async function until(holds: () => boolean | Promise<boolean>): Promise<void> {
  for (let i = 0; i < 1000; i++) {
    if (await holds()) return;
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  throw new Error('waited in vain');
}

describe('the sets', () => {
  it.each([genericCanaries(), tinyCanaries()])('$name: its pair differs in the edited image alone', (set) => {
    const [a, b] = set.pair.map((name) => set.canaries.find((canary) => canary.name === name));
    expect({ ...a, name: '', edited: null }).toEqual({ ...b, name: '', edited: null });
    expect(a?.edited.data).not.toEqual(b?.edited.data);
    expect(new Set(set.canaries.map(({ name }) => name)).size).toBe(set.canaries.length);
  });

  it('the rule judge scores the tiny set as it should, without alarm', async () => {
    const judge = await startJudge({ port: 0, host: '127.0.0.1' });
    opened.push(() => judge.close());
    const gateway = await startGateway({ upstreams: [judge.url], port: 0 }, { canaries: () => tinyCanaries() });
    opened.push(() => gateway.close());
    await gateway.ready;
    expect(await health(gateway)).toMatchObject({
      alarms: [],
      upstreams: [{ state: 'ready', models: [JUDGE_MODEL], canary_drift: 0 }],
    });
  });
});

describe('drift', () => {
  const watch = () => new DriftWatch({ pair: ['right', 'wrong'] }, 2);

  it('is the largest mean change of a canary against its first scores', () => {
    const drift = watch();
    const first = { right: [9, 9], wrong: [1, 9] };
    expect(drift.compare(new Map(Object.entries(first)))).toEqual({ drift: 0, alarms: [] });
    expect(drift.compare(new Map(Object.entries({ right: [8, 9], wrong: [3, 8] })))).toEqual({
      drift: 1.5,
      alarms: [],
    });
    const moved = drift.compare(new Map(Object.entries({ right: [5, 8], wrong: [1, 9] })));
    expect(moved).toEqual({ drift: 2.5, alarms: ["canary 'right' got 5, 8 where it first got 9, 9"] });
    expect(drift.compare(new Map(Object.entries(first)))).toEqual({ drift: 0, alarms: [] });
  });

  it('is not judged where there are no scores, which is an alarm itself', () => {
    const drift = watch();
    const found = drift.compare(
      new Map<string, readonly number[] | string>([
        ['right', 'no text'],
        ['wrong', [1, 1]],
      ]),
    );
    expect(found).toEqual({ drift: 0, alarms: ["canary 'right' got no scores: no text"] });
    expect(
      drift.compare(
        new Map([
          ['right', [9, 9]],
          ['wrong', [1, 1]],
        ]),
      ),
    ).toEqual({ drift: 0, alarms: [] });
  });

  it('finds a judge that does not look at the images', () => {
    const { alarms } = watch().compare(
      new Map([
        ['right', [8, 8]],
        ['wrong', [8, 8]],
      ]),
    );
    expect(alarms).toEqual([expect.stringContaining('may not see the images')]);
  });
});

describe('through the gateway', () => {
  /** Scores of the generic set, by question and by the number of images that look the same. */
  const seeing: Behave = ({ kind, images }) =>
    kind === 'pq' ? scoresText(8, 8) : images[0] === images[1] ? scoresText(0, 10) : scoresText(9, 9);

  it('a judge that comes back as another one raises an alarm, before it judges again', async () => {
    let behave: Behave = seeing;
    const stub = await startStubJudge((request) => behave(request));
    opened.push(stub.close);
    const lines: string[] = [];
    const gateway = await startGateway(
      { upstreams: [stub.url], model: stubModel, port: 0, breakerFailures: 1 },
      { log: (level, text) => lines.push(`${level} ${text}`) },
    );
    opened.push(() => gateway.close());
    await gateway.ready;
    expect((await health(gateway)).alarms).toEqual([]);
    behave = () => ({ kind: 'reset' });
    const body = { model: stubModel, messages: [{ role: 'user', content: [{ type: 'text', text: 'x' }] }] };
    const headers = { 'content-type': 'application/json' };
    await fetch(`${gateway.url}/chat/completions`, { method: 'POST', headers, body: JSON.stringify(body) });
    await until(async () => (await health(gateway)).upstreams[0].state === 'open');
    behave = () => scoresText(4, 4);
    await until(async () => (await health(gateway)).upstreams[0].state === 'ready');
    const { alarms, upstreams } = await health(gateway);
    expect(upstreams[0].canary_drift).toBe(5);
    expect(alarms.some((alarm) => alarm.includes("canary 'done' got 4, 4 where it first got 9, 9"))).toBe(true);
    expect(alarms.some((alarm) => alarm.includes('may not see the images'))).toBe(true);
    expect(lines.filter((line) => line.startsWith('warn ALARM'))).toHaveLength(alarms.length);
    const metrics = await (await fetch(new URL('/metrics', gateway.url))).text();
    expect(metrics).toContain(`editrl_gateway_canary_drift{upstream="${stub.url}"} 5`);
  });

  it('is scored again every so many minutes, and says when all is well again', async () => {
    let behave: Behave = seeing;
    const stub = await startStubJudge((request) => behave(request));
    opened.push(stub.close);
    const lines: string[] = [];
    const gateway = await startGateway(
      { upstreams: [stub.url], model: stubModel, port: 0, canaryEveryMin: 0.5, timeoutS: 3600 },
      { clock: fastClock(300), log: (_level, text) => lines.push(text) },
    );
    opened.push(() => gateway.close());
    await gateway.ready;
    behave = () => ({ kind: 'text', text: 'I cannot say.' });
    await until(async () => (await health(gateway)).alarms.some((alarm) => alarm.includes('got no scores')));
    behave = seeing;
    await until(async () => (await health(gateway)).alarms.length === 0);
    expect(lines.at(-1)).toMatch(/as at first again$/);
  });
});
