/** Judgements of the ranks that do not own the run directory: found where rank 0 keeps them, and handed to rank 0 before they are used. */
import { closeSync, readSync } from 'node:fs';
import type { Judgement, JudgementStore, JudgeItem, Outcome } from '../rewards/score/types.js';
import { openToRead } from '../core/lines.js';
import { JudgementFiles } from '../run/judgement_files.js';
import { JudgementIndex, placeKey, readJudgement } from '../run/judgements.js';
import type { RunPaths } from '../run/paths.js';
import { lead } from '../group/lead.js';
import type { ProcessGroup } from '../group/process_group.js';
import type { Scorer } from './scorer.js';

/** Reads what was stored when it was opened, and collects what comes. Rank 0 must not write while it is being opened. */
export class FollowerJudgements implements JudgementStore {
  readonly #index: JudgementIndex;
  readonly #files: JudgementFiles;
  readonly #file: number | null;
  #collected = new Map<string, Judgement>();

  /** `from` is the first iteration whose judgements are asked for; null for any. */
  constructor(paths: RunPaths, from: number | null = null) {
    this.#index = new JudgementIndex(from);
    this.#files = new JudgementFiles(paths.judgements);
    this.#file = openToRead(paths.judgements);
    this.#files.scan(from, this.#file, (line, place) => {
      const { key, requestHash } = readJudgement(line);
      this.#index.add(key, requestHash, place);
    });
  }

  find(key: string, requestHash: string): Judgement | undefined {
    const name = placeKey(key, requestHash);
    const place = this.#index.find(key, requestHash);
    const collected = this.#collected.get(name);
    if (collected !== undefined || place === undefined) return collected;
    if (place.piece !== null) return readJudgement(this.#files.read(place.piece, place));
    if (this.#file === null) return undefined;
    const bytes = Buffer.alloc(place.length);
    readSync(this.#file, bytes, 0, place.length, place.offset);
    return readJudgement(bytes.toString('utf8'));
  }

  put(judgement: Judgement): void {
    this.#collected.set(placeKey(judgement.key, judgement.requestHash), judgement);
    this.#index.reached(judgement.key);
  }

  /** What came since the last call. */
  take(): Judgement[] {
    const taken = [...this.#collected.values()];
    this.#collected = new Map();
    return taken;
  }

  close(): void {
    if (this.#file !== null) closeSync(this.#file);
  }
}

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
}

/** Each rank asks the judge for its own episodes; whether enough of all is scored, and what is waited for, is decided on rank 0. */
export function sharedScorer({ group, local, take, store, needsSettling }: SharedScoring): Scorer {
  if (group.size === 1) return local;
  return {
    begin: (items) => local.begin(items),
    settle: async (items, outcomes) => {
      const all = await group.gather({ judgements: take(), outcomes });
      const waits = await lead(group, async () => {
        for (const { judgements } of all ?? []) for (const judgement of judgements) store(judgement);
        return needsSettling((all ?? []).flatMap((one) => one.outcomes));
      });
      if (!waits) return [...outcomes];
      // Rank 0 alone asks again, so that one process watches the judge.
      const asked = await group.gather<readonly JudgeItem[]>(items);
      const settled = await lead(group, () =>
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
