/**
 * KRIS-Bench (Wu et al., 2025, arXiv 2505.16707): separate questions of 1 to 5 for consistency, instruction and quality, and for knowledge in ten
 * categories. Questions and images are those of its `metrics_*.py`. The repository has no script for the means: as in its tables, scores become
 * 0 to 100, and an edit counts with the mean of its own.
 */
import type { Row } from '../../data/types.js';
import type { ReplyForm } from '../judge/forms.js';
import type { ImageName, Placeholders } from '../judge/template.js';
import type { ScoreParts } from '../score/types.js';
import { average } from '../../core/statistics.js';
import {
  benchmark,
  type BenchmarkAnswer,
  type BenchmarkLine,
  type BenchmarkQuestion,
  type LabeledImages,
} from './benchmark.js';
import { byColumn, lineOf, meanOf, partMean, sourcesAt, textAt, wordsAt, type Scored } from './numbers.js';

const pair = { images: ['source', 'edited'], words: ['instruct'] } as const;
const several = { images: ['sequence'], words: ['instruct'] } as const;
const files = {
  kris_consistency: pair,
  kris_instruction: pair,
  kris_anomaly: { images: ['source', 'edited'], words: ['instruct', 'explanation'] },
  kris_knowledge: { images: ['source', 'edited'], words: ['instruct', 'explanation'] },
  kris_view: { images: ['source', 'edited', 'reference'], words: ['instruct'] },
  kris_quality: { images: ['edited'], words: [] },
  kris_quality_several: { images: ['edited'], words: [] },
  kris_consistency_several: several,
  kris_instruction_several: several,
  kris_consistency_frames: several,
  kris_instruction_frames: several,
} as const satisfies Record<string, Placeholders<ImageName>>;
type File = keyof typeof files;

const knowledge: ReadonlySet<string> = new Set([
  'abstract_reasoning',
  'mathematics',
  'practical_knowledge',
  'medicine',
  'rule-based_reasoning',
  'biology',
  'geography',
  'chemistry',
  'humanities',
  'physics',
]);

const columns = ['consistency', 'instruction', 'quality', 'knowledge', 'score (0-100)'] as const;
const FRAMES = 4;

export const kris = benchmark({
  name: 'kris',
  title: 'KRIS-Bench',
  repository: 'mercurystraw/Kris_Bench',
  judge: 'gpt-4o',
  manner: { temperature: 1, maxCompletionTokens: 1000 },
  fields: {},
  prompts: files,
  inSourceSize: false,
  differences: [
    'The published client sends no temperature, which is 1 at OpenAI, and JPEG.',
    'It takes the first digit of a reply without the requested field.',
    'Its repository has no script for the means.',
  ],
  asks: () => ['kris_consistency', 'kris_instruction', 'kris_quality'],
  questions: (row) => {
    const { consistency, instruction, quality } = filesOf(wordsAt(row, 'task_type'));
    const [source] = sourcesAt(row);
    const ask = (name: string, prompt: File, names: readonly string[]): BenchmarkQuestion => {
      const { images, words }: Placeholders<ImageName> = files[prompt];
      return {
        name: `kris_${name}`,
        prompt,
        words: Object.fromEntries(words.map((word) => [word, wordOf(row, word)])),
        images: Object.fromEntries(images.map((image) => [image, shownOf(row, image, source)])),
        form: { kind: 'named', names: names.map((one) => `${one}_score`), scale: [1, 5] } satisfies ReplyForm,
        parts: names,
      };
    };
    return [
      ask('consistency', consistency, ['consistency']),
      ask(
        'instruction',
        instruction,
        instruction === 'kris_knowledge' ? ['instruction', 'knowledge'] : ['instruction'],
      ),
      ask('quality', quality, ['quality']),
    ];
  },
  value: (parts) => (average(Object.values(parts)) - 1) / 4,
  tables: (answers) => {
    const line = (name: string, own: readonly BenchmarkAnswer[]): BenchmarkLine => lineOf(name, own, valuesOf);
    const categories = [...byColumn(answers, 'task_type')].map(([name, own]) => line(name, own));
    return [{ title: 'by category', columns, lines: [...categories, line('all edits', answers)] }];
  },
});

interface Asked {
  readonly consistency: File;
  readonly instruction: File;
  readonly quality: File;
}

function filesOf(category: string): Asked {
  const quality = 'kris_quality';
  const consistency = 'kris_consistency';
  switch (category) {
    case 'multi-element_composition':
      return {
        consistency: 'kris_consistency_several',
        instruction: 'kris_instruction_several',
        quality: 'kris_quality_several',
      };
    case 'temporal_prediction':
      return {
        consistency: 'kris_consistency_frames',
        instruction: 'kris_instruction_frames',
        quality: 'kris_quality_several',
      };
    case 'viewpoint_change':
      return { consistency, instruction: 'kris_view', quality };
    case 'anomaly_correction':
      return { consistency, instruction: 'kris_anomaly', quality };
    default:
      return { consistency, instruction: knowledge.has(category) ? 'kris_knowledge' : 'kris_instruction', quality };
  }
}

/** Many edits have no explanation. */
function wordOf(row: Row, word: string): string {
  return word === 'instruct' ? wordsAt(row, 'instruction') : (textAt(row, 'explanation') ?? '');
}

function shownOf(row: Row, image: ImageName, source: string): BenchmarkQuestion['images'][ImageName] {
  switch (image) {
    case 'edited':
      return 'edited';
    case 'reference':
      return { file: wordsAt(row, 'reference_image') };
    case 'sequence':
      return row['task_type'] === 'temporal_prediction' ? framesOf(row) : elementsOf(row);
    case 'source':
    case 'first':
    case 'second':
      return { file: source };
  }
}

function elementsOf(row: Row): LabeledImages {
  const given = sourcesAt(row).map((file, i) => ({ label: `Reference Image ${i + 1}:`, image: { file } }));
  return [...given, { label: 'Predicted Image:', image: 'edited' }];
}

/** The frames in their order, with the predicted one in its place. Their numbers end the names of the files: `12-3.jpg`. */
function framesOf(row: Row): LabeledImages {
  const given = sourcesAt(row).map((file) => ({ file, frame: Number(/(\d+)-(\d+)\.\w+$/.exec(file)?.[2] ?? NaN) }));
  const all = Array.from({ length: FRAMES }, (_, i) => i + 1);
  const missing = all.filter((frame) => given.every((one) => one.frame !== frame));
  const known = given.map(({ frame }) => frame).filter((frame) => !Number.isNaN(frame));
  const predicted = missing.length === 1 ? missing[0] : Math.max(0, ...known) + 1;
  const labeled = [
    ...given.map(({ file, frame }) => ({ frame, label: `Frame ${frame} (Reference):`, image: { file } })),
    { frame: predicted, label: `Frame ${predicted} (Generated):`, image: 'edited' as const },
  ];
  return labeled.sort((one, other) => one.frame - other.frame).map(({ label, image }) => ({ label, image }));
}

function valuesOf(scored: readonly Scored[]): readonly (number | null)[] {
  const score = meanOf(scored.map(({ parts }: { readonly parts: ScoreParts }) => average(Object.values(parts))));
  return [
    ...['consistency', 'instruction', 'quality', 'knowledge'].map((part) => partMean(scored, part)),
    score === null ? null : 25 * (score - 1),
  ];
}
