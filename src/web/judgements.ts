/** What judges said of one episode, looked up in the judgement files by its iteration. */
import { join } from 'node:path';
import { linesIn, scanLines } from '../core/log/reader.js';
import { judgementForm } from '../run/exchanges.js';
import { iterationOfKey, JudgementFiles, pieceText } from '../run/judgement_files.js';
import type { RunPaths } from '../run/paths.js';
import type { WireJudgement } from './wire.js';

/** The last answer to every question; empty if nothing was asked or kept. */
export function judgementsOf(paths: RunPaths, episodeKey: string): WireJudgement[] {
  const files = new JudgementFiles(paths.judgements);
  const iteration = iterationOfKey(episodeKey);
  const start = `{"key":${JSON.stringify(`${episodeKey}/`).slice(0, -1)}`;
  // Read before the pieces are listed: lines that become a piece meanwhile are in both.
  const current: string[] = [];
  scanLines(paths.judgements, (line) => line.startsWith(start) && current.push(line));
  const lines: string[] = [];
  let before = -1;
  for (const { name, last } of files.pieces) {
    if (last >= iteration && before <= iteration) {
      for (const { text } of linesIn(pieceText(join(files.folder, name)))) if (text.startsWith(start)) lines.push(text);
    }
    before = last;
  }
  if (before <= iteration) lines.push(...current);
  const found = new Map<string, WireJudgement>();
  for (const line of lines) {
    const judgement = judgementOfLine(line);
    if (judgement === null) continue;
    const question = judgement.question.slice(episodeKey.length + 1);
    found.set(question, { ...judgement, question });
  }
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
