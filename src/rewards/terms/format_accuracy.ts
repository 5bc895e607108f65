/**
 * Form and correctness of a text answer, `<think>…</think> <answer>(1) … (2) …</answer>`, compared with a labeled answer of the same
 * form, as in GRPO on videos of actions (https://github.com/ChristianLin0420/Qwen2.5-VL-Video). Pure functions of texts.
 */
import { z } from 'zod';
import { DataError } from '../../core/errors.js';
import { nonNegative, result } from '../../core/schema/mark.js';
import { termKind } from './term.js';
import type { JudgeItem, Outcome } from '../score/types.js';

/** A tagged block: its start and end in the text, including tags, and its content. */
interface Block {
  readonly start: number;
  readonly end: number;
  readonly content: string;
}

/** The block from the opening tag at `start` to the next closing tag. Null if either is missing. */
function blockAt(text: string, tag: string, start: number): Block | null {
  const from = start + `<${tag}>`.length;
  const close = start < 0 ? -1 : text.indexOf(`</${tag}>`, from);
  return close < 0 ? null : { start, end: close + `</${tag}>`.length, content: text.slice(from, close) };
}

/** The first complete think block. */
function thinkOf(text: string): Block | null {
  return blockAt(text, 'think', text.indexOf('<think>'));
}

/** Selects the block that counts as the answer: the first complete one, as in the original, or the last. */
const answerBlocks = {
  first: (text) => blockAt(text, 'answer', text.indexOf('<answer>')),
  last: (text) => {
    const lastClosing = text.lastIndexOf('</answer>');
    return lastClosing < 0 ? null : blockAt(text, 'answer', text.lastIndexOf('<answer>', lastClosing));
  },
} satisfies Record<string, (text: string) => Block | null>;
type AnswerBlock = keyof typeof answerBlocks;

/**
 * 0.3 for a think block, 0.3 for an answer block, 0.4 if the first think block ends at or before the start of the answer that counts. Other
 * text and repeated blocks cost nothing.
 */
export function formatScore(text: string, which: AnswerBlock): number {
  const think = thinkOf(text);
  const answer = answerBlocks[which](text);
  if (think === null || answer === null) return think === null && answer === null ? 0 : 0.3;
  return think.end <= answer.start ? 1 : 0.6;
}

/** Python's `\((\d+)\)`, which matches the digits of every script. */
const parenthesized = /\((\p{Nd}+)\)/gu;

