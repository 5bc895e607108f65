/** The report page of a judge exam: the verdict, example answers with their rewards, marks and tests. */
import { showEstimate } from '../../core/estimate.js';
import type { ExamRecord } from '../../run/exams.js';
import { drawExamSheet, type ShownCase } from '../../run/report/exam_sheet.js';
import { examCostRows, examMarkRows, examTestRows, judgementsText } from '../../run/report/exam.js';
import type { WireReport } from '../wire.js';
import { reportCurves } from '../curves.js';
import { reportDocument } from './document.js';
import { code, paragraph, table } from './parts.js';

/** The exam as a self-contained page. `cases` are examples with the same answers, and `text` is the terminal version. */
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
    about: [`${marks.cases} cases from ${set}, ${repeats} judgements per answer, reward ${reward.name} `, code(folder)],
    run: null,
    facts: [
      { name: 'signal', value: showEstimate(marks.signal), more: 'fidelity times the square root of understood' },
      {
        name: 'fidelity',
        value: showEstimate(marks.fidelity),
        more: 'correlation of scores with quality within a case',
      },
      { name: 'agreement', value: showEstimate(marks.agreement), more: 'share of answer pairs in the right order' },
      { name: 'understood', value: showEstimate(marks.understood), more: 'share of questions with a score' },
    ],
    notice: null,
    leading: null,
    scale: null,
    changes: null,
    curves: reportCurves([], null),
    sections: [
      { title: 'Verdict', blocks: verdict.sentences.map((sentence) => paragraph(sentence)) },
      { title: 'Example rewards', blocks: said.blocks },
      {
        title: 'Tests',
        blocks: [table('Tests', { titles: ['test', 'value', 'allowed', ''], rows: testRows(record) })],
      },
      {
        title: 'Marks',
        blocks: [table('Marks', { titles: ['mark', 'value', 'meaning'], rows: examMarkRows(record) })],
      },
      {
        title: 'Costs',
        blocks: [
          table('Costs', { titles: ['cost', 'value', 'meaning'], rows: examCostRows(record) }),
          paragraph(judgementsText(record)),
        ],
      },
    ],
    images: said.images,
  };
  return reportDocument(`Exam of ${reward.model}`, report, text);
}

/** The cases as one image, or as a table if the answers are text. */
async function answersShown(
  cases: readonly ShownCase[],
  model: string,
): Promise<{ readonly blocks: WireReport['sections'][number]['blocks']; readonly images: readonly string[] }> {
  const caption = `Mean rewards from 0 to 1 by ${model}`;
  if (cases.some(({ exam }) => exam.source === null)) {
    const rows = cases.flatMap(({ exam, record }) =>
      exam.answers.map(({ name, made }, at) => {
        const score = record.scores[name] ?? null;
        const [asked, answer] = [at === 0 ? exam.instruction : '', typeof made === 'string' ? made : ''];
        return [asked, name.replaceAll('_', ' '), answer, score === null ? 'no score' : score.toFixed(2)];
      }),
    );
    return { blocks: [table(caption, { titles: ['question', '', 'answer', 'reward'], rows })], images: [] };
  }
  const sheet = await drawExamSheet(cases, caption);
  return {
    blocks: [{ kind: 'images', title: 'Edits with their rewards', images: [{ label: 'first cases', at: 0 }] }],
    images: [`data:image/png;base64,${Buffer.from(sheet).toString('base64')}`],
  };
}

function testRows(record: ExamRecord): (string | { readonly text: string; readonly as: 'bad' })[][] {
  return examTestRows(record).map(({ cells, verdict, isFault }) => [
    ...cells,
    isFault ? { text: verdict, as: 'bad' } : verdict,
  ]);
}
