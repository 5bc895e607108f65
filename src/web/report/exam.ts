/** The page of an exam: the verdict, answers with what the judge said of them, marks and tests. */
import { showEstimate } from '../../core/estimate.js';
import type { ExamRecord } from '../../run/exams.js';
import { drawExamSheet, type ShownCase } from '../../run/report/exam_sheet.js';
import { examCostRows, examMarkRows, examTestRows, judgementsText } from '../../run/report/exam.js';
import type { WireReport } from '../wire.js';
import { reportCurves } from '../curves.js';
import { reportDocument } from './document.js';
import { code, paragraph, table } from './parts.js';

/** The exam as a self-contained page; `cases` are some to look at, of equal answers, and `text` is what a terminal shows. */
export async function examFile(
  record: ExamRecord,
  folder: string,
  cases: readonly ShownCase[],
  text: string,
): Promise<string> {
  const { reward, marks, verdict, repeats, set } = record;
  const said = await answersShown(cases, reward.model);
  const report: WireReport = {
    heading: `Exam of ${reward.model}`,
    about: [`${marks.cases} cases of ${set}, each answer ${repeats} times, by ${reward.name} `, code(folder)],
    run: null,
    facts: [
      { name: 'signal', value: showEstimate(marks.signal), more: 'fidelity times the root of the share understood' },
      { name: 'fidelity', value: showEstimate(marks.fidelity), more: 'correlation of scores with quality in a case' },
      { name: 'agreement', value: showEstimate(marks.agreement), more: 'share of pairs in the right order' },
      { name: 'understood', value: showEstimate(marks.understood), more: 'share of questions that got a score' },
    ],
    notice: null,
    leading: null,
    scale: null,
    changes: null,
    curves: reportCurves([], null),
    sections: [
      { title: 'Verdict', blocks: verdict.sentences.map((sentence) => paragraph(sentence)) },
      { title: 'What it said', blocks: said.blocks },
      {
        title: 'Tests',
        blocks: [table('Tests', { titles: ['test', 'found', 'allowed', ''], rows: testRows(record) })],
      },
      {
        title: 'Marks',
        blocks: [table('Marks', { titles: ['mark', 'value', 'what it is'], rows: examMarkRows(record) })],
      },
      {
        title: 'Costs',
        blocks: [
          table('Costs', { titles: ['cost', 'value', 'what it is'], rows: examCostRows(record) }),
          paragraph(judgementsText(record)),
        ],
      },
    ],
    pictures: said.pictures,
  };
  return reportDocument(`Exam of ${reward.model}`, report, text);
}

/** The cases as one picture; those in words as a table. */
async function answersShown(
  cases: readonly ShownCase[],
  model: string,
): Promise<{ readonly blocks: WireReport['sections'][number]['blocks']; readonly pictures: readonly string[] }> {
  const caption = `Mean rewards from 0 to 1 by ${model}`;
  if (cases.some(({ exam }) => exam.source === null)) {
    const rows = cases.flatMap(({ exam, record }) =>
      exam.answers.map(({ name, made }, at) => {
        const score = record.scores[name] ?? null;
        const [asked, answer] = [at === 0 ? exam.instruction : '', typeof made === 'string' ? made : ''];
        return [asked, name.replaceAll('_', ' '), answer, score === null ? 'no score' : score.toFixed(2)];
      }),
    );
    return { blocks: [table(caption, { titles: ['question', '', 'answer', 'reward'], rows })], pictures: [] };
  }
  const sheet = await drawExamSheet(cases, caption);
  return {
    blocks: [{ kind: 'pictures', title: 'Edits with their rewards', pictures: [{ label: 'the first cases', at: 0 }] }],
    pictures: [`data:image/png;base64,${Buffer.from(sheet).toString('base64')}`],
  };
}

function testRows(record: ExamRecord): (string | { readonly text: string; readonly as: 'bad' })[][] {
  return examTestRows(record).map(({ cells, verdict, isFault }) => [
    ...cells,
    isFault ? { text: verdict, as: 'bad' } : verdict,
  ]);
}