/** An item's number: in parentheses, not attached to a word, and with at most three digits, so that years in labels do not count. */
const itemNumber = /(?<![^\s,;)])\((\d{1,3})\)(?![^\s,;.(])/g;

/** The numbers, as written, of an answer's actions. */
const actionReaders = {
  /** Every number in parentheses, whatever its neighbors. */
  numbers: (answer) => new Set(Array.from(answer.matchAll(parenthesized), ([, number]) => number)),
  /**
   * The numbers of the items `(n) label`. If the first item has a label, a number without one belongs to the label before it: `(1) tighten
   * screw (4) (2) close` contains 1 and 2.
   */
  items: (answer) => {
    const found = [...answer.matchAll(itemNumber)];
    const labeled = found.map((match, index) => {
      const end = match.index + match[0].length;
      return /[^\s,;.]/.test(answer.slice(end, found[index + 1]?.index ?? answer.length));
    });
    return new Set(found.flatMap(([, number], index) => (labeled[index] || !labeled[0] ? [number] : [])));
  },
} satisfies Record<string, (answer: string) => ReadonlySet<string>>;
type ActionReader = keyof typeof actionReaders;

/** The actions of an answer, without its tags. Labels are not compared. */
export function actionsOf(answer: string, reader: ActionReader): ReadonlySet<string> {
  return actionReaders[reader](answer);
}

/** The numbers over 99 in parentheses, as written: a year in a label, for example, which counts as an action. */
export function largeActions(label: string): string[] {
  return [...actionsOf(labelText(label, 'first'), 'numbers')].filter(
    (number) => [...number.replace(/^0+/, '')].length > 2,
  );
}

/** |A ∩ B| / |A ∪ B|, in [0, 1]. 0 for two empty sets. */
export function intersectionOverUnion(a: ReadonlySet<string>, b: ReadonlySet<string>): number {
  const shared = [...a].filter((one) => b.has(one)).length;
  const all = a.size + b.size - shared;
  return all === 0 ? 0 : shared / all;
}

const matches = {
  iou: intersectionOverUnion,
  exact: (a, b) => (intersectionOverUnion(a, b) === 1 ? 1 : 0),
} satisfies Record<string, (a: ReadonlySet<string>, b: ReadonlySet<string>) => number>;

export const formatAccuracy = termKind({
  name: 'format_accuracy',
  description:
    'Form of an answer in words (0.3 for a think block, 0.3 for an answer block, 0.4 for their order), and agreement of the numbers of its actions with the labeled answer, from 0 to 1.',
  fields: {
    answer: result(
      "Which of several <answer> blocks counts: the 'first', as in the original, or the 'last'. The form requires the first think block before it.",
      z.enum(['first', 'last']).default('first'),
    ),
    actions: result(
      "What counts as an action in the answer and its label: 'numbers' is every number in parentheses, as in the original; 'items' is the number of each item '(n) label', without numbers inside a label.",
      z.enum(['numbers', 'items']).default('numbers'),
    ),
    match: result(
      "How actions are compared: 'iou' is |A∩B| / |A∪B|; 'exact' is 1 for the same set, else 0.",
      z.enum(['iou', 'exact']).default('iou'),
    ),
    format_weight: result('Weight of the form. It sums to 1 with accuracy_weight.', nonNegative.default(0.3)),
    accuracy_weight: result('Weight of the agreement.', nonNegative.default(0.7)),
  },
  reads: 'words',
  needs: { judge: false, truth: false, source: false, words: true },
  conflict: ({ format_weight, accuracy_weight }) => {
    const sum = format_weight + accuracy_weight;
    if (Math.abs(sum - 1) <= 1e-6) return null;
    const message = `found ${format_weight} + ${accuracy_weight} = ${Number(sum.toPrecision(8))} with accuracy_weight; allowed: two weights that sum to 1`;
    return { field: 'format_weight', message };
  },
  wrongLabel,
  create: async (fields) => ({
    name: 'format_accuracy',
    async score(item): Promise<Outcome> {
      const expected = expectedActions(item, fields);
      const text = item.answer ?? '';
      const answer = answerBlocks[fields.answer](text);
      const format = formatScore(text, fields.answer);
      // A missing answer costs its agreement, not its form.
      const accuracy = answer === null ? 0 : matches[fields.match](actionsOf(answer.content, fields.actions), expected);
      const value = Math.min(1, fields.format_weight * format + fields.accuracy_weight * accuracy);
      const parts = { 'format_accuracy/format': format, 'format_accuracy/accuracy': accuracy };
      return { kind: 'scored', value, normalised: value, parts };
    },
    close: async () => {},
  }),
});

interface Reading {
  readonly answer: AnswerBlock;
  readonly actions: ActionReader;
}

/** A label's answer block, else the whole label. */
function labelText(label: string, which: AnswerBlock): string {
  return answerBlocks[which](label)?.content ?? label;
}

function labeledActions(label: string, { answer, actions }: Reading): ReadonlySet<string> {
  return actionsOf(labelText(label, answer), actions);
}

function wrongLabel(label: string, reading: Reading): string | null {
  if (labeledActions(label, reading).size > 0) return null;
  const found = JSON.stringify(label.slice(0, 80));
  return `the labeled answer ${found} names no action; allowed: <answer>(1) label (2) label</answer>`;
}

/** Raises DataError, naming the item, if the label contains no action. */
function expectedActions({ key, expected }: JudgeItem, reading: Reading): ReadonlySet<string> {
  const missing = "reward 'format_accuracy' compares with a labeled answer in words, but this prompt has none";
  const wrong = expected === undefined ? missing : wrongLabel(expected, reading);
  if (wrong === null) return labeledActions(expected ?? '', reading);
  throw new DataError(wrong, {
    where: key,
    next: 'Correct this line of the dataset: every prompt needs at least one action to compare with.',
  });
}
