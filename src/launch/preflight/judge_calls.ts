/** Whether what a run has left to ask judges fits into `reward.max_judge_calls`. */
import { ConfigError } from '../../core/errors.js';
import { storedCalls } from '../../run/exchanges.js';
import { RunPaths } from '../../run/paths.js';
import { readState } from '../../run/state.js';
import type { RunSettings } from '../../schema/run.js';
import { judgeQuestions } from '../judge_questions.js';

/**
 * Raises ConfigError where the requests so far and the forecast of those that are left come to more than `most`: such a run would pause half way. Answers
 * that are stored for what comes next are not asked for again. `startsOver`: its folder will be moved away.
 */
export function checkJudgeCalls(settings: RunSettings, most: number, startsOver: boolean): void {
  const paths = RunPaths.of(settings);
  const done = startsOver ? 0 : (readState(paths)?.iteration ?? 0);
  const questions = judgeQuestions(settings, done);
  if (questions === null) return;
  // The evaluation before the first iteration is among what is left of a run that has not come to that.
  const from = done === 0 ? 0 : done + 1;
  const { requests, known } = startsOver ? { requests: 0, known: 0 } : storedCalls(paths.judgements, from);
  const left = Math.max(0, questions.forecast - known);
  if (left === 0 || requests + left <= most) return;
  const iterations = settings.num_iterations - done;
  const before = requests === 0 ? '' : ` after ${shown(requests)} requests so far`;
  throw new ConfigError(
    `${settings.run_name} has about ${shown(left)} questions to ask judges in the ${shown(iterations)} iterations left${before}, and may send ${shown(most)} requests in all`,
    {
      where: 'reward.max_judge_calls',
      next: `Set reward.max_judge_calls to at least ${shown(requests + left)} (replies that have to be asked for again count, too) or to null, or lower num_iterations.`,
    },
  );
}

/** As `12,000`. */
function shown(count: number): string {
  return count.toLocaleString('en-US');
}
