/** How two sets of settings differ, key by key. */
import { recipeOf } from './recipes.js';
import type { RunSettings } from '../schema/run.js';
import { leaves } from '../schema/walk.js';
import { canonicalJson, diffSettings } from './hash.js';
import { describeText, textDigests, type TextDigests } from './texts.js';

/** Settings, with the digests of the text files that they name if these are not the current ones. */
export interface Side {
  readonly settings: RunSettings;
  readonly texts?: TextDigests;
}

export interface Difference {
  /** Dotted path. */
  readonly key: string;
  /** Absent if that side has no such key. */
  readonly a?: unknown;
  readonly b?: unknown;
  /** Whether it decides the result: whether a resume would refuse it in either direction. */
  readonly effect: 'result' | 'operation';
}

/** Every key whose values differ or that only one side has, sorted. A text file is compared by content. */
export function settingsDifferences(a: Side, b: Side): Difference[] {
  const [left, right] = [valuesOf(a), valuesOf(b)];
  const deciding = new Set([...changesOf(a, b), ...changesOf(b, a)]);
  return [...new Set([...left.keys(), ...right.keys()])].sort().flatMap((key) => {
    const [was, is] = [left.get(key), right.get(key)];
    if (was !== undefined && is !== undefined && canonicalJson(was.value) === canonicalJson(is.value)) return [];
    return [
      {
        key,
        ...(was === undefined ? {} : { a: was.value }),
        ...(is === undefined ? {} : { b: is.value }),
        // A key that only one side has gets its effect from that side's schema: null counts like absence, so comparing would miss it.
        effect: (was === undefined || is === undefined ? (was ?? is)?.effect === 'result' : deciding.has(key))
          ? 'result'
          : 'operation',
      },
    ];
  });
}

/** The keys that would be reported for a run with the settings of one side, resumed with those of the other. */
function changesOf({ settings, texts = textDigests(settings) }: Side, to: Side): string[] {
  return diffSettings(settings, to.settings, texts).map(({ key }) => key);
}

function valuesOf({
  settings,
  texts = textDigests(settings),
}: Side): ReadonlyMap<string, { value: unknown; effect: Difference['effect'] }> {
  return new Map(
    leaves(recipeOf(settings).schema, settings).map(({ path, value, effect, mark }) => [
      path,
      { value: mark.file !== undefined ? describeText(mark.file, value, texts[path] ?? null) : value, effect },
    ]),
  );
}
