/** What a logits processor of ours lets come next, worked out anew from the rules of a request. */

export interface StubRules {
  readonly second: readonly [number, number];
  readonly opening: number | null;
  readonly before: readonly number[];
  readonly after: readonly number[];
  readonly block: readonly (readonly [number | null, number])[];
}

/** The ids of a vocabulary that may follow these. */
export function allowedBy(rules: StubRules, written: readonly number[], vocabulary: number): Set<number> {
  const { second, opening, before, after, block } = rules;
  const inBlock = opening === null ? written.length : written.length - written.indexOf(opening) - 1;
  const isOpen = opening === null || written.includes(opening);
  const all = Array.from({ length: vocabulary }, (_, id) => id);
  const words = (excluded: readonly number[]): Set<number> =>
    new Set(all.filter((id) => id < second[0] && !excluded.includes(id)));
  if (!isOpen) return words(before);
  let left = inBlock;
  for (const [id, times] of block) {
    if (left < times) {
      return id === null ? new Set(all.filter((one) => one >= second[0] && one < second[1])) : new Set([id]);
    }
    left -= times;
  }
  return words(after);
}
