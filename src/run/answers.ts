/** `answers.jsonl`: what a server sampled for a run, stored before it is used and found again by a resumed run. */
import type { SampledAnswer } from '../policies/tokens/vllm/sampler.js';
import { CollectedExchanges, FileExchanges, type LineForm } from './exchanges.js';
import type { RunPaths } from './paths.js';

interface AnswerLine {
  readonly key: string;
  readonly request_hash: string;
  readonly ids: readonly number[];
  readonly log_probs: readonly number[] | null;
  readonly finished: boolean;
}

const form: LineForm<SampledAnswer> = {
  write: ({ key, requestHash, ids, logProbs, finished }): AnswerLine => ({
    key,
    request_hash: requestHash,
    ids,
    log_probs: logProbs,
    finished,
  }),
  read: (text) => {
    const { key, request_hash, ids, log_probs, finished } = JSON.parse(text) as AnswerLine;
    return { key, requestHash: request_hash, ids, logProbs: log_probs, finished };
  },
};

/** Rank 0's. */
export class FileAnswers extends FileExchanges<SampledAnswer> {
  constructor(paths: Pick<RunPaths, 'answers'>, from: number) {
    super(paths.answers, form, from);
  }
}

/** Those of the ranks that do not own the run directory. */
export class CollectedAnswers extends CollectedExchanges<SampledAnswer> {
  constructor(paths: Pick<RunPaths, 'answers'>, from: number) {
    super(paths.answers, form, from);
  }
}
