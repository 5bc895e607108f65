/**
 * Scores from the probabilities of a reply's first token: the expected digit, as in Edit-R1 (Li et al., "Uniworld-V2", 2025, arXiv
 * 2510.16888), read through the `logprobs` of the OpenAI chat protocol instead of inside the engine.
 */
import { excerpt, type Parsed } from './parse.js';

/** The number of alternatives to request: the most that vLLM gives without `--max-logprobs`, and all that OpenAI gives. */
export const topLogprobs = 20;

/** The value in vLLM's replies for a token without a log-probability. */
const missing = -9999;

interface Alternative {
  readonly token: string;
  /** Natural logarithm. Null if the server sent no finite number. */
  readonly logprob: number | null;
}

/**
 * The alternatives of the first token in a choice's `logprobs`, as the JSON text `[["5",-0.35],...]` that a judgement keeps and its parser
 * reads. Null if there are none. A value that is not a finite number is kept as null, so that the parser sees that the server is faulty.
 */
export function readFirstToken(logprobs: unknown): string | null {
  const [first] = listAt(logprobs, 'content');
  const alternatives = listAt(first, 'top_logprobs').flatMap((entry) => {
    const { token, logprob } = (entry ?? {}) as { token?: unknown; logprob?: unknown };
    return typeof token === 'string' ? [[token, Number.isFinite(logprob) ? logprob : null]] : [];
  });
  return alternatives.length === 0 ? null : JSON.stringify(alternatives);
}

function listAt(value: unknown, name: string): readonly unknown[] {
  const found = typeof value === 'object' && value !== null ? (value as Record<string, unknown>)[name] : undefined;
  return Array.isArray(found) ? (found as readonly unknown[]) : [];
}

/**
 * The expectation and the coverage of the digits from 0 to `highest`, from a text of `readFirstToken`. p(i) is the summed probability of
 * the tokens that are the digit i, apart from blanks. The coverage is C = sum p(i), and the expectation E = sum i p(i) / C is in [0,
 * `highest`]. Digits that are not among the alternatives count as 0. No scores if no digit is among them, or if a probability is not a
 * number, because the server is then faulty. Never throws.
 */
export function parseExpectedDigit(text: string, highest: number): Parsed<number> {
  const alternatives = parseAlternatives(text);
  if (alternatives === null) return broken(`its alternatives cannot be read: ${excerpt(text)}`);
  let coverage = 0;
  let weighted = 0;
  for (const { token, logprob } of alternatives) {
    if (logprob === null || logprob > 1e-3) {
      return broken(`its log-probabilities are not numbers up to 0: ${excerpt(text)}`);
    }
    const digit = /^\s*([0-9])\s*$/.exec(token)?.[1];
    if (digit === undefined || Number(digit) > highest || logprob <= missing) continue;
    coverage += Math.exp(logprob);
    weighted += Number(digit) * Math.exp(logprob);
  }
  if (coverage > 1.001) return broken(`its probabilities add up to ${coverage.toFixed(3)}: ${excerpt(text)}`);
  // A division by a vanishing sum would give noise, not an expectation.
  if (coverage < 1e-9) {
    return { ok: false, problem: 'unparsable', detail: `no digit from 0 to ${highest} is likely: ${excerpt(text)}` };
  }
  // The quotient may exceed the highest digit by a rounding error.
  return { ok: true, scores: [Math.min(highest, weighted / coverage), Math.min(1, coverage)] };
}

function parseAlternatives(text: string): readonly Alternative[] | null {
  if (!text.startsWith('[')) return null;
  let json: unknown;
  try {
    json = JSON.parse(text);
  } catch {
    return null;
  }
  if (!Array.isArray(json) || json.length === 0) return null;
  const alternatives: Alternative[] = [];
  for (const entry of json as readonly unknown[]) {
    if (!Array.isArray(entry) || typeof entry[0] !== 'string') return null;
    const logprob: unknown = entry[1];
    const finite = typeof logprob === 'number' && Number.isFinite(logprob);
    alternatives.push({ token: entry[0], logprob: finite ? logprob : null });
  }
  return alternatives;
}

function broken(found: string): Parsed<number> {
  return { ok: false, problem: 'server_error', detail: `the server's reply is invalid: ${found}` };
}
