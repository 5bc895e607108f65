/** The names of held-out metrics. The dashboard page also uses this file. */

export const MANNERS = ['sampled', 'greedy'] as const;
/** The sampling mode of answers. */
export type Manner = (typeof MANNERS)[number];

/** A statistic over held-out answers. */
export interface HeldOutMetric {
  /** The held-out set, whose name may contain slashes. Null for all sets together. */
  readonly set: string | null;
  readonly manner: Manner;
  /** The measure. Null for the reward. */
  readonly by: string | null;
  /** `mean`, `stderr`, `unscored`. */
  readonly statistic: string;
}

const HELD_OUT = /^validation\/(?:(.+)\/)?(sampled|greedy)\/(?:measure\/([^/]+)\/)?([^/]+)$/;

/** Parses `validation/[<set>/]<manner>/[measure/<measure>/]<statistic>`. Null for any other name. */
export function parseMetric(name: string): HeldOutMetric | null {
  const found = HELD_OUT.exec(name);
  if (found === null) return null;
  const [, set = null, manner, by = null, statistic] = found;
  return { set, manner: manner as Manner, by, statistic: statistic ?? '' };
}

/** Whether a metric is about held-out answers, including a control's. */
export function isHeldOut(name: string): boolean {
  return name.startsWith('validation/') || name.startsWith('control/');
}

/** Parses the held-out means among some names, in their order. */
export function heldOutMeans(names: Iterable<string>): HeldOutMetric[] {
  return [...new Set(names)].flatMap((name) => {
    const found = parseMetric(name);
    return found?.statistic === 'mean' ? [found] : [];
  });
}
