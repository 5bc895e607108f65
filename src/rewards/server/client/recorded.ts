/** What replies of reward servers come to, and where they are among a run's judgements: what was scored once is found again when the run is resumed. */
import { weightedSum } from '../../score/weighted.js';
import { REPLY_QUERY } from '../../../balance/exchange.js';
import { fromWire, replyItemSchema, type ReplyItem } from '../wire.js';
import type { JudgeItem, Judgement, JudgementStore, Outcome } from '../../score/types.js';
import { parseJson, type Attempt } from './attempt.js';
import { hashItem } from './encode.js';

function keyOf(item: JudgeItem): string {
  return `${item.key}/${REPLY_QUERY}`;
}

/**
 * What is stored for an item: a server's reply, the outcome of an item that got none, or null where nothing is stored (or
 * what is stored gave no score and shall be asked for again).
 */
export function replay(
  item: JudgeItem,
  store: Pick<JudgementStore, 'find'>,
  askAgain: boolean,
): { readonly reply: ReplyItem } | Outcome | null {
  const stored = store.find(keyOf(item), hashItem(item));
  if (stored === undefined || (stored.problem !== null && askAgain)) return null;
  const reply = recordedReply(stored);
  if (reply !== null) return { reply };
  if (stored.problem === null) return null;
  const detail = stored.detail ?? 'as recorded: no reward server answered';
  return { kind: 'unscored', reason: stored.problem, detail, parts: {} };
}

/** The reply that a record holds; null where it holds none. */
export function recordedReply({ text }: Judgement): ReplyItem | null {
  const reply = replyItemSchema.safeParse(parseJson(text));
  return reply.success ? reply.data : null;
}

/** The record of an item's last exchange: its text is the item's part of the server's reply, its model what the server scores with. */
export function toJudgement(
  item: JudgeItem,
  found: Attempt,
  { attempts, latencyMs }: Pick<Judgement, 'attempts' | 'latencyMs'>,
): Judgement {
  const base = { key: keyOf(item), requestHash: hashItem(item), attempts, latencyMs };
  if (found.kind !== 'item') {
    return { ...base, model: '', text: '', problem: found.reason, detail: found.detail, scores: [] };
  }
  const { outcome } = found.item;
  return {
    ...base,
    model: found.reward,
    text: JSON.stringify(found.item),
    problem: outcome.kind === 'unscored' ? outcome.reason : null,
    ...(outcome.kind === 'unscored' ? { detail: outcome.detail } : {}),
    scores: outcome.kind === 'unscored' ? [] : [outcome.value],
  };
}

/** Shares by the name of a term; they add up to 1. */
export type Weights = Readonly<Record<string, number>>;

/**
 * The outcome that the server weighed; with weights, the sum of the terms that they name: `sum_k w_k * normalised_k`. Parts keep the names
 * that the server gives. The reply has every term that is weighed.
 */
export function combine(reply: ReplyItem, weights: Weights | null): Outcome {
  if (weights === null) return fromWire(reply.outcome);
  return weightedSum(
    Object.entries(weights).map(([name, weight]) => ({ name, weight, outcome: fromWire(reply.terms[name]) })),
  );
}
