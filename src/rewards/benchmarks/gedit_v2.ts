/**
 * GEditBench v2 (2026, arXiv 2603.28547): an edit against those of other models, in three dimensions, by naming a winner. The numbers are shares of
 * wins and the ratings of its `elo_score.py`, over these comparisons and any published ones.
 */
import { resolve } from 'node:path';
import { z } from 'zod';
import { ConfigError, DataError } from '../../core/errors.js';
import { RandomStream } from '../../core/random.js';
import { result } from '../../core/schema/mark.js';
import { parseJson, readTextFile } from '../../core/text.js';
import { average } from '../../core/statistics.js';
import type { ImageName, Placeholders } from '../judge/template.js';
import { benchmark, type BenchmarkAnswer, type BenchmarkLine, type BenchmarkQuestion } from './benchmark.js';
import { eloOf, type Match } from './elo.js';
import { byColumn, lineOf, meanOf, scoredOf, sourcesAt, wordsAt } from './numbers.js';

const compared: Placeholders<ImageName> = { images: ['source', 'first', 'second'], words: ['instruction'] };
const dimensions = {
  instruction: { prompt: 'gedit_v2_instruction', placeholders: compared },
  quality: { prompt: 'gedit_v2_quality', placeholders: { images: ['first', 'second'], words: [] } },
  consistency: { prompt: 'gedit_v2_consistency', placeholders: compared },
} as const satisfies Record<string, { readonly prompt: string; readonly placeholders: Placeholders<ImageName> }>;
type Dimension = keyof typeof dimensions;
const names = Object.keys(dimensions) as readonly Dimension[];

/** The name of the evaluated model among the others. */
const OWN = 'this model';

const matchFile = z.string().min(1).nullable().default(null);

export const geditV2 = benchmark({
  name: 'gedit_v2',
  title: 'GEditBench v2',
  repository: 'ZhangqiJiang07/GEditBench_v2',
  judge: 'gpt-4o, and PVC-Judge for consistency',
  manner: { temperature: 0.7, maxCompletionTokens: 2048 },
  fields: {
    gallery: result(
      'The folder with the edits of other models: GALLERY/MODEL/KEY.png, as in GEditBench-v2-CandidatesGallery.',
      z.string().min(1),
    ),
    opponents: result('The models in the gallery to compare with.', z.array(z.string().regex(/^[^/]+$/)).min(1), {
      allowed: 'names of folders in the gallery',
    }),
    consistency_model: result(
      'The judge model for consistency, at the address of the other one.',
      z.string().min(1).default('PVC-Judge'),
    ),
    matches: result(
      'Published results as JSON lines, by dimension: they place the opponents among each other.',
      z.strictObject({ instruction: matchFile, quality: matchFile, consistency: matchFile }).prefault({}),
    ),
  },
  prompts: Object.fromEntries(names.map((name) => [dimensions[name].prompt, dimensions[name].placeholders])),
  inSourceSize: false,
  differences: [
    'Which of two edits is shown first is drawn by another generator.',
    'The published client sends no temperature to OpenAI, where it is 1.',
    'Ratings have no intervals.',
  ],
  asks: ({ opponents }) => opponents.flatMap((opponent) => names.map((name) => questionName(name, opponent))),
  questions: (row, { gallery, opponents, consistency_model: judge }) =>
    opponents.flatMap((opponent) => names.map((name) => questionOf(row, name, opponent, gallery, judge))),
  value: (parts) => average(Object.values(parts)),
  tables: (answers, { opponents, matches }) => [
    {
      title: 'share of wins',
      columns: names,
      lines: [
        ...opponents.map((opponent) => sharesOf(`against ${opponent}`, answers, [opponent])),
        ...[...byColumn(answers, 'task_type')].map(([type, own]) => sharesOf(type, own, opponents)),
        sharesOf('all', answers, opponents),
      ],
    },
    ratingsOf(answers, [
      ...matchesOf(answers, opponents),
      ...names.flatMap((name) => publishedMatches(name, matches[name])),
    ]),
  ],
});

