/** What judges said of one episode, found in the files of judgements by where its iteration has to be. */
import { readFileSync } from 'node:fs';
import { gunzipSync } from 'node:zlib';
import { iterationOfKey, JudgementFiles } from '../run/judgement_files.js';
import { readJudgement } from '../run/judgements.js';
import type { RunPaths } from '../run/paths.js';
import type { WireJudgement } from './wire.js';

const NEWLINE = 10;

/** Every question's last answer; empty where nothing was asked, or not kept. */
export function judgementsOf(paths: RunPaths, episodeKey: string): WireJudgement[] {
  const files = new JudgementFiles(paths.judgements);
  const iteration = iterationOfKey(episodeKey);
  // Read before the pieces are listed: what becomes a piece meanwhile is in both.
  const current = bytesOf(paths.judgements);
  const texts: Buffer[] = [];
  let before = -1;
  for (const { path, last } of files.pieces) {
    if (last >= iteration && before <= iteration) texts.push(unpacked(path));
    before = last;
  }
  if (before <= iteration) texts.push(current);
  const found = new Map<string, WireJudgement>();
  for (const text of texts) {
    for (const judgement of judgementsIn(text, episodeKey)) found.set(judgement.question, judgement);
  }
  return [...found.values()];
}

function* judgementsIn(text: Buffer, episodeKey: string): Generator<WireJudgement> {
  const start = `{"key":${JSON.stringify(`${episodeKey}/`).slice(0, -1)}`;
  for (let at = text.indexOf(start); at >= 0; at = text.indexOf(start, at + 1)) {
    const end = text.indexOf(NEWLINE, at);
    // Half a line that is still written.
    if (end < 0) return;
    if (at > 0 && text[at - 1] !== NEWLINE) continue;
    const judgement = readable(text.toString('utf8', at, end));
    if (judgement !== null) yield { ...judgement, question: judgement.question.slice(episodeKey.length + 1) };
  }
}

/** Null for a line that is no judgement. */
function readable(line: string): WireJudgement | null {
  try {
    const { key, model, text, problem, scores, attempts, latencyMs } = readJudgement(line);
    return { question: key, model, text, problem, scores, attempts, latency_ms: latencyMs };
  } catch (error) {
    if (error instanceof SyntaxError) return null;
    throw error;
  }
}

/** The owner of the run packs a piece at any time. */
function unpacked(path: string): Buffer {
  const packed = path.endsWith('.gz') ? path : `${path}.gz`;
  const plain = packed.slice(0, -'.gz'.length);
  const bytes = bytesOf(plain);
  if (bytes.length > 0) return bytes;
  const gz = bytesOf(packed);
  return gz.length === 0 ? gz : gunzipSync(gz);
}

function bytesOf(path: string): Buffer {
  try {
    return readFileSync(path);
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code === 'ENOENT') return Buffer.alloc(0);
    throw cause;
  }
}
