/** Held-out text answers for the report: some prompts with the policy's answers before and after training. */
import { z } from 'zod';
import { listEpisodeFiles, parseHeldOutKey } from '../episodes.js';
import { readLines } from '../journal.js';
import type { RunPaths } from '../paths.js';

/** An answer of the policy. The score is null if it has none. */
export interface RecordedAnswer {
  readonly score: number | null;
  /** Null without reasoning before the answer. */
  readonly thought: string | null;
  readonly answer: string;
}

/** A held-out prompt, chosen by its score after training. */
export interface HeldOutAnswer {
  readonly which: 'worst' | 'middle' | 'best';
  readonly sample: string;
  readonly prompt: string;
  readonly expected: string | null;
  readonly before: RecordedAnswer | null;
  /** The answer of the last evaluation, or of the only one. */
  readonly after: RecordedAnswer;
}

const line = z.object({
  key: z.string(),
  sample: z.string(),
  instruction: z.string(),
  text: z.string(),
  thought: z.string().optional(),
  answer: z.string().optional(),
  expected: z.string().optional(),
  /** Every image answer has this field, possibly null. */
  grid: z.undefined().optional(),
  outcome: z.looseObject({ kind: z.string(), value: z.number().nullish() }),
});
type Line = z.output<typeof line>;

/**
 * Held-out answers of an evaluation's first sampling mode. Empty before the first evaluation, and for answers that are
 * not words.
 */
export function heldOutAnswers(paths: RunPaths): HeldOutAnswer[] {
  const files = listEpisodeFiles(paths).filter(({ heldOut }) => heldOut);
  const [first, last] = [files.at(0), files.at(-1)];
  if (first === undefined || last === undefined) return [];
  const after = answersOf(last.path);
  const before = first === last ? new Map<string, Line>() : answersOf(first.path);
  const ranked = [...after].sort(([, a], [, b]) => (recordedAnswer(a).score ?? 0) - (recordedAnswer(b).score ?? 0));
  const places = new Map<number, HeldOutAnswer['which']>();
  for (const [at, which] of [
    [0, 'worst'],
    [ranked.length - 1, 'best'],
    [Math.floor(ranked.length / 2), 'middle'],
  ] as const) {
    if (ranked[at] !== undefined && !places.has(at)) places.set(at, which);
  }
  return [...places]
    .sort(([a], [b]) => a - b)
    .map(([at, which]) => {
      const [prompt, found] = ranked[at];
      const earlier = before.get(prompt);
      return {
        which,
        sample: found.sample,
        prompt: found.instruction,
        expected: found.expected ?? null,
        before: earlier === undefined ? null : recordedAnswer(earlier),
        after: recordedAnswer(found),
      };
    });
}

/** An evaluation's answers by set and prompt. */
function answersOf(path: string): Map<string, Line> {
  const all = readLines(path).flatMap((one) => line.safeParse(one).data ?? []);
  const named = all.map((one) => ({ one, place: parseHeldOutKey(one.key) }));
  const manner = named[0]?.place?.sampling;
  return new Map(
    named.flatMap(({ one, place }) =>
      place !== null && place.sampling === manner ? [[`${place.set}/${place.prompt}`, one] as const] : [],
    ),
  );
}

function recordedAnswer({ text, thought, answer, outcome }: Line): RecordedAnswer {
  const score = outcome.kind === 'scored' ? (outcome.value ?? null) : outcome.kind === 'zero_by_rule' ? 0 : null;
  return { score, thought: thought ?? null, answer: answer ?? text };
}
