/** What a judge is examined on: edits of which it is known how good they are. */
import type { RgbImage } from '../../core/image.js';
import { must } from '../../core/errors.js';
import type { AnswerGroup, JudgeItem } from '../score/types.js';
import { nudged, trickNames, tricks, type TrickName } from './tricks.js';

/** One edit of a case. */
export interface ExamAnswer {
  /** What was done to the picture: `right`, or the name of a flaw. */
  readonly name: string;
  /** How good it is, from 0 to 1; null where it is only known to be worse than the best. */
  readonly truth: number | null;
  readonly picture: RgbImage;
}

export type Tricked = Readonly<Record<(typeof tricks)[TrickName]['must'], string>>;

/** One instruction with several edits of its source. */
export interface ExamCase {
  readonly name: string;
  readonly instruction: string;
  /** The same request in other words. */
  readonly reworded: string;
  readonly source: RgbImage;
  /** The best comes first. */
  readonly answers: readonly ExamAnswer[];
  /** Names of the answers on which tricks are tried, by what a judge must not do. */
  readonly tricked: Tricked;
  /** The labelled result, for rewards that compare with one; null if there is none. */
  readonly labelled: RgbImage | null;
}

/** Name of the answer that is the source itself. */
export const COPY = 'copy';

/** The cases of an exam, made one by one. */
export interface ExamSet {
  readonly name: string;
  readonly length: number;
  /** Whether its cases have labelled results. */
  readonly labelled: boolean;
  at(index: number): Promise<ExamCase>;
}

/** One question of a case: an answer as it is, or changed by a trick. */
export interface ExamItem {
  readonly answer: string;
  /** Null: nothing that anyone could see is changed. */
  readonly trick: TrickName | null;
  readonly item: JudgeItem;
  /** What rewards that compare answers compare it with. */
  readonly group: AnswerGroup;
}

/**
 * Everything that is asked about a case. Each answer is asked about `repeats` times with a few pixels changed by one level, so that neither a cache nor
 * a fixed seed makes the replies equal: where a judge differs then, it is noise. Every trick is tried once. Rewards that compare answers are given
 * those of one repeat as a group, and beside the answer that a trick is played on the others of the case.
 */
export async function itemsOf(exam: ExamCase, repeats: number): Promise<ExamItem[]> {
  const { name, source, labelled } = exam;
  const item = (key: string, edited: RgbImage, instruction: string): JudgeItem => ({
    key: `exam/${name}/${key}`,
    instruction,
    source,
    edited,
    truth: labelled,
    finished: true,
  });
  const everyAnswer = (turn: string, repeat: number, instruction: string): JudgeItem[] =>
    exam.answers.map(({ name: answer, picture }) =>
      item(`${turn}/${answer}`, nudged(picture, [name, answer, repeat]), instruction),
    );
  const repeated = Array.from({ length: repeats }, (_, r) => {
    const group: AnswerGroup = { answers: everyAnswer(String(r), r, exam.instruction), ruledOut: 0 };
    return group.answers.map((asked, i): ExamItem => ({
      answer: exam.answers[i].name,
      trick: null,
      item: asked,
      group,
    }));
  });
  const played = trickNames.map(async (trick): Promise<ExamItem> => {
    const { change, must: mustNot } = tricks[trick];
    const answer = exam.tricked[mustNot];
    const { picture } = must(
      exam.answers.find(({ name: one }) => one === answer),
      'the answer that a trick is played on',
    );
    const instruction = change === null ? exam.reworded : exam.instruction;
    const tricked = item(`${trick}/${answer}`, change === null ? picture : await change(picture), instruction);
    const others = everyAnswer(trick, 0, instruction).filter(({ key }) => key !== tricked.key);
    return { answer, trick, item: tricked, group: { answers: [tricked, ...others], ruledOut: 0 } };
  });
  return [...repeated.flat(), ...(await Promise.all(played))];
}
