/** Cases of a judge exam: edits or text answers of known quality. */
import type { RgbImage } from '../../core/images/image.js';
import { must } from '../../core/errors.js';
import type { AnswerGroup, JudgeItem } from '../score/types.js';
import { played, slightlyChanged, trickNames, tricks, type Made, type TrickName } from './tricks.js';

/** One answer of a case. */
export interface ExamAnswer {
  /** `right`, or the name of its flaw. */
  readonly name: string;
  /** Its quality, from 0 to 1. Null if it is only known to be worse than the best. */
  readonly truth: number | null;
  readonly made: Made;
}

export type Tricked = Readonly<Record<(typeof tricks)[TrickName]['must'], string>>;

/** One instruction with several edits of its source, or one question with several answers. */
export interface ExamCase {
  readonly name: string;
  readonly instruction: string;
  /** The same request in different words. */
  readonly reworded: string;
  /** Null if answers are words. */
  readonly source: RgbImage | null;
  /** The best comes first. */
  readonly answers: readonly ExamAnswer[];
  /** Names of the answers for tricks, by the mistake that a judge must not make. */
  readonly tricked: Tricked;
  /** The labeled result, for rewards that compare with one. Null if there is none. */
  readonly labelled: Made | null;
}

/** The name of the answer that is the source itself. */
export const COPY = 'copy';

/** The name of the answer with the same content as the best one. */
export const OTHER_WORDS = 'other_words';

/** The cases of an exam, generated one at a time. */
export interface ExamSet {
  readonly name: string;
  readonly length: number;
  /** Whether its answers are images or text. */
  readonly reads: 'image' | 'words';
  /** Whether its cases have labeled results. */
  readonly labelled: boolean;
  at(index: number): Promise<ExamCase>;
}

/** One question of a case: an unchanged answer, or one with a trick. */
export interface ExamItem {
  readonly answer: string;
  /** Null for an answer without a trick. */
  readonly trick: TrickName | null;
  readonly item: JudgeItem;
  /** Its group, for rewards that compare answers. */
  readonly group: AnswerGroup;
}

/** An answer in the form that rewards read. */
export function judgeItem(
  key: string,
  { instruction, source, labelled }: Pick<ExamCase, 'instruction' | 'source' | 'labelled'>,
  made: Made,
): JudgeItem {
  const common = { key, instruction, source, finished: true };
  const truth = typeof labelled === 'string' ? null : labelled;
  const expected = typeof labelled === 'string' ? { expected: labelled } : {};
  if (typeof made !== 'string') return { ...common, ...expected, edited: made, truth };
  return { ...common, ...expected, edited: null, truth, answer: made };
}

/**
 * All questions about a case. Each answer occurs `repeats` times, with a few pixels changed by one level or with white
 * space after its words. So neither a cache nor a fixed seed makes the replies equal, and differences between them are
 * noise. Every trick occurs once. Rewards that compare answers get the answers of one repeat as a group, or an answer
 * with a trick together with the other answers of the case.
 */
export async function itemsOf(exam: ExamCase, repeats: number): Promise<ExamItem[]> {
  const { name } = exam;
  const item = (key: string, made: Made, instruction: string): JudgeItem =>
    judgeItem(`exam/${name}/${key}`, { ...exam, instruction }, made);
  const everyAnswer = (turn: string, repeat: number, instruction: string): JudgeItem[] =>
    exam.answers.map(({ name: answer, made }) =>
      item(`${turn}/${answer}`, slightlyChanged(made, [name, answer, repeat]), instruction),
    );
  const repeated = Array.from({ length: repeats }, (_, r) => {
    const group: AnswerGroup = { answers: everyAnswer(String(r), r, exam.instruction), ruledOut: 0 };
    return group.answers.map((judged, i): ExamItem => ({
      answer: exam.answers[i].name,
      trick: null,
      item: judged,
      group,
    }));
  });
  const tricked = trickNames.map(async (trick): Promise<ExamItem[]> => {
    const { change, must: mustNot } = tricks[trick];
    const answer = exam.tricked[mustNot];
    const { made } = must(
      exam.answers.find(({ name: one }) => one === answer),
      'the answer that a trick is played on',
    );
    const changed = await played(trick, made);
    if (changed === null) return [];
    const instruction = change === 'request' ? exam.reworded : exam.instruction;
    const trickItem = item(`${trick}/${answer}`, changed, instruction);
    const others = everyAnswer(trick, 0, instruction).filter(({ key }) => key !== trickItem.key);
    return [{ answer, trick, item: trickItem, group: { answers: [trickItem, ...others], ruledOut: 0 } }];
  });
  return [...repeated.flat(), ...(await Promise.all(tricked)).flat()];
}
