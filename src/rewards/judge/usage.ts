/** The tokens of a judge's replies, as servers count them. */
import type { Tokens } from '../score/types.js';

/**
 * The tokens of a reply, by the `usage` in its body. Null if the server does not count them: a value that is no count means the same as none, as do
 * two zeros, which servers send that do not count.
 */
export function tokensOf(body: unknown): Tokens | null {
  const { prompt_tokens: prompt, completion_tokens: completion } = usageOf(body);
  if (!isCount(prompt) || !isCount(completion) || prompt + completion === 0) return null;
  return { prompt, completion };
}

/** The tokens of two replies, of which either may not be counted; null where neither is. */
export function addTokens(a: Tokens | null, b: Tokens | null): Tokens | null {
  if (a === null || b === null) return a ?? b;
  return { prompt: a.prompt + b.prompt, completion: a.completion + b.completion };
}

function usageOf(body: unknown): { readonly prompt_tokens?: unknown; readonly completion_tokens?: unknown } {
  const usage = typeof body === 'object' && body !== null ? (body as { readonly usage?: unknown }).usage : undefined;
  return typeof usage === 'object' && usage !== null ? usage : {};
}

function isCount(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0;
}
