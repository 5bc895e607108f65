/**
 * GEdit-Bench (Liu et al., "Step1X-Edit", 2025, arXiv 2504.17761): VIEScore's two questions from 0 to 10, in 11 groups. The numbers are those of
 * its `calculate_statistics.py`: means by group, and the mean of these means.
 */
import type { ReplyForm } from '../judge/forms.js';
import { benchmark, type BenchmarkAnswer, type BenchmarkLine, type BenchmarkTable } from './benchmark.js';
import { byColumn, lineOf, meanOf, sourcesAt, textAt, wordsAt } from './numbers.js';

const form: ReplyForm = { kind: 'scores', count: 2, scale: [0, 10] };
const columns = ['semantics', 'quality', 'overall'] as const;

/** The published sets of instructions: all, and those on which every compared model gave an edit. */
const SETS = [
  ['', () => true],
  [', intersection', ({ row }: BenchmarkAnswer) => row['intersection'] === true],
] as const;

export const gedit = benchmark({
  name: 'gedit',
  title: 'GEdit-Bench',
  repository: 'stepfun-ai/Step1X-Edit',
  judge: 'gpt-4.1',
  manner: { temperature: 1, maxCompletionTokens: 1400 },
  fields: {},
  prompts: {
    gedit_sc: { images: ['source', 'edited'], words: ['instruction'] },
    gedit_pq: { images: ['edited'], words: [] },
  },
  inSourceSize: true,
  differences: [
    'The published client sends no temperature, which is 1 at OpenAI, and JPEG.',
    'It reads an unreadable second reply as a random number.',
  ],
  asks: () => ['gedit_sc', 'gedit_pq'],
  questions: (row) => {
    const source = { file: textAt(row, 'shown_source') ?? sourcesAt(row)[0] };
    const instruction = wordsAt(row, 'instruction');
    return [
      {
        name: 'gedit_sc',
        prompt: 'gedit_sc',
        words: { instruction },
        images: { source, edited: 'edited' },
        form,
        parts: ['edit_success', 'overedit'],
      },
      {
        name: 'gedit_pq',
        prompt: 'gedit_pq',
        words: {},
        images: { edited: 'edited' },
        form,
        parts: ['naturalness', 'artifacts'],
      },
    ];
  },
  value: (parts) => overallOf(parts) / 10,
  tables: (answers) =>
    [...byColumn(answers, 'language')].flatMap(([language, own]) =>
      SETS.flatMap(([suffix, isIn]): BenchmarkTable[] => {
        const chosen = own.filter(isIn);
        return chosen.length === 0 ? [] : [{ title: `${language}${suffix}`, columns, lines: linesOf(chosen) }];
      }),
    ),
});

interface Grades {
  readonly [part: string]: number;
}

const semanticsOf = ({ edit_success, overedit }: Grades): number => Math.min(edit_success, overedit);
const qualityOf = ({ naturalness, artifacts }: Grades): number => Math.min(naturalness, artifacts);
const overallOf = (parts: Grades): number => Math.sqrt(semanticsOf(parts) * qualityOf(parts));

function linesOf(answers: readonly BenchmarkAnswer[]): readonly BenchmarkLine[] {
  const groups = [...byColumn(answers, 'task_type')].map(([name, own]) =>
    lineOf(name, own, (scored) =>
      [semanticsOf, qualityOf, overallOf].map((of) => meanOf(scored.map(({ parts }) => of(parts)))),
    ),
  );
  const average = lineOf('mean of groups', answers, () =>
    columns.map((_, i) => meanOf(groups.flatMap(({ values }) => values[i] ?? []))),
  );
  return [...groups, average];
}
