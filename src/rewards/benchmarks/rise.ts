/**
 * RISEBench (Zhao et al., "Envisioning Beyond the Pixels", 2025, arXiv 2504.02826): reasoning, consistency and plausibility from 1 to 5, or 0 and 1
 * for logical tasks. The numbers are those of its `gpt_eval.py`.
 */
import type { Row } from '../../data/types.js';
import type { ReplyForm } from '../judge/forms.js';
import type { ImageName, Placeholders } from '../judge/template.js';
import type { ScoreParts } from '../score/types.js';
import { benchmark, type BenchmarkAnswer, type BenchmarkLine, type BenchmarkQuestion } from './benchmark.js';
import { byColumn, has, lineOf, meanOf, partMean, sourcesAt, wordsAt, type Scored } from './numbers.js';

const form: ReplyForm = { kind: 'named', names: ['Final Score'], scale: [1, 5] };
const yesOrNo: ReplyForm = { kind: 'named', names: ['Final Score'], scale: [0, 1] };

const pair = ['source', 'edited'] as const;
const files = {
  rise_consistency: { images: pair, words: ['instruct'] },
  rise_reasoning: { images: ['edited'], words: ['instruct', 'reference'] },
  rise_reasoning_image: { images: pair, words: ['instruct', 'reference'] },
  rise_quality: { images: ['edited'], words: [] },
  rise_spatial_consistency: { images: pair, words: ['instruct'] },
  rise_spatial_reasoning: { images: ['edited'], words: ['instruct', 'reference'] },
  rise_spatial_reasoning_image: { images: pair, words: ['instruct', 'reference'] },
  rise_spatial_reference: { images: pair, words: ['instruct'] },
  rise_spatial_quality: { images: ['edited'], words: [] },
  rise_logical_consistency: { images: pair, words: ['instruct'] },
  rise_logical_consistency_answer: { images: pair, words: ['instruct', 'reference'] },
  rise_logical_text: { images: ['edited'], words: ['reference'] },
  rise_logical_image: { images: pair, words: ['instruct'] },
  rise_logical_image_alone: { images: pair, words: [] },
} as const satisfies Record<string, Placeholders<ImageName>>;
type File = keyof typeof files;

/** The prompt files of an edit and its first image. */
interface Asked {
  readonly consistency: File;
  readonly reasoning: File;
  readonly quality: File | null;
  /** The column with the image before the edit, in questions that show one. */
  readonly shown: 'source' | 'reference_image';
}

function askedOf(row: Row): Asked {
  const category = wordsAt(row, 'task_type');
  const shown = has(row, 'reference_image') ? 'reference_image' : 'source';
  if (category === 'logical_reasoning') {
    if (has(row, 'reference_text')) {
      return {
        consistency: 'rise_logical_consistency_answer',
        reasoning: 'rise_logical_text',
        quality: null,
        shown: 'source',
      };
    }
    const reasoning = has(row, 'reasoning_wo_ins') ? 'rise_logical_image_alone' : 'rise_logical_image';
    return { consistency: 'rise_logical_consistency', reasoning, quality: null, shown };
  }
  if (category === 'spatial_reasoning') {
    const reasoning: File =
      shown === 'reference_image'
        ? 'rise_spatial_reference'
        : has(row, 'reasoning_img')
          ? 'rise_spatial_reasoning_image'
          : 'rise_spatial_reasoning';
    return { consistency: 'rise_spatial_consistency', reasoning, quality: 'rise_spatial_quality', shown };
  }
  const reasoning = has(row, 'reasoning_img') ? 'rise_reasoning_image' : 'rise_reasoning';
  return { consistency: 'rise_consistency', reasoning, quality: 'rise_quality', shown: 'source' };
}

const columns = ['reasoning', 'consistency', 'plausibility', 'score', 'percent', 'accuracy'] as const;

