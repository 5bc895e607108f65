/**
 * `spent.jsonl`: the tokens that a run's training server processed, over all attempts. Resuming from an earlier checkpoint does not reduce the count.
 */
import { z } from 'zod';
import { RunError } from '../core/errors.js';
import { LogWriter, withLog } from '../core/log.js';
import type { Metrics } from './metrics.js';
import type { RunPaths } from './paths.js';

/** Kinds of tokens: prompts and forward passes, sampled answers, and training passes. */
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

/** The sums since the start of the run. */
export type SpendingTotals = z.output<typeof line>;

type SpentPaths = Pick<RunPaths, 'spent'>;

/** Null for a run without a training server. Raises RunError for an unreadable file. */
export function readSpent({ spent }: SpentPaths): SpendingTotals | null {
  const last = withLog(spent, null, (log) => log.last());
  if (last === null) return null;
  const found = line.safeParse(jsonOf(last));
  if (found.success) return found.data;
  throw new RunError('invalid last line', {
    where: spent,
    next: 'Move the file away. The run then starts counting from zero.',
    cause: found.error,
  });
}

/** For example `1,204,000 tokens prefilled, 88,000 sampled, 96,000 trained`. */
export function showSpent({ prefill, sampled, trained }: SpendingTotals): string {
  const [read, written, learned] = [prefill, sampled, trained].map((count) => count.toLocaleString('en-US'));
  return `${read} tokens prefilled, ${written} sampled, ${learned} trained`;
}

const NOTHING: TokenCounts = { prefill: 0, sampled: 0, trained: 0 };

/** Counts the tokens that a run's training server processes. */
export class Spending {
  #sums: SpendingTotals | null;
  #counts: Record<TokenKind, number> = { ...NOTHING };

  /** Raises RunError if the sums of earlier attempts are unreadable. */
  constructor(private readonly paths: SpentPaths) {
    this.#sums = readSpent(paths);
  }

  count(kind: TokenKind, count: number): void {
    this.#counts[kind] += count;
  }

  /** Appends the counts since the last call. Raises RunError for a disk error. */
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

  /** The sums, as metrics of an iteration. Empty before the first request. */
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
