/** Combinations of settings that cannot work, although each value is valid by itself. */
import { getPath, isObject } from '../../core/schema/walk.js';

/** A problem with a config, in one line. */
export interface Problem {
  /** Dotted path of the key. */
  readonly key: string;
  readonly message: string;
}

type Whole = string | number | boolean | null | undefined | readonly unknown[];
type Section<T> = Exclude<T, Whole>;
type KeyOf<T> = T extends unknown ? keyof T : never;
type ValueAt<T, K> = T extends unknown ? (K extends keyof T ? T[K] : never) : never;

/**
 * Settings without invalid values, at any depth. A list is present as a whole or not at all. The variants of a section are one section with all fields,
 * because the discriminator may be invalid itself.
 */
export type PartialSettings<T> =
  | Extract<T, Whole>
  | ([Section<T>] extends [never]
      ? never
      : { readonly [K in KeyOf<Section<T>>]?: PartialSettings<ValueAt<Section<T>, K>> | undefined });

/** One combination. A rule reports nothing if one of its values is invalid by itself. */
export type Rule<S> = (settings: PartialSettings<S>) => readonly Problem[];

export function problem(key: string, message: string): Problem[] {
  return [{ key, message }];
}

/** A problem of a key, unless the condition holds. */
export function problemUnless(holds: boolean, key: string, message: string): Problem[] {
  return holds ? [] : problem(key, message);
}

const LACKS = Symbol('something in the section is invalid');

/** Marks a section in which something is invalid. */
export function markInvalid(section: object): object {
  return { ...section, [LACKS]: true };
}

/** The section if everything in it is valid, else undefined. */
export function validSection<P>(section: P): P | undefined {
  return isObject(section) && LACKS in section ? undefined : section;
}

type Given<T extends readonly unknown[]> = { [K in keyof T]: NonNullable<T[K]> };

/** The problems of a rule if all of its values are present and not null. */
export function whenSet<const T extends readonly unknown[]>(
  values: T,
  rule: (...values: Given<T>) => readonly Problem[],
): readonly Problem[] {
  return values.every((value) => value !== undefined && value !== null) ? rule(...(values as Given<T>)) : [];
}

type NumberAt = readonly [key: string, value: number | null | undefined];

/** `whole` must be a multiple of `part`. */
export function requireMultiple([key, whole]: NumberAt, [partKey, part]: NumberAt, reason: string): readonly Problem[] {
  return whenSet([whole, part], (dividend, divisor) =>
    problemUnless(
      dividend % divisor === 0,
      key,
      `found ${dividend}; allowed: a multiple of ${partKey} (${divisor}), ${reason}`,
    ),
  );
}

type AllowedValue = string | number | boolean | null;

/** A key with the only value that another setting allows, and the reason. `or`: an alternative. */
export type FixedValue = readonly [key: string, allowed: AllowedValue, reason: string, or?: string];

/** The keys with another value than the setting `cause` allows. */
export function requireValues(settings: object, cause: string, values: readonly FixedValue[]): Problem[] {
  return values.flatMap(([key, allowed, reason, or]) => {
    const found = validSection(getPath(settings, key));
    if (found === undefined || found === allowed) return [];
    const ways = or === undefined ? show(allowed) : `${show(allowed)}, or ${or}`;
    return problem(key, `found ${show(found)} with ${cause}, ${reason}; allowed: ${ways}`);
  });
}

function show(value: unknown): string {
  if (typeof value === 'object' && value !== null) return 'a value';
  return typeof value === 'string' ? `'${value}'` : String(value);
}
