/** Scoring on several ranks: the answers that other ranks got are handed to rank 0 before they are used. */
import type { Judgement, JudgeItem, Outcome } from '../rewards/score/types.js';
import { runOnRankZero } from '../group/rank_zero.js';
import type { ProcessGroup } from '../group/process_group.js';
import type { CallLimit } from './call_limit.js';
import type { Scorer } from './scorer.js';

export interface SharedScoring {
  readonly group: ProcessGroup;
  /** This rank's part of it; on rank 0 its `settle` decides for all. */
  readonly local: Scorer;
  /** New judgements of this rank that are not stored yet; rank 0 stores its own. */
  readonly take: () => Judgement[];
  /** Called on rank 0 with the others' judgements. */
  readonly store: (judgement: Judgement) => void;
  /** Whether these outcomes of all ranks are few enough to be settled. */
  readonly needsSettling: (outcomes: readonly Outcome[]) => boolean;
  /** The limit to the requests of all ranks; null for none. */
  readonly calls: CallLimit | null;
}

/** Each rank asks the judge for its own episodes; rank 0 decides whether enough of all is scored, and what to wait for. */
export function sharedScorer({ group, local, take, store, needsSettling, calls }: SharedScoring): Scorer {
  if (group.size === 1) return local;
  return {
    begin: (items) => local.begin(items),
    settle: async (items, outcomes) => {
      const all = await group.gather({ judgements: take(), outcomes, calls: calls?.report() ?? null });
      const { waits, requests } = await runOnRankZero(group, async () => {
        for (const { judgements } of all ?? []) for (const judgement of judgements) store(judgement);
        return {
          waits: needsSettling((all ?? []).flatMap((one) => one.outcomes)),
          requests: calls?.total((all ?? []).flatMap((one) => one.calls ?? [])) ?? 0,
        };
      });
      calls?.known(requests);
      if (!waits) return [...outcomes];
      // Rank 0 alone asks again, so that one process watches the judge.
      const asked = await group.gather<readonly JudgeItem[]>(items);
      const settled = await runOnRankZero(group, () =>
        local.settle(
          (asked ?? []).flat(),
          (all ?? []).flatMap((one) => one.outcomes),
        ),
      );
      const counts = await group.allGather(items.length);
      const start = counts.slice(0, group.rank).reduce((sum, count) => sum + count, 0);
      return settled.slice(start, start + items.length);
    },
    close: () => local.close(),
  };
}
