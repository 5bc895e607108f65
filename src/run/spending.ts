/**
 * `spent.jsonl`: what a run has asked of its training server, in tokens, over all of its attempts. Nothing is taken back when a run goes on from an
 * earlier checkpoint.
 */
import { z } from 'zod';
import { RunError } from '../core/errors.js';
import { LogWriter, withLog } from '../core/log.js';
import type { Metrics } from './metrics.js';
import type { RunPaths } from './paths.js';

/** What servers count: reading prompts and passes without a gradient, writing answers, and passes with a gradient. */
export const TOKEN_KINDS = ['prefill', 'sampled', 'trained'] as const;
export type TokenKind = (typeof TOKEN_KINDS)[number];
export type TokenCounts = Readonly<Record<TokenKind, number>>;

const tokens = z.int().min(0);
const line = z.object({
  /** ISO 8601 in UTC. */
  at: z.string(),
  prefill: tokens,
  sampled: tokens,
  trained: tokens,
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

/** As `1,204,000 tokens read, 88,000 written, 96,000 trained on`. */
export function showSpent({ prefill, sampled, trained }: SpendingTotals): string {
  const [read, written, learned] = [prefill, sampled, trained].map((count) => count.toLocaleString('en-US'));
  return `${read} tokens read, ${written} written, ${learned} trained on`;
}

const NOTHING: TokenCounts = { prefill: 0, sampled: 0, trained: 0 };

/** Counts what a run asks of its training server. */
export class Spending {
  #sums: SpendingTotals | null;
  #counts: Record<TokenKind, number> = { ...NOTHING };

  /** Raises RunError if the sums of earlier attempts cannot be read. */
  constructor(private readonly paths: SpentPaths) {
    this.#sums = readSpent(paths);
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

  /** The sums, as metrics of an iteration; none before anything is asked. */
  metrics(): Metrics {
    const { prefill, sampled, trained } = this.#now();
    if (prefill + sampled + trained === 0) return {};
    return {
      'spent/prefill_tokens': prefill,
      'spent/sampled_tokens': sampled,
      'spent/trained_tokens': trained,
    };
  }

  #now(): SpendingTotals {
    const before = this.#sums ?? NOTHING;
    const counts = this.#counts;
    return {
      at: new Date().toISOString(),
      prefill: before.prefill + counts.prefill,
      sampled: before.sampled + counts.sampled,
      trained: before.trained + counts.trained,
    };
  }
}

function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return null;
  }
}
