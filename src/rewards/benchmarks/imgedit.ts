/**
 * ImgEdit-Bench, basic edits (Ye et al., "ImgEdit", 2025, arXiv 2505.20275): a question by type of edit with three scores from 1 to 5. The numbers
 * are those of its `step1_get_avgscore.py` and `step2_typescore.py`: means with two decimals, by edit and by type.
 */
import type { Placeholders, ImageName } from '../judge/template.js';
import type { ScoreParts } from '../score/types.js';
import { benchmark } from './benchmark.js';
import { byColumn, lineOf, meanOf, sourcesAt, toCents, wordsAt } from './numbers.js';

const types = ['replace', 'add', 'adjust', 'remove', 'style', 'action', 'extract', 'background', 'compose'] as const;
const placeholders: Placeholders<ImageName> = { images: ['source', 'edited'], words: ['instruction'] };
const parts = ['score_1', 'score_2', 'score_3'] as const;

export const imgedit = benchmark({
  name: 'imgedit',
  title: 'ImgEdit-Bench, basic',
  repository: 'PKU-YuanGroup/ImgEdit',
  judge: 'gpt-4o',
  manner: { temperature: 1, maxCompletionTokens: 1024 },
  fields: {},
  prompts: Object.fromEntries(types.map((type) => [`imgedit_${type}`, placeholders])),
  inSourceSize: false,
  differences: [
    'The published client sends no temperature, which is 1 at OpenAI, no limit of the reply, and images in their own size.',
    'It averages over the scores that it finds, also if these are not three.',
    'The mean of types is not in its scripts.',
  ],
  asks: () => ['imgedit'],
  questions: (row) => [
    {
      name: 'imgedit',
      prompt: `imgedit_${wordsAt(row, 'task_type')}`,
      words: { instruction: wordsAt(row, 'instruction') },
      images: { source: { file: sourcesAt(row)[0] }, edited: 'edited' },
      form: { kind: 'lines', count: 3, scale: [1, 5] },
      parts,
    },
  ],
  value: (scores) => (meanScore(scores) - 1) / 4,
  tables: (answers) => {
    const groups = [...byColumn(answers, 'task_type')].map(([name, own]) =>
      lineOf(name, own, (scored) => {
        const mean = meanOf(scored.map((answer) => toCents(meanScore(answer.parts))));
        return [mean === null ? null : toCents(mean)];
      }),
    );
    const all = lineOf('mean of types', answers, () => [meanOf(groups.flatMap(({ values }) => values[0] ?? []))]);
    return [{ title: 'score', columns: ['score'], lines: [...groups, all] }];
  },
});

function meanScore(scores: ScoreParts): number {
  return parts.reduce((sum, part) => sum + scores[part], 0) / parts.length;
}
