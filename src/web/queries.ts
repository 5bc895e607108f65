/** Parses and checks the parameters of a request's query. Everything here raises Refusal 400 for an invalid value. */
import { badRequest } from '../http/refusal.js';
import { ORDERS, type Bounds, type EpisodesRequest } from './episodes.js';
import type { WireOutcomeKind } from './wire.js';

/** A whole number from a query. Raises Refusal 400. */
export function integerParameter(query: URLSearchParams, name: string, otherwise: number, most: number): number {
  const text = query.get(name);
  if (text === null) return otherwise;
  const value = Number(text);
  if (/^\d+$/.test(text) && value <= most) return value;
  throw badRequest(`${name} is '${text.slice(0, 50)}'; allowed: a whole number from 0 to ${most}.`, name);
}

function numberOf(query: URLSearchParams, name: string): number | null {
  const text = query.get(name);
  if (text === null || text.trim() === '') return null;
  const value = Number(text);
  if (Number.isFinite(value)) return value;
  throw badRequest(`${name} is '${text.slice(0, 50)}'; allowed: a number.`, name);
}

/** One of the given words; null if the parameter is absent. */
function choiceParameter<W extends string>(query: URLSearchParams, name: string, words: readonly W[]): W | null {
  const text = query.get(name);
  if (text === null || text === '') return null;
  const found = words.find((word) => word === text);
  if (found !== undefined) return found;
  throw badRequest(`${name} is '${text.slice(0, 50)}'; allowed: ${words.join(', ')}.`, name);
}

const OUTCOMES: readonly WireOutcomeKind[] = ['scored', 'zero_by_rule', 'unscored'];
const MOST_EPISODES = 200;

export function episodesRequest(query: URLSearchParams): EpisodesRequest {
  const bounds = (name: string): Bounds => ({
    least: numberOf(query, `${name}_from`),
    most: numberOf(query, `${name}_to`),
  });
  return {
    iteration: query.get('iteration') === null ? null : integerParameter(query, 'iteration', 0, 1e12),
    heldOut: query.get('held_out') === 'true',
    outcome: choiceParameter(query, 'outcome', OUTCOMES),
    words: query.get('words') ?? '',
    score: bounds('score'),
    advantage: bounds('advantage'),
    order: choiceParameter(query, 'order', ORDERS) ?? 'as_recorded',
    offset: integerParameter(query, 'offset', 0, 1e9),
    limit: integerParameter(query, 'limit', 24, MOST_EPISODES),
  };
}