export const rise = benchmark({
  name: 'rise',
  title: 'RISEBench',
  repository: 'PhoenixZ810/RISEBench',
  judge: 'gpt-4.1-2025-04-14',
  manner: { temperature: 0, maxCompletionTokens: 4096 },
  fields: {},
  prompts: files,
  inSourceSize: false,
  differences: [
    'The published client sends JPEG of at most 768 pixels.',
    'Its script counts an edit without scores as not solved.',
    'As in its script, a dataset with a column consistency_free weighs reasoning 0.8 and plausibility 0.2 for all edits that are not logical. Without the column, the weights are 0.3, 0.5 and 0.2.',
  ],
  asks: () => ['rise_consistency', 'rise_reasoning', 'rise_quality'],
  questions: (row) => {
    const { consistency, reasoning, quality, shown } = askedOf(row);
    const source = { file: shown === 'source' ? sourcesAt(row)[0] : wordsAt(row, shown) };
    const own = quality === null ? yesOrNo : form;
    const ask = (name: string, prompt: File, part: string): BenchmarkQuestion => {
      const { images, words }: Placeholders<ImageName> = files[prompt];
      return {
        name: `rise_${name}`,
        prompt,
        words: Object.fromEntries(words.map((word) => [word, textOf(row, word)])),
        images: { edited: 'edited', ...(images.includes('source') ? { source } : {}) },
        form: own,
        parts: [part],
      };
    };
    return [
      ...(has(row, 'consistency_free') ? [] : [ask('consistency', consistency, 'consistency')]),
      ask('reasoning', reasoning, 'reasoning'),
      ...(quality === null ? [] : [ask('quality', quality, 'plausibility')]),
    ];
  },
  value: (parts, row) => (scoreOf({ row, parts }, false) - 1) / 4,
  tables: (answers) => {
    const isFree = answers.some(({ row }) => has(row, 'consistency_free'));
    const line = (name: string, own: readonly BenchmarkAnswer[]): BenchmarkLine =>
      lineOf(name, own, (scored) => valuesOf(scored, isFree));
    const groups = (column: string, of: readonly BenchmarkAnswer[]): BenchmarkLine[] =>
      [...byColumn(of, column)].map(([name, own]) => line(name, own));
    const withSubtask = answers.filter(({ row }) => has(row, 'subtask'));
    return [
      { title: 'by category', columns, lines: [line('overall', answers), ...groups('task_type', answers)] },
      ...(withSubtask.length === 0 ? [] : [{ title: 'by subtask', columns, lines: groups('subtask', withSubtask) }]),
    ];
  },
});

function textOf(row: Row, word: string): string {
  if (word === 'instruct') return wordsAt(row, 'instruction');
  return wordsAt(row, has(row, 'reference_text') ? 'reference_text' : 'reference');
}

/** The scores of a logical task as 1 and 5. */
function onFive({ row, parts }: Scored): ScoreParts {
  if (row['task_type'] !== 'logical_reasoning') return parts;
  return Object.fromEntries(Object.entries(parts).map(([part, score]) => [part, 4 * Math.min(score, 1) + 1]));
}

/** The score of an edit from 1 to 5. `isFree`: the script's weights for a dataset in which some edits need no consistency. */
function scoreOf(answer: Scored, isFree: boolean): number {
  const { reasoning, consistency, plausibility } = onFive(answer);
  const score =
    answer.row['task_type'] === 'logical_reasoning'
      ? 0.3 * consistency + 0.7 * reasoning
      : isFree || has(answer.row, 'consistency_free')
        ? 0.2 * plausibility + 0.8 * reasoning
        : 0.3 * consistency + 0.5 * reasoning + 0.2 * plausibility;
  return reasoning === 1 ? Math.max(1, score * 0.5) : score;
}

function valuesOf(scored: readonly Scored[], isFree: boolean): readonly (number | null)[] {
  const converted = scored.map((answer) => ({ ...answer, parts: onFive(answer) }));
  const score = meanOf(scored.map((answer) => scoreOf(answer, isFree)));
  return [
    ...['reasoning', 'consistency', 'plausibility'].map((part) => partMean(converted, part)),
    score,
    score === null ? null : 25 * (score - 1),
    meanOf(converted.map(({ parts }) => Number(Object.values(parts).every((part) => part === 5)))),
  ];
}
