import { describe, expect, it } from 'vitest';
import { parseScores, parseScoreTag } from '../../../src/rewards/judge/parse.js';
import type { Answer } from '../../../src/rewards/rule_judge/protocol.js';
import { malformations } from '../rule_judge/malformations.js';

const answers: readonly Answer[] = [
  [0, 0],
  [10, 10],
  [7, 8],
  [1, 0],
  [2.5, 9.9],
].flatMap((scores) => [
  { form: 'list' as const, scores, reasoning: 'The ball is "red", as [1, 2] says.' },
  { form: 'tag' as const, scores: scores.slice(0, 1), reasoning: 'The ball is "red".' },
]);

describe.each(Object.entries(malformations))('an answer garbled as %s', (_name, { gives, write }) => {
  it.each(answers)('from $form $scores gives the true scores or none', (answer) => {
    const text = write[answer.form](answer);
    const parsed = answer.form === 'list' ? parseScores(text, 2) : parseScoreTag(text);
    if (gives[answer.form] === 'scores') expect(parsed).toEqual({ ok: true, scores: answer.scores });
    else expect(parsed).toMatchObject({ ok: false });
  });
});
