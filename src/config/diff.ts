/** What two settings differ in, key by key. */
import { recipeOf } from '../recipes/settings.js';
import type { RunSettings } from '../schema/run.js';
import { leaves } from '../schema/walk.js';
import { canonicalJson, diffSettings } from './hash.js';
import { describeText, textDigests, type TextDigests } from './texts.js';

/** Settings, with the digests of the text files that they name where these are not as the files are now. */
export interface Side {
  readonly settings: RunSettings;
  readonly texts?: TextDigests;
}

export interface Difference {
  /** Dotted path. */
  readonly key: string;
  /** Absent where that side has no such key. */
  readonly a?: unknown;
  readonly b?: unknown;
  /** Whether it decides the result: whether a resume would refuse it, one way or the other. */
  readonly effect: 'result' | 'operation';
}

/** Every key whose values differ or that one side alone has, sorted. A text file counts by what it says. */
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
        // What one side alone has is as its schema says: a null counts like its absence, and hides that.
        effect: (was === undefined || is === undefined ? (was ?? is)?.effect === 'result' : deciding.has(key))
          ? 'result'
          : 'operation',
      },
    ];
  });
}

/** The keys that a run with the settings of one side, resumed with those of the other, would be told of. */
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
