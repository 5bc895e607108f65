import { execFileSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { describe, expect, it, vi } from 'vitest';
import type { Clock } from '../../../src/core/clock.js';
import { DataError } from '../../../src/core/errors.js';
import type { ModuleSettings } from '../../../src/rewards/terms/module/exports.js';
import { importModule, openModule, openModuleApart, readOutcome } from '../../../src/rewards/terms/module/term.js';
import type { Term } from '../../../src/rewards/terms/term.js';
import { testFolders } from '../../support/folder.js';
import { imageOf, termContract, wholeItem } from './term_contract.js';

const newFolder = testFolders('reward-module');

/** A module's settings, for a file with this text. */
function moduleOf(text: string, name = 'mine.mjs', changes: Partial<ModuleSettings> = {}): ModuleSettings {
  const module = join(newFolder(), name);
  writeFileSync(module, text);
  return settingsOf(module, changes);
}

function settingsOf(module: string, changes: Partial<ModuleSettings> = {}): ModuleSettings {
  return { module, settings: {}, concurrency: 16, timeout_s: 60, start_s: 60, ...changes };
}

/** A clock that stands still, and the alarms that are set on it. */
function alarmClock(): { clock: Clock; alarms: { at: number; ring: () => void }[] } {
  const alarms: { at: number; ring: () => void }[] = [];
  const after: Clock['after'] = (at, ring) => {
    const alarm = { at, ring };
    alarms.push(alarm);
    return () => void alarms.splice(alarms.indexOf(alarm), 1);
  };
  return { clock: { now: () => 0, after }, alarms };
}

const open = (settings: ModuleSettings, clock?: Clock): Promise<Term> => openModule(settings, {}, clock);
const example = (name: string): ModuleSettings => settingsOf(resolve('docs/rewards', name));

termContract('the example brightness_change', () => open(example('brightness_change.js')));
termContract('the example brief_answer', () => open(example('brief_answer.js')));

describe('a reward module', () => {
  it('is the function score itself, an object with it, or what create makes, from either export', async () => {
    const texts = [
      'export default (item) => 0.25;',
      'export default { score: async () => 0.25 };',
      'export const termKind = { quarter: 0.25, score() { return this.quarter; } };',
      'export default { create: async ({ at }) => ({ score: () => at }) };',
      'class Mine { constructor(at) { this.at = at; } score() { return this.at; } } export default { create: ({ at }) => new Mine(at) };',
      'export default { create: ({ at }) => () => at };',
    ];
    for (const text of texts) {
      const settings = moduleOf(text, 'mine.mjs', { settings: { at: 0.25 } });
      const term = await open(settings);
      expect(await term.score(wholeItem()), text).toEqual({ kind: 'scored', value: 0.25, normalised: 0.25, parts: {} });
      expect(term.name).toBe('mine');
    }
  });

  it('scores what the example says it scores', async () => {
    const [black, gray] = [0, 100].map((level) => ({ width: 2, height: 1, data: new Uint8Array(6).fill(level) }));
    const term = await open({ ...example('brightness_change.js'), settings: { at: 200 } });
    const outcome = await term.score(wholeItem({ source: black, edited: gray }));
    expect(outcome).toMatchObject({ kind: 'scored', normalised: 0.5, value: 0.5 });
    expect(outcome.parts['brightness_change/difference']).toBeCloseTo(100, 9);
    const brief = await open({ ...example('brief_answer.js'), settings: { words: 2 } });
    const scores = await Promise.all(
      ['', 'a b', 'a b c', 'a b c d'].map((answer) => brief.score(wholeItem({ edited: null, answer }))),
    );
    expect(scores).toMatchObject([0, 1, 0.5, 0].map((normalised) => ({ normalised })));
  });

  it('is given its settings, images as bytes, a PNG of them, and the number of processes', async () => {
    const text = `export default { create: (settings, { png, processes }) => ({
      async score({ edited, instruction }, context) {
        const bytes = await png(edited);
        const right = bytes[1] === 80 && edited.data.length === edited.width * edited.height * 3 && instruction !== ''
          && context.signal instanceof AbortSignal && JSON.stringify(context.settings) === JSON.stringify(settings);
        settings.changed = 1;
        return right ? processes / 4 : 0;
      } }) };`;
    const given = Object.freeze({ deep: Object.freeze({ a: [1] }) });
    const limits = { concurrency: 1, processes: 2, attemptTimeoutMs: 1, maxAttempts: 1 };
    const term = await openModule(moduleOf(text, 'mine.mjs', { settings: given }), { limits });
    expect(await term.score(wholeItem())).toMatchObject({ normalised: 0.5 });
  });

  it('leaves an item unscored, with the reason, where it throws or gives nonsense', async () => {
    const term = await open(
      moduleOf(`const given = { throws: () => { throw new TypeError('no such thing'); }, rejects: () => Promise.reject('why'),
        nothing: () => undefined, text: () => '0.5', high: () => 1.5, nan: () => NaN, other: () => ({ kind: 'best' }),
        part: () => ({ kind: 'scored', normalised: 1, parts: { 'a/b': 1 } }), cycle: () => { const a = {}; a.a = a; return a; },
        infinite: () => ({ kind: 'scored', normalised: 1, value: Infinity }), reason: () => ({ kind: 'unscored', reason: 'x', detail: 'y' }) };
        export default ({ answer }) => given[answer]();`),
    );
    const said: Readonly<Record<string, RegExp>> = {
      throws: /^4\/2\/1: mine: TypeError: no such thing \(.*mine\.mjs/,
      rejects: /threw why/,
      nothing: /gave undefined; allowed:/,
      text: /gave 0\.5;/,
      high: /gave 1\.5;/,
      nan: /gave NaN;/,
      other: /gave \{"kind":"best"\};/,
      part: /parts/,
      cycle: /not JSON/,
      infinite: /./,
      reason: /./,
    };
    for (const [answer, detail] of Object.entries(said)) {
      expect(await term.score(wholeItem({ answer }))).toMatchObject({
        kind: 'unscored',
        reason: 'own_code',
        detail: expect.stringMatching(detail) as string,
      });
    }
  });

  it('gives whole outcomes, with parts under its name', () => {
    expect(readOutcome({ kind: 'scored', normalised: 0.5, value: 5, parts: { a: -1 } }, 'm', 'k')).toEqual({
      kind: 'scored',
      normalised: 0.5,
      value: 5,
      parts: { 'm/a': -1 },
    });
    expect(readOutcome({ kind: 'zero_by_rule', reason: 'undecodable' }, 'm', 'k')).toEqual({
      kind: 'zero_by_rule',
      reason: 'undecodable',
      parts: {},
    });
    expect(readOutcome({ kind: 'unscored', reason: 'connection', detail: 'down' }, 'm', 'k')).toEqual({
      kind: 'unscored',
      reason: 'connection',
      detail: 'k: m: down',
      parts: {},
    });
  });

  it('meets its deadline, and those that wait behind one that never ends get their turn', async () => {
    const { clock, alarms } = alarmClock();
    const settings = moduleOf(`export default ({ answer }) => answer === 'never' ? new Promise(() => {}) : 1;`);
    const term = await open({ ...settings, concurrency: 1, timeout_s: 7 }, clock);
    const [never, next] = [term.score(wholeItem({ answer: 'never' })), term.score(wholeItem({ answer: '' }))];
    await vi.waitFor(() => expect(alarms).toMatchObject([{ at: 7000 }]));
    alarms[0].ring();
    expect(await never).toMatchObject({
      kind: 'unscored',
      reason: 'timeout',
      detail: '4/2/1: mine gave no score within 7 s',
    });
    expect(await next).toMatchObject({ kind: 'scored' });
    expect(alarms).toEqual([]);
  });

  it('is not asked about an answer without an image, unless it reports that it needs none', async () => {
    const calls = 'let calls = 0; const score = () => ++calls / 10;';
    const usual = await open(moduleOf(`${calls} export default { score };`));
    expect(await usual.score(wholeItem({ edited: null }))).toEqual({
      kind: 'zero_by_rule',
      reason: 'undecodable',
      parts: {},
    });
    expect(await usual.score(wholeItem())).toMatchObject({ normalised: 0.1 });
    const words = await open(moduleOf(`${calls} export default { score, needs: { edited: false } };`));
    expect(await words.score(wholeItem({ edited: null }))).toMatchObject({ normalised: 0.1 });
  });

  it('of words alone needs no image, and is given the row of the dataset, which it cannot change', async () => {
    const row = { level: 3, tags: ['a'] };
    const text =
      'export default ({ row }) => { const at = row.level / 10; row.level = 0; row.tags.push(1); return at; };';
    const term = await open(moduleOf(text));
    const item = wholeItem({ edited: null, source: null, truth: null, row });
    expect(await term.score(item)).toMatchObject({ kind: 'scored', normalised: 0.3 });
    expect(row).toEqual({ level: 3, tags: ['a'] });
  });

  it('raises the fault of a dataset that lacks what it needs', async () => {
    const term = await open(
      moduleOf('export default { score: () => 1, needs: { source: true, truth: true, words: true } };'),
    );
    const whole = wholeItem();
    await expect(term.score({ ...whole, source: null })).rejects.toThrow(
      /'mine' needs the source image, but this prompt has none/,
    );
    await expect(term.score({ ...whole, truth: null })).rejects.toThrow(DataError);
    const unlabelled = wholeItem();
    Reflect.deleteProperty(unlabelled, 'expected');
    await expect(term.score(unlabelled)).rejects.toThrow(/labeled answer in words/);
    expect(await term.score({ ...whole, edited: imageOf(9) })).toMatchObject({ normalised: 1 });
  });

  it('is closed once, and one that cannot close harms no one', async () => {
    const warn = vi.spyOn(process, 'emitWarning').mockReturnValue();
    const settings = moduleOf(`let closed = 0;
      export default { score: () => closed / 10, close() { closed++; throw new Error('stuck'); } };`);
    const term = await open(settings);
    await Promise.all([term.close(), term.close()]);
    expect(await term.score(wholeItem())).toMatchObject({ normalised: 0.1 });
    expect(warn).toHaveBeenCalledExactlyOnceWith(expect.stringContaining('Error: stuck'), 'RewardModuleWarning');
    warn.mockRestore();
  });
});

/** What a file holds that is no reward module, and what is said of it. */
const bad: Readonly<Record<string, readonly [text: string, found: RegExp]>> = {
  'throwing at import': [
    "export default 1;\nthrow new RangeError('at import');",
    /RangeError: at import \(.*mine\.mjs:2/,
  ],
  'an import that is missing': ["import './gone.mjs'; export default () => 1;", /gone\.mjs/],
  'no default export': ['export const score = () => 1;', /has no default export/],
  'a number': ['export default 5;', /its default export is number/],
  null: ['export default null; export const x = 1;', /no default export/],
  'an object without score': ['export default { scores: () => 1 };', /neither a function score nor create/],
  'a score that is no function': ['export default { score: 1 };', /neither a function score nor create/],
  'a check that is no function': ['export default { score: () => 1, check: true };', /its check is not a function/],
  'needs of unknown things': [
    'export default { score: () => 1, needs: { image: true } };',
    /its needs are \{"image":true\}; allowed: edited, source, truth, words/,
  ],
  'settings that it refuses': [
    "export default { score: () => 1, check: ({ at }) => 'at: found ' + at };",
    /^at: found 5$/,
  ],
};

describe('a reward module in a process of its own', () => {
  const items = ['a', 'b', 'c'].map((key) => wholeItem({ key, answer: key }));
  const outcomes = async (settings: ModuleSettings) => {
    const term = await openModuleApart(settings, items);
    return Promise.all(items.map((item) => term.score(item)));
  };

  it('gives the outcomes that it gives in this process', async () => {
    const text = `export default { create: ({ at }, { png }) => async ({ answer, edited }) =>
      answer === 'a' ? at : answer === 'b' ? NaN : ((await png(edited))[1] === 80 ? () => 1 : 0) };`;
    const settings = moduleOf(text, 'mine.mjs', { settings: { at: 0.5 } });
    const here = await open(settings);
    const [first, second, third] = await outcomes(settings);
    expect([first, second]).toEqual(await Promise.all([items[0], items[1]].map((item) => here.score(item))));
    expect(third).toMatchObject({
      kind: 'unscored',
      detail: expect.stringContaining('returned a value that cannot be copied') as string,
    });
  });

  it.each([
    ["export default () => process.kill(process.pid, 'SIGKILL');", 'ended the process (SIGKILL)'],
    ['export default () => { for (;;) {} };', 'gave no score within 0.3 s'],
    ['export default () => new Promise((done) => setTimeout(done, 60_000));', 'gave no score within 0.3 s'],
  ])('leaves every item unscored that it never answers: %s', async (text, detail) => {
    const found = await outcomes(moduleOf(text, 'mine.mjs', { timeout_s: detail.includes('within') ? 0.3 : 20 }));
    expect(found.length).toBe(3);
    for (const outcome of found) {
      expect(outcome).toMatchObject({
        kind: 'unscored',
        reason: 'own_code',
        detail: expect.stringContaining(detail) as string,
      });
    }
  });
});

describe('a file that is no reward module', () => {
  it.each(Object.entries(bad))('is named: %s', async (_what, [text, found]) => {
    const settings = moduleOf(text, 'mine.mjs', { settings: { at: 5 } });
    expect((await said(() => importModule(settings)))[0]).toMatch(found);
  });

  it.each(['throwing at import', 'a number', 'settings that it refuses'])(
    'is named before anything starts, in the same words: %s',
    async (what) => {
      const settings = moduleOf(bad[what][0], 'mine.mjs', { settings: { at: 5 } });
      expect(await said(() => openModuleApart(settings, []))).toEqual(await said(() => importModule(settings)));
    },
  );

  it('is named with the place of what is wrong in its text', async () => {
    const settings = moduleOf('export default {\n  score( { }\n};');
    const [message] = await said(() => openModuleApart(settings, []));
    expect(message).toMatch(/SyntaxError: .* \(.*mine\.mjs:\d\)$/);
  });

  it.each(['await new Promise(() => setInterval(() => {}, 1000));', 'while (true) {}', 'for (;;) await null;'])(
    'is named if its import never ends: %s',
    async (endless) => {
      const settings = moduleOf(`export default () => 1; ${endless}`, 'never.mjs', { timeout_s: 0.5 });
      expect((await said(() => openModuleApart(settings, [])))[0]).toMatch(
        'its import did not end within 0.5 s (timeout_s)',
      );
    },
  );

  it('is named if it is a pipe, or imports one', async () => {
    const folder = newFolder();
    execFileSync('mkfifo', [join(folder, 'pipe.mjs')]);
    const pipe = settingsOf(join(folder, 'pipe.mjs'));
    for (const work of [() => open(pipe), () => openModuleApart(pipe, [])]) {
      expect((await said(work))[0]).toMatch('it is not a plain file');
    }
    writeFileSync(join(folder, 'mine.mjs'), "import './pipe.mjs'; export default () => 1;");
    const importing = settingsOf(join(folder, 'mine.mjs'), { timeout_s: 0.5 });
    expect((await said(() => openModuleApart(importing, [])))[0]).toMatch('its import did not end within 0.5 s');
  });

  it('is named if its import ends the process', async () => {
    const exits = moduleOf('export default () => 1; console.log("{}"); process.exit(3);');
    expect((await said(() => openModuleApart(exits, [])))[0]).toMatch('its import ended the process (code 3)');
  });

  it('is named where its create fails, never ends, or makes nothing that scores', async () => {
    const nothing = moduleOf('export default { create: () => ({}) };');
    expect((await said(() => open(nothing)))[0]).toMatch('its create() returned {}');
    const failing = moduleOf("export default { create() { throw new Error('no GPU'); } };");
    expect((await said(() => open(failing)))[0]).toMatch(/Error: no GPU/);
    const { clock, alarms } = alarmClock();
    const late = said(() => open(moduleOf('export default { create: () => new Promise(() => {}) };'), clock));
    await vi.waitFor(() => expect(alarms).toMatchObject([{ at: 60_000 }]));
    alarms[0].ring();
    expect((await late)[0]).toMatch('its create() did not end within 60 s');
  });
});

async function said(work: () => unknown): Promise<[message: string, whole: string]> {
  try {
    await work();
  } catch (error) {
    return [(error as Error).message, (error as { toText(): string }).toText()];
  }
  throw new Error('nothing was raised');
}
