/** A benchmark as a term: its questions about an edit, in the words of prompt files. */
import { join, resolve } from 'node:path';
import { z } from 'zod';
import { must } from '../../../core/errors.js';
import { DataError } from '../../../core/errors.js';
import type { RgbImage } from '../../../core/images/image.js';
import { result } from '../../../core/schema/mark.js';
import type { Row } from '../../../data/types.js';
import type { Benchmark, BenchmarkImage, BenchmarkQuestion, LabeledImages } from '../../benchmarks/benchmark.js';
import { parseReply, type ReplyForm } from '../../judge/forms.js';
import type { JudgeImage } from '../../judge/images.js';
import type { Judge } from '../../judge/judge.js';
import {
  fillTemplate,
  readTemplate,
  type ImageName,
  type PromptTemplate,
  type ShownImage,
} from '../../judge/template.js';
import type { JudgeItem, Judgement, Outcome, ScoreOptions, ScoreParts } from '../../score/types.js';
import { termKind, type Term, type TermKind } from '../term.js';
import { modelField } from './prompted.js';

/** The fields of every benchmark. */
function commonFields(name: string, repository: string) {
  return {
    folder: result(
      `The folder that \`editrl data bench\` wrote, with the prompts of \`python scripts/judge_prompts.py ${name} CLONE FOLDER/prompts\` (CLONE: a clone of https://github.com/${repository}).`,
      z.string().min(1),
    ),
    model: modelField,
  };
}
type CommonFields = ReturnType<typeof commonFields>;

/** The term of a benchmark. Its value is from 0 to 1, and its parts are the judge's scores on the benchmark's own scale. */
export function benchmarkTerm<Name extends string, Fields extends z.ZodRawShape>(
  benchmark: Benchmark<Name, Fields>,
): TermKind<Name, CommonFields & Fields> {
  const { name, title, repository, manner, prompts } = benchmark;
  return termKind({
    name,
    description: `${title}: its published questions to the judge, as a value from 0 to 1. For \`editrl evaluate --benchmark ${name}\`.`,
    fields: { ...commonFields(name, repository), ...benchmark.fields },
    reads: 'image',
    needs: { judge: true, truth: false, source: true },
    judgesSeveral: true,
    replyTokens: manner.maxCompletionTokens,
    asksModel: true,
    asks: (settings) => benchmark.asks(settings as z.output<z.ZodObject<Fields>>),
    async create(settings, services): Promise<Term> {
      const { folder, model } = settings as unknown as { readonly folder: string; readonly model: string | null };
      const templates = new Map(
        Object.entries(prompts).map(([prompt, placeholders]) => [
          prompt,
          readTemplate(join(folder, 'prompts', `${prompt}.txt`), placeholders, {
            where: `reward.terms, ${name}.folder`,
            next: `Write it: python scripts/judge_prompts.py ${name} CLONE ${join(folder, 'prompts')}, with CLONE a clone of https://github.com/${repository}.`,
          }),
        ]),
      );
      const judges = { usual: services.judge(model ?? undefined), own: (own: string) => services.judge(own) };
      const { unscoredOutcome } = await import('../../score/judged_item.js');
      const { isShowable } = await import('../../judge/images.js');
      const shown = await imageReader(folder, benchmark.inSourceSize);

      async function score(item: JudgeItem, signal?: AbortSignal, options?: ScoreOptions): Promise<Outcome> {
        const row = rowOf(item);
        const questions = benchmark.questions(row, settings as z.output<z.ZodObject<Fields>>);
        const { edited } = item;
        if (edited === null || !isShowable(edited)) {
          return { kind: 'zero_by_rule', reason: 'undecodable', parts: {} };
        }
        const images = shown(item.key, row, edited);
        const judgements = await Promise.all(
          questions.map(async (question): Promise<Judgement> => {
            const judge: Judge = question.model === undefined ? judges.usual : judges.own(question.model);
            const template = must(templates.get(question.prompt), `a prompt file '${question.prompt}'`);
            return judge.ask(await queryOf(item.key, question, template, images), signal, options);
          }),
        );
        const parts: Record<string, number> = {};
        questions.forEach((question, i) => {
          if (judgements[i].problem === null) Object.assign(parts, partsOf(name, question, judgements[i].scores));
        });
        const unscored = unscoredOutcome(judgements, parts);
        if (unscored !== null) return unscored;
        const value = benchmark.value(ownParts(name, parts), row);
        return { kind: 'scored', value, normalised: value, parts };
      }

      return { name, score, close: async () => {} };
    },
  });

  async function queryOf(
    key: string,
    { name: question, words, images, form }: BenchmarkQuestion,
    template: PromptTemplate<ImageName>,
    shown: (image: BenchmarkImage | LabeledImages) => Promise<ShownImage>,
  ) {
    const entries = Object.entries(images).map(async ([place, image]) => [place, await shown(image)] as const);
    return {
      key: `${key}/${question}`,
      messages: fillTemplate(
        template,
        words,
        Object.fromEntries(await Promise.all(entries)) as Record<ImageName, ShownImage>,
      ),
      format: null,
      ...manner,
      parse: (reply: string, cutOff?: boolean) => parseReply(form, reply, cutOff),
    };
  }
}

