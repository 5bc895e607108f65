/** What a run has asked its judges so far, from its stored judgements. */
import { REPLY_QUERY } from '../rewards/server/wire.js';
import { parseLine } from './journal.js';
import { iterationOfKey, JudgementFiles } from './judgement_files.js';

export interface StoredCalls {
  /** Requests that judges got in all attempts: each of a question that was repeated, and of one that was asked again later. */
  readonly requests: number;
  /** Different questions of the iteration `from` and later ones whose stored answers a run that goes on there need not ask for. */
  readonly known: number;
}

/**
 * Reads all judgements at this path (`judgements.jsonl` and its pieces); what reward servers gave is none of them. Questions that were called off have
 * left no judgement and are not counted; a fork counts those that it took over. Raises RunError for a file that cannot be read.
 */
export function storedCalls(path: string, from = 0): StoredCalls {
  let requests = 0;
  const known = new Set<string>();
  let number = 0;
  new JudgementFiles(path).scanAll((text, { offset }, file) => {
    number = offset === 0 ? 1 : number + 1;
    const line = parseLine(text, file, number) as {
      readonly key: string;
      readonly request_hash: string;
      readonly attempts?: number;
    };
    if (line.key.endsWith(`/${REPLY_QUERY}`)) return;
    requests += line.attempts ?? 1;
    if (iterationOfKey(line.key) >= from) known.add(`${line.request_hash} ${line.key}`);
  });
  return { requests, known: known.size };
}
