/** An exam's marks, tests and costs as rows of tables. */
import { showEstimate } from '../../core/estimate.js';
import type { ExamRecord } from '../exams.js';

/** Name, value and meaning of each mark. */
export function examMarkRows({ marks }: ExamRecord): string[][] {
  const noise =
    marks.noise === null
      ? []
      : [['noise', marks.noise.toFixed(3), 'standard deviation of scores of one picture, of 1']];
  return [
    ['signal', showEstimate(marks.signal), 'fidelity times the root of the share understood'],
    ['understood', showEstimate(marks.understood), 'share of questions that got a score'],
    ['agreement', showEstimate(marks.agreement), 'share of pairs in the right order'],
    ['fidelity', showEstimate(marks.fidelity), 'correlation of scores with quality in a case'],
    ['reliability', showEstimate(marks.reliability), 'share of the variance that is no noise'],
    ...noise,
    ['teaching', showEstimate(marks.teaching), 'share of cases that differ by more than noise'],
  ];
}

/** What each test looked at, what it found and what is allowed; the name of its fault where the judge has it. */
export function examTestRows({
  marks,
}: ExamRecord): { readonly cells: readonly string[]; readonly fault: string | null }[] {
  return marks.findings.map(({ name, what, estimate, allowed, accused }) => ({
    cells: [what, showEstimate(estimate), allowed],
    fault: accused ? name : null,
  }));
}

/** How many judgements there were, what they took, and which had no scores. */
export function judgementsText({ judgements }: ExamRecord): string {
  const { count, requests, mean_seconds: seconds, problems } = judgements;
  const without = Object.entries(problems).map(([reason, lost]) => `${lost} ${reason}`);
  const lost = without.length === 0 ? '' : `; without scores: ${without.join(', ')}`;
  return `${count} judgements, ${requests} requests, ${seconds.toFixed(3)} s each${lost}`;
}
