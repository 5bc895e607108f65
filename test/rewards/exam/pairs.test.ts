import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { encodePlainPng } from '../../../src/core/images/png.js';
import { itemsOf } from '../../../src/rewards/exam/cases.js';
import type { DataError } from '../../../src/core/errors.js';
import { openPairs } from '../../../src/rewards/exam/pairs.js';
import { testFolders } from '../../support/folder.js';

const newFolder = testFolders('exam-pairs');

function picture(level: number, side = 40) {
  return { width: side, height: side, data: new Uint8Array(side * side * 3).fill(level) };
}

/** A folder with images and a file of these lines. */
function pairsFile(...lines: readonly unknown[]): string {
  const folder = newFolder();
  mkdirSync(join(folder, 'pictures'));
  for (const [name, level] of Object.entries({ a: 10, b: 20, c: 30, same: 20 })) {
    writeFileSync(join(folder, 'pictures', `${name}.png`), encodePlainPng(picture(level)));
  }
  writeFileSync(join(folder, 'pictures', 'words.png'), 'no picture');
  const file = join(folder, 'pairs.jsonl');
  writeFileSync(file, lines.map((line) => `${JSON.stringify(line)}\n`).join(''));
  return file;
}

const good = {
  source: 'pictures/a.png',
  instruction: 'make it lighter',
  better: 'pictures/c.png',
  worse: 'pictures/b.png',
};

describe('an exam on pairs', () => {
  it('asks about the better and the worse edit, a copy, and tricks on the worse one', async () => {
    const set = await openPairs(pairsFile(good));
    expect(set.length).toBe(1);
    const exam = await set.at(0);
    expect(
      exam.answers.map(({ name, truth, made }) => [name, truth, typeof made === 'string' ? made : made.data[0]]),
    ).toEqual([
      ['better', 1, 30],
      ['worse', 0, 20],
      ['copy', null, 10],
    ]);
    expect(exam.reworded).toBe('Make it lighter.');
    const items = await itemsOf(exam, 2);
    expect(items.map(({ answer, trick }) => `${answer} ${trick ?? '-'}`)).toEqual([
      ...['better -', 'worse -', 'copy -', 'better -', 'worse -', 'copy -'],
      ...['worse brightness', 'worse text', 'worse size', 'worse format', 'worse wording'],
    ]);
    expect(new Set(items.map(({ item }) => item.key)).size).toBe(items.length);
    const [first, , , second] = items.map(({ item }) => item.edited?.data ?? new Uint8Array());
    expect(first).not.toEqual(second);
    expect(Math.max(...first.map((level) => Math.abs(level - 30)))).toBe(1);
    // Beside a trick stand the other answers, under its name and in its words.
    const { group } = items[items.length - 1];
    expect(group.answers.map(({ key }) => key)).toEqual(
      ['worse', 'better', 'copy'].map((one) => `exam/0/wording/${one}`),
    );
    expect(new Set(group.answers.map(({ instruction }) => instruction))).toEqual(new Set(['Make it lighter.']));
    expect(items[1].group).toBe(items[0].group);
    expect(items[0].group.answers).toEqual(items.slice(0, 3).map(({ item }) => item));
    expect(items.find(({ trick }) => trick === 'size')?.item.edited).toMatchObject({ width: 80, height: 80 });
    expect(items.find(({ trick }) => trick === 'wording')?.item.instruction).toBe('Make it lighter.');
  });

  it("takes other words for the instruction where a line has them, and is another set when its lines are others'", async () => {
    const own = await openPairs(pairsFile({ ...good, reworded: 'brighten it' }));
    expect((await own.at(0)).reworded).toBe('brighten it');
    expect((await openPairs(pairsFile(good))).name).not.toBe(own.name);
  });

  it('explains the format if the file is missing', async () => {
    const error = await openPairs('/nowhere/pairs.jsonl').then(
      () => null,
      (raised: unknown) => raised as DataError,
    );
    expect(error?.toText()).toMatch(
      /^\/nowhere\/pairs\.jsonl: there is no such file of pairs\n {2}Write lines such as/,
    );
  });

  it.each([
    ['a picture that is gone', { ...good, worse: 'pictures/gone.png' }, /cannot read .*gone\.png \(ENOENT\)/],
    ['no picture', { ...good, better: 'pictures/words.png' }, /words\.png: /],
    ['a pair without a difference', { ...good, better: 'pictures/same.png' }, /are the same image/],
    ['a line without an edit', { source: 'pictures/a.png', instruction: 'x', better: 'pictures/b.png' }, /worse: /],
    ['a key that is not known', { ...good, wrose: 'x' }, /not a pair to compare: .*wrose/],
    ['an empty instruction', { ...good, instruction: ' ' }, /instruction: /],
  ])('rejects %s, naming the line', async (_, line, message) => {
    const error: unknown = await openPairs(pairsFile(good, line)).catch((raised: unknown) => raised);
    expect(error).toMatchObject({ code: 'data' });
    expect((error as Error).message).toMatch(message);
    expect((error as { where: string }).where).toMatch(/pairs\.jsonl.*2/);
  });

  it('rejects a file without pairs', async () => {
    await expect(openPairs(pairsFile())).rejects.toMatchObject({ code: 'data' });
  });

  it('of words has a question, a better and a worse answer, and a reference if there is one', async () => {
    const said = { question: 'What is 2 + 3?', better: 'five', worse: 'six' };
    const bare = await openPairs(pairsFile(said));
    expect(bare).toMatchObject({ reads: 'words', labelled: false, length: 1 });
    const exam = await bare.at(0);
    expect(exam).toMatchObject({
      instruction: said.question,
      reworded: 'what is 2 + 3?',
      source: null,
      labelled: null,
    });
    const items = await itemsOf(exam, 2);
    expect(items.map(({ answer, trick }) => `${answer} ${trick ?? '-'}`)).toEqual([
      ...['better -', 'worse -', 'better -', 'worse -'],
      ...['worse length', 'worse praise', 'worse control', 'worse layout', 'worse wording'],
    ]);
    const answers = items.map(({ item }) => item.answer ?? '');
    // Every request differs, and what is said does not.
    expect(new Set(answers.slice(0, 4)).size).toBe(4);
    expect(answers.slice(0, 4).map((answer) => answer.trim())).toEqual(['five', 'six', 'five', 'six']);
    const labelled = await openPairs(pairsFile({ ...said, reference: '5' }));
    expect(labelled.labelled).toBe(true);
    expect((await itemsOf(await labelled.at(0), 2))[0].item).toMatchObject({
      expected: '5',
      edited: null,
      source: null,
    });
  });

  it.each([
    [{ question: 'a?', better: 'b', worse: 'b ' }, 'the two answers are the same'],
    [{ question: 'a?', better: ' ', worse: 'b' }, 'not a pair to compare: better: found no words'],
    [{ question: 'a?', better: 'b', worse: 'c', source: 'd.png' }, 'not a pair to compare: Unrecognized key: "source"'],
  ])('of words rejects %j', async (pair, message) => {
    await expect(openPairs(pairsFile(pair))).rejects.toThrow(message);
  });
});
