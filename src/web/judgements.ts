/** The judgements of one episode. */
import { scanLines } from '../core/log/reader.js';
import { judgementForm } from '../rewards/score/types.js';
import type { RunPaths } from '../run/paths.js';
import type { WireJudgement } from './wire.js';

/** The last answer to every question; empty if nothing was asked or kept. */
export function judgementsOf(paths: RunPaths, episodeKey: string): WireJudgement[] {
  const start = `{"key":${JSON.stringify(`${episodeKey}/`).slice(0, -1)}`;
  const found = new Map<string, WireJudgement>();
  scanLines(paths.judgements, (line) => {
    const judgement = line.startsWith(start) ? judgementOfLine(line) : null;
    if (judgement === null) return;
    const question = judgement.question.slice(episodeKey.length + 1);
    found.set(question, { ...judgement, question });
  });
  return [...found.values()];
}

/** Null for a line that is not a judgement. */
function judgementOfLine(line: string): WireJudgement | null {
  try {
    const { key, model, text, problem, scores, attempts, latencyMs } = judgementForm.read(line);
    return { question: key, model, text, problem, scores, attempts, latency_ms: latencyMs };
  } catch (error) {
    if (error instanceof SyntaxError) return null;
    throw error;
  }
}
