/** The rule judge's grade of an answer in words: which things of a list it names, and which it should. */
import { badRequest } from '../../http/refusal.js';
import type { Answer } from './answer.js';
import type { Question } from './protocol.js';

const MOST = 10;
const WHAT = 'This judge looks at pictures, and grades answers to questions that end in a list, beside a reference.';
const WORD = /[\p{L}\p{N}]+/gu;

const wordsOf = (text: string): Set<string> => new Set(text.toLowerCase().match(WORD) ?? []);

/**
 * Grades an answer to a question that ends in a list, as `which of these are even: 12, 15, 18?`, beside a reference: of the things in the list that answer
 * and reference name together, the share that both name, times ten. Where nothing is to be graded, it says what it grades. Raises Refusal for any other question.
 */
export function gradeWords({ instruction, graded }: Pick<Question, 'instruction' | 'graded'>): Answer {
  if (graded === null) return { form: 'list', scores: [], reasoning: WHAT };
  const [, list] = /:([^:?]+)\??\s*$/.exec(instruction) ?? [];
  if (list === undefined || graded.reference === '') {
    throw badRequest(WHAT, 'messages');
  }
  const things = [...wordsOf(list)];
  // Who repeats the question has named nothing.
  const said = wordsOf(graded.answer.replaceAll(instruction.trim(), ' '));
  const right = wordsOf(graded.reference);
  const either = things.filter((thing) => said.has(thing) || right.has(thing));
  const both = either.filter((thing) => said.has(thing) && right.has(thing));
  const score = either.length === 0 ? 0 : (MOST * both.length) / either.length;
  const named = things.filter((thing) => said.has(thing)).length;
  return { form: 'list', scores: [score], reasoning: `It names ${named} of them, ${both.length} as it should.` };
}
