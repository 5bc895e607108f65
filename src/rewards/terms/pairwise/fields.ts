/** The settings of every term that compares the answers of a group in pairs. */
import { z } from 'zod';
import { result } from '../../../core/schema/mark.js';
import { roundsOf, type Rounds } from './tournament.js';

/** A single answer is compared with one of these. */
const rivals = ['source', 'label'] as const;
export type Rival = (typeof rivals)[number];

export const comparingFields = {
  rounds: result(
    "How many others each answer is compared with, or one less if the number of answers is odd. null: log2 of the number of answers, rounded up, where each round pairs answers of equal success (a Swiss tournament). 'all': every other answer. Each comparison is two questions.",
    z
      .union([z.int().min(1), z.literal('all')])
      .nullable()
      .default(null),
    { allowed: "null, 'all', or a whole number of at least 1" },
  ),
  against: result(
    "The opponent of a single answer: the 'source', or the labeled edit ('label').",
    z.enum(rivals).default('source'),
  ),
};

/** Orders in which a pair is shown. */
const ORDERS = 2;

/** The highest number of questions about a group of so many answers (1: a single answer). */
export function questionsAboutPairs(answers: number, rounds: Rounds): number {
  return answers === 1 ? ORDERS : roundsOf(answers, rounds) * Math.floor(answers / 2) * ORDERS;
}
