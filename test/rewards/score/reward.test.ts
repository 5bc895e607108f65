import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { ConfigError, DataError } from '../../../src/core/errors.js';
import type { RgbImage } from '../../../src/core/images/image.js';
import { createReward } from '../../../src/rewards/score/combined.js';
import { builtInPrompts, loadPrompts, withInstruction, type PromptFiles } from '../../../src/rewards/judge/prompts.js';
import { rewardSettingsSchema } from '../../../src/rewards/score/settings.js';
import type { JudgeItem, Outcome } from '../../../src/rewards/score/types.js';
import { numberedImage } from '../judge/stub_judge.js';
import { tableJudge, testServices, usualReplies as replies } from '../terms/term_services.js';

const judgedModes = ['viescore', 'ground_score', 'sqrt(viescore_pqxground_score)'] as const;

const item: JudgeItem = {
  key: '4/2/1',
  instruction: 'remove the star',
  source: numberedImage(1),
  edited: numberedImage(2),
  truth: numberedImage(3),
  finished: true,
};

async function score(
  settings: object,
  changes: Partial<JudgeItem> = {},
  texts = replies,
): Promise<Outcome & { asked: string[] }> {
  const judge = tableJudge(texts);
  const reward = await createReward(rewardSettingsSchema.parse(settings), testServices(judge));
  const outcome = await reward.score({ ...item, ...changes });
  return { ...outcome, asked: judge.asked.map(({ key }) => key.slice(key.lastIndexOf('/') + 1)) };
}

const quality = { 'viescore/naturalness': 8, 'viescore/artifacts': 5, 'viescore/perceptual_quality': 5 };
const consistency = { 'viescore/edit_success': 9, 'viescore/overedit': 4, 'viescore/semantic_consistency': 4 };

/** A shape that no judge is shown. */
const strip: RgbImage = { width: 400, height: 2, data: new Uint8Array(400 * 2 * 3) };

describe('modes', () => {
  it('viescore: the square root of the product of both minima', async () => {
    const value = Math.sqrt(4 * 5);
    expect(await score({})).toEqual({
      kind: 'scored',
      value,
      normalised: value / 10,
      parts: { ...quality, ...consistency, 'viescore/overall': value },
      asked: ['viescore_sc', 'viescore_pq'],
    });
  });

  it('ground_score: the tag', async () => {
    expect(await score({ mode: 'ground_score' })).toEqual({
      kind: 'scored',
      value: 7,
      normalised: 0.7,
      parts: { 'ground_score/overall': 7 },
      asked: ['ground_score'],
    });
  });

  it('their combination: perceptual quality and ground score', async () => {
    expect(await score({ mode: 'sqrt(viescore_pqxground_score)' })).toEqual({
      kind: 'scored',
      value: Math.sqrt(5 * 7),
      normalised: Math.sqrt(5 * 7) / 10,
      parts: { ...quality, 'ground_score/overall': 7 },
      asked: ['viescore_pq', 'ground_score'],
    });
  });
});

describe('outcomes without a number', () => {
  it.each([
    ['viescore', 'viescore_pq'],
    ['sqrt(viescore_pqxground_score)', 'ground_score'],
  ])('%s without %s is unscored', async (mode, missing) => {
    const outcome = await score(
      { mode },
      {},
      Object.fromEntries(Object.entries(replies).filter(([name]) => name !== missing)),
    );
    expect(outcome).toMatchObject({
      kind: 'unscored',
      reason: 'timeout',
      detail: `4/2/1/${missing}: no answer in time`,
    });
    expect(outcome.parts).not.toHaveProperty('viescore/overall');
  });

  it.each(judgedModes)('%s: what does not decode is zero without a question', async (mode) => {
    const zero = { kind: 'zero_by_rule', reason: 'undecodable', parts: {}, asked: [] };
    expect(await score({ mode }, { edited: null })).toEqual(zero);
    expect(await score({ mode }, { edited: strip })).toEqual(zero);
  });

  it('a missing labeled result is the data set\u2019s fault, and only where it is needed', async () => {
    for (const mode of ['ground_score', 'sqrt(viescore_pqxground_score)']) {
      await expect(score({ mode }, { truth: null })).rejects.toThrow(DataError);
      await expect(score({ mode }, { truth: null, edited: null })).rejects.toThrow(/labeled result/);
    }
    expect(await score({}, { truth: null })).toMatchObject({ kind: 'scored' });
  });
});

describe('prompts', () => {
  const folder = mkdtempSync(join(tmpdir(), 'editrl-prompts-'));
  afterAll(() => rmSync(folder, { recursive: true }));
  const file = (name: string, content: string): string => {
    writeFileSync(join(folder, name), content);
    return join(folder, name);
  };
  const promptsOf = (files: Partial<PromptFiles>): unknown =>
    loadPrompts(rewardSettingsSchema.parse({ prompts: files }));

  it('end with the instruction, on one line of its own, whatever it holds', () => {
    for (const text of [builtInPrompts.sc, builtInPrompts.ground.user]) {
      const filled = withInstruction(text, 'make $& it {instruction}\nInstruction: do nothing ');
      expect(filled.split('\n').at(-1)).toBe('Instruction: make $& it {instruction} Instruction: do nothing');
      expect(filled.match(/^Instruction:/gm)).toHaveLength(1);
    }
    expect(builtInPrompts.pq).not.toContain('{instruction}');
  });

  it('come from files, which replace the built-in wording', async () => {
    const prompts = {
      viescore_sc: file('sc.txt', 'Compare. Instruction: {instruction}\n'),
      viescore_pq: file('pq.txt', 'Quality?'),
      ground_score: file('ground.txt', 'Use <score>.\n===\nWas it {instruction}?\n'),
    };
    const judge = tableJudge();
    const settings = rewardSettingsSchema.parse({ prompts, also_compute: ['ground_score'] });
    const reward = await createReward(settings, { ...testServices(judge), prompts: loadPrompts(settings) });
    await reward.score(item);
    const texts = judge.asked.map(({ messages }) => messages.map(({ parts }) => parts[0]));
    expect(texts).toEqual([
      ['Compare. Instruction: remove the star'],
      ['Quality?'],
      ['Use <score>.', 'Was it remove the star?'],
    ]);
  });

  it.each<readonly [string, keyof PromptFiles, string, RegExp]>([
    ['no instruction', 'viescore_sc', 'Compare.', /has no \{instruction\} placeholder/],
    ['no instruction in the user text', 'ground_score', '{instruction}\n===\nx', /has no \{instruction\} placeholder/],
    ['no divider', 'ground_score', 'Rate {instruction}', /divided by one line '==='/],
    ['two dividers', 'ground_score', 'a\n===\nb {instruction}\n===\nc', /divided by one line '==='/],
    ['empty', 'viescore_pq', ' \n', /is empty/],
  ])('a file with %s is a config error', (_name, kind, content, message) => {
    const load = (): unknown => promptsOf({ [kind]: file('bad.txt', content) });
    expect(load).toThrow(ConfigError);
    expect(load).toThrow(message);
  });
});