const questionName = (name: Dimension, opponent: string): string => `gedit_v2_${name}_${opponent}`;
const partOf = (name: Dimension, opponent: string): string => `${name}_${opponent}`;

function questionOf(
  row: BenchmarkAnswer['row'],
  name: Dimension,
  opponent: string,
  gallery: string,
  judge: string,
): BenchmarkQuestion {
  const key = wordsAt(row, 'key');
  // Like every other path that the user names, the gallery is relative to the working directory.
  const rival = { file: resolve(gallery, opponent, `${key}.png`) };
  const isFirst = new RandomStream('gedit_v2', key, opponent).uniform() < 0.5;
  const part = partOf(name, opponent);
  const { prompt, placeholders }: { readonly prompt: string; readonly placeholders: Placeholders<ImageName> } =
    dimensions[name];
  const source = { file: sourcesAt(row)[0] };
  return {
    name: questionName(name, opponent),
    prompt,
    words: placeholders.words.length === 0 ? {} : { instruction: wordsAt(row, 'instruction') },
    images: {
      ...(placeholders.images.includes('source') ? { source } : {}),
      first: isFirst ? 'edited' : rival,
      second: isFirst ? rival : 'edited',
    },
    form: { kind: 'winner' },
    parts: isFirst ? [part, null] : [null, part],
    ...(name === 'consistency' ? { model: judge } : {}),
  };
}

function sharesOf(name: string, answers: readonly BenchmarkAnswer[], opponents: readonly string[]): BenchmarkLine {
  return lineOf(name, answers, (scored) =>
    names.map((dimension) =>
      meanOf(scored.flatMap(({ parts }) => opponents.flatMap((opponent) => parts[partOf(dimension, opponent)] ?? []))),
    ),
  );
}

function ratingsOf(answers: readonly BenchmarkAnswer[], matches: readonly Match[]) {
  const { length: n } = scoredOf(answers);
  const ratings = [...eloOf(matches)].sort(([, one], [, other]) => other - one);
  const lines = ratings.map(([name, elo]): BenchmarkLine => ({ name, n, unscored: answers.length - n, values: [elo] }));
  return { title: 'rating', columns: ['Elo'], lines };
}

function matchesOf(answers: readonly BenchmarkAnswer[], opponents: readonly string[]): Match[] {
  return scoredOf(answers).flatMap(({ parts }) =>
    names.flatMap((dimension) =>
      opponents.map((second) => ({ dimension, first: OWN, second, share: parts[partOf(dimension, second)] })),
    ),
  );
}

const published = z.looseObject({
  key: z.string().regex(/^.+_pair_.+_vs_.+$/s),
  results: z.looseObject({ winner: z.string() }).nullish(),
  result: z.looseObject({ winner: z.string() }).nullish(),
});
const SHARES: Readonly<Record<string, number>> = { 'Image A': 1, 'Image B': 0, Tie: 0.5 };

/** The decided comparisons of a published file. The script skips the others, too. Raises DataError for a file of another form. */
function publishedMatches(dimension: Dimension, file: string | null): Match[] {
  if (file === null) return [];
  const lines = readTextFile(file, ConfigError).split('\n');
  return lines.flatMap((line, i): Match[] => {
    if (line.trim() === '') return [];
    const where = `${file}:${i + 1}`;
    const { success, data } = published.safeParse(parseJson(line, where));
    if (!success) {
      throw new DataError(
        'the line is not a comparison; allowed: {"key": "PROMPT_pair_MODEL_vs_MODEL", "results": {"winner": …}}',
        {
          where,
        },
      );
    }
    const [first, second] = data.key.slice(data.key.indexOf('_pair_') + '_pair_'.length).split(/_vs_(.*)/s);
    const { winner } = data.results ?? data.result ?? { winner: '' };
    const share = Object.hasOwn(SHARES, winner) ? SHARES[winner] : undefined;
    return share === undefined || first === second ? [] : [{ dimension, first, second, share }];
  });
}
