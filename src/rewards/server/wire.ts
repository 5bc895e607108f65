/**
 * The messages between a reward server and its clients. `POST /v1/score` is a stream with one item a line and one reply a line, and `POST /score`
 * takes one item. The path contains the version of the stream.
 */
import { z } from 'zod';
import { unscoredReasons, type Outcome } from '../score/types.js';

/** The longest text that a request may carry in one field. */
const text = z.string().max(100_000);
/** Base64, or a `data:` URL with base64. Null if the artifact does not decode to an image, or there is none. */
const image = z.string().nullable();

/** One answer to score. `prompt` and `instruction` mean the same. Exactly one of them is given. */
export const requestItemSchema = z.strictObject({
  key: z.string().min(1).max(500).optional(),
  prompt: text.optional(),
  instruction: text.optional(),
  image: image.optional(),
  source: image.optional(),
  truth: image.optional(),
  /** White inside the region that was painted. Terms that read text read nothing outside it. */
  mask: image.optional(),
  /** A label for the client's own logs. It does not change the score. */
  timestep: text.nullish(),
  answer: text.optional(),
  expected: text.optional(),
  finished: z.boolean().optional(),
});
export type RequestItem = z.output<typeof requestItemSchema>;

export const requestFields: readonly string[] = Object.keys(requestItemSchema.shape);

const parts = z.record(z.string(), z.number());

/** An outcome as JSON: fields that a kind lacks are null, so that every reply has the same fields. */
export const wireOutcomeSchema = z.discriminatedUnion('kind', [
  z.object({
    kind: z.literal('scored'),
    value: z.number(),
    normalised: z.number().min(0).max(1),
    parts,
    reason: z.null(),
    detail: z.null(),
  }),
  z.object({
    kind: z.literal('zero_by_rule'),
    value: z.literal(0),
    normalised: z.literal(0),
    parts,
    reason: z.enum(['undecodable', 'unfinished']),
    detail: z.null(),
  }),
  z.object({
    kind: z.literal('unscored'),
    value: z.null(),
    normalised: z.null(),
    parts,
    reason: z.enum(unscoredReasons),
    detail: z.string(),
  }),
]);
export type WireOutcome = z.output<typeof wireOutcomeSchema>;

/** Field names that clients of IP-Adapter training read. Null if a term has no score. */
const clientScore = z.number().nullable().optional();

/** The result of scoring one item. */
export const replyItemSchema = z.object({
  key: z.string().nullable(),
  /** The weighted whole. */
  outcome: wireOutcomeSchema,
  terms: z.record(z.string(), z.intersection(wireOutcomeSchema, z.object({ weight: z.number() }))),
  vlm_score: clientScore,
  ocr_confidence: clientScore,
  combined_score: clientScore,
});
export type ReplyItem = z.output<typeof replyItemSchema>;

/** The header of a stream's reply that names the server's terms, weights and settings. The servers of one pool have to agree. */
export const REWARD_HEADER = 'x-editrl-reward';

export const healthSchema = z.object({
  /** `judge_away` only for `/health?judge`, which sends the judge a test question. */
  status: z.enum(['ok', 'draining', 'judge_away']),
  /** Why the judge does not answer. */
  detail: z.string().optional(),
  /** Like the header of a stream's reply. Left out for clients without the token. */
  reward: z.string().optional(),
  terms: z.array(z.object({ name: z.string(), weight: z.number() })).optional(),
});
export type HealthReply = z.output<typeof healthSchema>;

/** The environment variable with the token of a reward server, unless the settings name another. */
export const defaultTokenVariable = 'EDITRL_REWARD_TOKEN';

export function toWire(outcome: Outcome): WireOutcome {
  const { kind, parts } = outcome;
  switch (kind) {
    case 'scored':
      return { kind, value: outcome.value, normalised: outcome.normalised, parts, reason: null, detail: null };
    case 'zero_by_rule':
      return { kind, value: 0, normalised: 0, parts, reason: outcome.reason, detail: null };
    case 'unscored':
      return { kind, value: null, normalised: null, parts, reason: outcome.reason, detail: outcome.detail };
  }
}

export function fromWire(outcome: WireOutcome): Outcome {
  const { kind, parts } = outcome;
  switch (kind) {
    case 'scored':
      return { kind, value: outcome.value, normalised: outcome.normalised, parts };
    case 'zero_by_rule':
      return { kind, reason: outcome.reason, parts };
    case 'unscored':
      return { kind, reason: outcome.reason, detail: outcome.detail, parts };
  }
}
