/** Ends a sweep whose runs together have spent what they may at their training servers. */
import { UsageError } from '../../core/errors.js';
import { RunPaths } from '../../run/paths.js';
import { readSpent, showCost } from '../../run/spending.js';
import { getPath } from '../../schema/paths.js';
import type { PlannedJob } from './plan.js';

const LOOK_MS = 2000;

export interface BudgetWatch {
  /** Aborted once it is spent, or where the runs spend different currencies. */
  readonly signal: AbortSignal;
  close(): void;
}

/** Looks at once, and then again and again. Raises UsageError where no run says what it spends. */
export function watchBudget(jobs: readonly PlannedJob[], budget: number, onSpent: (why: string) => void): BudgetWatch {
  const priced = jobs.filter(({ config }) => typeof getPath(config.settings, 'policy.trainer.prices') === 'string');
  if (priced.length === 0) {
    throw new UsageError(
      `--budget: found ${budget}, and no run has policy.trainer.prices; allowed: with runs that a training server trains, whose prices are known`,
    );
  }
  const over = new AbortController();
  const look = (): void => {
    const spent = priced.flatMap(({ config }) => readSpent(RunPaths.of(config.settings)) ?? []);
    const currencies = [...new Set(spent.flatMap(({ currency }) => currency ?? []))];
    const total = spent.reduce((sum, { cost }) => sum + (cost ?? 0), 0);
    if (over.signal.aborted || (currencies.length <= 1 && total < budget)) return;
    const [currency = null] = currencies;
    onSpent(
      currencies.length > 1
        ? `the runs spend ${currencies.join(' and ')}, which --budget cannot add up`
        : `the budget is spent: ${showCost(total, currency)} of ${showCost(budget, currency)} (--budget)`,
    );
    over.abort();
  };
  look();
  const timer = setInterval(look, LOOK_MS);
  return { signal: over.signal, close: () => clearInterval(timer) };
}
