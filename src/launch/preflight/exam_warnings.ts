/** Warnings from exams of the judges that score runs. */
import type { LoadedConfig } from '../../config/load.js';
import { rewardOf } from '../../recipes/settings.js';
import { examsOf } from '../../run/exams.js';
import { summaryOf } from '../../run/report/exam.js';

/** One sentence for each reward whose latest exam found a fault, or that GRPO would learn little from it. */
export function examWarnings(runs: readonly LoadedConfig[]): string[] {
  const found = new Set<string>();
  for (const { settings } of runs) {
    const reward = rewardOf(settings);
    const exam = reward === null ? undefined : examsOf(settings.base_exp_dir, reward).at(-1);
    if (reward === null || exam === undefined) continue;
    const { teaches, faults, sentences, folder } = summaryOf(exam);
    if ((teaches === 'yes' || teaches === 'unknown') && faults.length === 0) continue;
    found.add(`the exam of the judge '${exam.record.reward.model}' says: ${sentences.join(' ')} (${folder})`);
  }
  return [...found];
}
