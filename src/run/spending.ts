/**
 * `spent.jsonl`: what a run has asked of its training server, in tokens and money, over all of its attempts. What was spent stays spent: nothing is taken
 * back when a run goes on from an earlier checkpoint.
 */
import { z } from 'zod';
import { RunError } from '../core/errors.js';
import { withLog } from '../core/log/reader.js';
import { LogWriter } from '../core/log/writer.js';
import type { Metrics } from './metrics.js';
import type { RunPaths } from './paths.js';

/** What servers charge for: reading prompts and passes without a gradient, writing answers, and passes with a gradient. */
export const TOKEN_KINDS = ['prefill', 'sampled', 'trained'] as const;
export type TokenKind = (typeof TOKEN_KINDS)[number];
export type TokenCounts = Readonly<Record<TokenKind, number>>;

/** What a million tokens of each kind cost. */
export interface Price {
  readonly currency: string;
  readonly perMillion: TokenCounts;
}

const tokens = z.int().min(0);
const line = z.object({
  /** ISO 8601 in UTC. */
  at: z.string(),
  prefill: tokens,
  sampled: tokens,
  trained: tokens,
  /** Null where no price was known. */
  cost: z.number().min(0).nullable(),
  currency: z.string().nullable(),
});

/** The sums since the run began. */
export type SpendingTotals = z.output<typeof line>;

type SpentPaths = Pick<RunPaths, 'spent'>;

/** Null for a run that has asked nothing of a training server. Raises RunError where it cannot be read. */
export function readSpent({ spent }: SpentPaths): SpendingTotals | null {
  const last = withLog(spent, null, (log) => log.last());
  if (last === null) return null;
  const found = line.safeParse(jsonOf(last));
  if (found.success) return found.data;
  throw new RunError('the last line is not what this program writes', {
    where: spent,
    next: 'Move the file away: the run begins to count anew.',
    cause: found.error,
  });
}

/** As `1,204,000 tokens read, 88,000 written, 96,000 trained on: 0.42 USD`. */
export function showSpent({ prefill, sampled, trained, cost, currency }: SpendingTotals): string {
  const [read, written, learnt] = [prefill, sampled, trained].map((count) => count.toLocaleString('en-US'));
  const price = cost === null ? '' : `: ${showCost(cost, currency)}`;
  return `${read} tokens read, ${written} written, ${learnt} trained on${price}`;
}

/** Two digits, and for less than a hundredth as many as tell it from nothing. */
export function showCost(cost: number, currency: string | null): string {
  const shown = cost > 0 && cost < 0.01 ? cost.toPrecision(1) : cost.toFixed(2);
  return currency === null ? shown : `${shown} ${currency}`;
}

/** What tokens cost. */
export function costOf(counts: TokenCounts, { perMillion }: Price): number {
  return TOKEN_KINDS.reduce((sum, kind) => sum + (counts[kind] * perMillion[kind]) / 1e6, 0);
}

const NOTHING: TokenCounts = { prefill: 0, sampled: 0, trained: 0 };

/** Counts what a run spends. */
export class Spending {
  #sums: SpendingTotals | null;
  #counts: Record<TokenKind, number> = { ...NOTHING };
  #price: Price | null = null;
  #budget: number | null = null;

  /** Raises RunError where what was spent before cannot be read. */
  constructor(private readonly paths: SpentPaths) {
    this.#sums = readSpent(paths);
  }

  /** Sets what tokens cost from here on, and where to stop. What was counted without a price is taken to have cost the same. */
  limit(price: Price | null, budget: number | null): void {
    this.#price = price;
    this.#budget = budget;
  }

  count(kind: TokenKind, count: number): void {
    this.#counts[kind] += count;
  }

  /** Appends what was counted since the last time. Raises RunError when the disk refuses. */
  save(): void {
    if (TOKEN_KINDS.every((kind) => this.#counts[kind] === 0)) return;
    this.#sums = this.#now();
    this.#counts = { ...NOTHING };
    const file = new LogWriter(this.paths.spent, (text) => line.safeParse(jsonOf(text)).success);
    try {
      file.appendLine(JSON.stringify(this.#sums));
      file.sync();
    } finally {
      file.close();
    }
  }

  /** The sums, as metrics of an iteration; none before anything is spent. */
  metrics(): Metrics {
    const { prefill, sampled, trained, cost } = this.#now();
    if (prefill + sampled + trained === 0) return {};
    return {
      'spent/prefill_tokens': prefill,
      'spent/sampled_tokens': sampled,
      'spent/trained_tokens': trained,
      ...(cost === null ? {} : { 'spent/cost': cost }),
    };
  }

  /** Why the run goes no further: the budget is spent. Null while it is not. */
  over(): string | null {
    const { cost, currency } = this.#now();
    if (this.#budget === null || cost === null || cost < this.#budget) return null;
    return `the budget is spent: ${showCost(cost, currency)} of ${showCost(this.#budget, currency)} (launch.budget)`;
  }

  #now(): SpendingTotals {
    const before = this.#sums ?? { ...NOTHING, cost: null };
    const [counts, price] = [this.#counts, this.#price];
    const sums = {
      prefill: before.prefill + counts.prefill,
      sampled: before.sampled + counts.sampled,
      trained: before.trained + counts.trained,
    };
    const known = before.cost;
    const cost = price === null ? known : known === null ? costOf(sums, price) : known + costOf(counts, price);
    return { at: new Date().toISOString(), ...sums, cost, currency: price?.currency ?? this.#sums?.currency ?? null };
  }
}

function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return null;
  }
}
