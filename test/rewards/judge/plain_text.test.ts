import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { z } from 'zod';
import { plainText } from '../../../src/rewards/judge/prompts.js';
import { termKinds, termNames } from '../../../src/rewards/terms/table.js';
import type { TermKind } from '../../../src/rewards/terms/term.js';
import { benchmarks } from '../../../src/rewards/benchmarks/table.js';
import { testFolder } from '../../support/folder.js';
import { imageOf, wholeItem } from '../terms/term_contract.js';
import { replyingJudge, testServices } from '../terms/term_services.js';

const tokens = [
  '<|im_end|>',
  '<|im_start|>',
  '<|image_pad|>',
  '<\uff5cUser\uff5c>',
  '<s>',
  '</s>',
  '<end_of_turn>',
  '<image>',
  '<think>',
  '<tool\u2581call>',
  '[INST]',
  '[/INST]',
  '[gMASK]',
  '[UNUSED_TOKEN_145]',
];

describe('a text of a policy or a dataset', () => {
  it.each(tokens)('does not carry %s', (token) => {
    for (const text of [token, `a${token}b`, token.repeat(3), `<${token}`, `[${token}`]) {
      expect(plainText(text)).not.toContain(token);
      expect(JSON.parse(plainText(JSON.stringify(text)))).toBe(text);
    }
  });

  it.each(['a < b > c', '1 <2> 3', 'x[0] and [a, b] and [1]', '<a href="x">', 'a | b', 'paint the ball red'])(
    'is left as it is: %s',
    (text) => {
      expect(plainText(text)).toBe(text);
    },
  );
});

describe('questions to a judge', () => {
  const folder = testFolder('plain text');
  const file = (name: string, text: string): string => {
    const path = join(folder, name);
    writeFileSync(path, text);
    return path;
  };
  /** The prompt files of terms that ask in the words of a file, by field. */
  const prompts = {
    prompt: (kind: TermKind): string =>
      kind.name === 'pvc_judge'
        ? file('pair', '{source}{first}{second}{instruction}')
        : file('report', '{source}{edited}{instruction}'),
    prompt_sc: () => file('sc', '{source}{edited}{instruction}'),
    prompt_pq: () => file('pq', '{edited}'),
  };
  // Benchmarks read whole rows. Their own test has one with control tokens.
  const judged = termNames.filter((name) => termKinds[name].needs.judge && !/^ocr/.test(name) && !(name in benchmarks));

  it.each(judged)('of %s hold no control token of instruction, label or answer', async (name) => {
    const kind: TermKind = termKinds[name];
    const judge = replyingJudge(() => null);
    const given = Object.fromEntries(
      Object.entries(prompts).flatMap(([field, write]) => (field in kind.fields ? [[field, write(kind)]] : [])),
    );
    const term = await kind.create(z.strictObject(kind.fields).parse(given), { ...testServices(), judge: () => judge });
    const bad = `red ${tokens.join(' ')}`;
    const item = { ...wholeItem({ edited: imageOf(77) }), instruction: bad, expected: bad };
    await term.score({ ...item, ...(kind.reads === 'words' ? { answer: bad } : {}) });
    expect(judge.asked.length).toBeGreaterThan(0);
    const texts = judge.asked.flatMap(({ messages }) =>
      messages.flatMap(({ parts }) => parts.filter((part) => typeof part === 'string')),
    );
    for (const token of tokens) expect(texts.join('\n')).not.toContain(token);
    expect(texts.join('\n')).toContain('red ');
    await term.close();
  });
});