/** The parts of a benchmark's outcome without the term's name. */
export function ownParts(name: string, parts: ScoreParts): ScoreParts {
  const start = `${name}/`;
  return Object.fromEntries(
    Object.entries(parts).flatMap(([part, score]) =>
      part.startsWith(start) ? [[part.slice(start.length), score]] : [],
    ),
  );
}

/** The parts of an edit that is no image: the lowest score of every question. */
export function worstParts(questions: readonly BenchmarkQuestion[]): ScoreParts {
  return Object.fromEntries(
    questions.flatMap(({ parts, form }) => parts.flatMap((part) => (part === null ? [] : [[part, lowestOf(form)]]))),
  );
}

function lowestOf(form: ReplyForm): number {
  return form.kind === 'winner' ? 0 : form.scale[0];
}

function partsOf(name: string, { parts }: BenchmarkQuestion, scores: readonly (number | null)[]): ScoreParts {
  return Object.fromEntries(
    parts.flatMap((part, i) => (part === null ? [] : [[`${name}/${part}`, must(scores[i], 'a score of a benchmark')]])),
  );
}

function rowOf({ row, key }: JudgeItem): Row {
  if (row !== undefined) return row;
  throw new DataError('a benchmark needs the rows of its dataset, and this recipe has none', {
    where: key,
    next: 'Evaluate a run of image_editor or edit_response on the files of: editrl data bench.',
  });
}

/** Reads the images of a benchmark's folder, and puts the edit in the size of the source. */
async function imageReader(folder: string, inSourceSize: boolean) {
  const [{ judgeImage }, { readFitted }, { resizeCubic }, { sourcesAt, textAt }] = await Promise.all([
    import('../../judge/images.js'),
    import('../../../data/image_files.js'),
    import('../../../core/images/resize.js'),
    import('../../benchmarks/numbers.js'),
  ]);
  return (key: string, row: Row, edited: RgbImage) => {
    const read = async (file: string): Promise<RgbImage> =>
      (await readFitted(resolve(folder, file), `${key}, ${file}`, null)).image;
    const one = async (image: BenchmarkImage): Promise<JudgeImage> => {
      if (image !== 'edited') return judgeImage(await read(image.file), `${key}, ${image.file}`);
      if (!inSourceSize) return judgeImage(edited, `${key}, edited image`);
      const { width, height } = await read(textAt(row, 'shown_source') ?? sourcesAt(row)[0]);
      const isSame = width === edited.width && height === edited.height;
      return judgeImage(isSame ? edited : resizeCubic(edited, width, height), `${key}, edited image`);
    };
    return async (image: BenchmarkImage | LabeledImages): Promise<ShownImage> => {
      if (!isLabeled(image)) return one(image);
      return (await Promise.all(image.map(async ({ label, image: own }) => [label, await one(own)]))).flat();
    };
  };
}

function isLabeled(image: BenchmarkImage | LabeledImages): image is LabeledImages {
  return Array.isArray(image);
}
