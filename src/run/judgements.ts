/** `judgements.jsonl`: every exchange with a judge, stored before it is used and found again by a resumed run. */
import type { Judgement, JudgementStore } from '../rewards/score/types.js';
import type { LogDisk } from '../core/log/writer.js';
import { CollectedExchanges, FileExchanges, type LineForm } from './exchanges.js';
import type { RunPaths } from './paths.js';

interface JudgementLine {
  readonly key: string;
  readonly request_hash: string;
  readonly model: string;
  readonly prompt_hash?: string;
  readonly text: string;
  readonly problem: Judgement['problem'];
  readonly detail?: string;
  readonly scores: readonly number[];
  readonly left_out?: readonly string[];
  readonly attempts: number;
  readonly latency_ms: number;
}

const form: LineForm<Judgement> = {
  read: readJudgement,
  write: (judgement): JudgementLine => ({
    key: judgement.key,
    request_hash: judgement.requestHash,
    model: judgement.model,
    ...(judgement.promptHash === undefined ? {} : { prompt_hash: judgement.promptHash }),
    text: judgement.text,
    problem: judgement.problem,
    ...(judgement.detail === undefined ? {} : { detail: judgement.detail }),
    scores: judgement.scores,
    ...(judgement.leftOut === undefined ? {} : { left_out: judgement.leftOut }),
    attempts: judgement.attempts,
    latency_ms: judgement.latencyMs,
  }),
};

/** A run's judgements on disk. */
export class FileJudgementStore extends FileExchanges<Judgement> implements JudgementStore {
  constructor(
    paths: Pick<RunPaths, 'judgements'>,
    from: number | null = null,
    options: { readonly disk?: LogDisk; readonly pieceBytes?: number } = {},
  ) {
    super(paths.judgements, form, from, options);
  }
}

/** Those of the ranks that do not own the run directory. */
export class FollowerJudgements extends CollectedExchanges<Judgement> implements JudgementStore {
  constructor(paths: Pick<RunPaths, 'judgements'>, from: number | null = null) {
    super(paths.judgements, form, from);
  }
}

/** One line of `judgements.jsonl`. */
export function readJudgement(text: string): Judgement {
  const line = JSON.parse(text) as JudgementLine;
  return {
    key: line.key,
    requestHash: line.request_hash,
    model: line.model,
    ...(line.prompt_hash === undefined ? {} : { promptHash: line.prompt_hash }),
    text: line.text,
    problem: line.problem,
    ...(line.detail === undefined ? {} : { detail: line.detail }),
    scores: line.scores,
    ...(line.left_out === undefined ? {} : { leftOut: line.left_out }),
    attempts: line.attempts,
    latencyMs: line.latency_ms,
  };
}
