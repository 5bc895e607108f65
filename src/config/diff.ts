/** What two settings differ in, key by key. */
import { recipeOf } from '../recipes/settings.js';
import type { RunSettings } from '../schema/run.js';
import { leaves } from '../schema/walk.js';
import { canonicalJson } from './hash.js';
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
  /** Whether it decides the result. */
  readonly effect: 'result' | 'operation';
}

/** Every key whose values differ or that one side alone has, sorted. A text file counts by what it says. */
export function settingsDifferences(a: Side, b: Side): Difference[] {
  const [left, right] = [valuesOf(a), valuesOf(b)];
  return [...new Set([...left.keys(), ...right.keys()])].sort().flatMap((key) => {
    const [was, is] = [left.get(key), right.get(key)];
    if (was !== undefined && is !== undefined && canonicalJson(was.value) === canonicalJson(is.value)) return [];
    return [
      {
        key,
        ...(was === undefined ? {} : { a: was.value }),
        ...(is === undefined ? {} : { b: is.value }),
        effect: [was, is].some((side) => side?.effect === 'result') ? 'result' : 'operation',
      },
    ];
  });
}

function valuesOf({
  settings,
  texts = textDigests(settings),
}: Side): ReadonlyMap<string, { value: unknown; effect: Difference['effect'] }> {
  return new Map(
    leaves(recipeOf(settings).schema, settings).map(({ path, value, effect, mark }) => [
      path,
      { value: mark.text === true ? describeText(value, texts[path] ?? null) : value, effect },
    ]),
  );
}
