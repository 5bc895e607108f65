/** Detects two axes that set the same key differently, where one of the settings would be lost silently. */
import { ConfigError } from '../../core/errors.js';
import { LimitError } from '../interpreter.js';
import { evaluateSnippet, type Environment } from '../jsonnet.js';
import { getPath } from '../../schema/paths.js';
import { isObject } from '../../schema/walk.js';
import type { AxisValues } from './design.js';
import type { Description } from './schema.js';
import { ownFieldsSnippet } from './snippet.js';

/** Maximum number of pairs of values shown in an error. */
const SHOWN = 5;

/**
 * Raises ConfigError when, in some cell, one axis replaces what another sets. Checks only axes that set fields of the same section. Skips values that
 * refer to what is below them (self, super), since they cannot be evaluated alone; if the cell has neither of the two settings, they were combined (a
 * list that both extend) and nothing is lost.
 */
export async function checkClashes(
  request: { readonly file: string; readonly env: Environment },
  description: Description,
  cells: readonly { readonly axes: AxisValues; readonly value: unknown }[],
): Promise<void> {
  const axes = Object.keys(description.axes).filter((axis) => axis !== description.base);
  const sectionsOf = (axis: string): Set<string> => new Set(Object.values(description.axes[axis]).flat());
  const pairs = axes.flatMap((a, index) =>
    axes.slice(index + 1).flatMap((b) => {
      const [ofA, ofB] = [sectionsOf(a), sectionsOf(b)];
      return [...ofA].some((section) => ofB.has(section)) ? [[a, b] as const] : [];
    }),
  );
  if (pairs.length === 0) return;
  const concerned = [...new Set(pairs.flat())];
  const own = await ownFields(
    request,
    concerned.map((axis) => [axis, Object.keys(description.axes[axis])]),
  );
  const clashes = new Set<string>();
  for (const [a, b] of pairs) {
    const seen = new Set<string>();
    for (const { axes: cell, value } of cells) {
      const pair = `${cell[a]} ${cell[b]}`;
      if (seen.has(pair)) continue;
      seen.add(pair);
      const [ofA, ofB] = [own.get(keyOf(a, cell[a])), own.get(keyOf(b, cell[b]))];
      if (ofA === undefined || ofB === undefined) continue;
      for (const [path, set] of ofA) {
        const other = ofB.get(path);
        if (other === undefined || JSON.stringify(other) === JSON.stringify(set)) continue;
        if (isObject(other) && isObject(set)) continue;
        const found = JSON.stringify(getPath(value, path));
        if (found !== undefined && ![set, other].some((one) => JSON.stringify(one) === found)) continue;
        clashes.add(
          `axes '${a}' and '${b}' set ${path} differently: ${a} '${cell[a]}' to ${JSON.stringify(set)}, ${b} '${cell[b]}' to ${JSON.stringify(other)}`,
        );
      }
    }
  }
  if (clashes.size === 0) return;
  const more = clashes.size > SHOWN ? `\n  and ${clashes.size - SHOWN} more` : '';
  throw new ConfigError(`${[...clashes].slice(0, SHOWN).join('\n  ')}${more}`, {
    where: request.file,
    next: 'Let one axis alone set the key, or make one axis of both.',
  });
}

type Fields = ReadonlyMap<string, unknown>;

function keyOf(axis: string, value: string): string {
  return `${axis} ${value}`;
}

/** Beyond this many values of an axis, values that cannot be evaluated alone are not searched one by one. */
const MOST_SOUGHT = 32;

/**
 * By axis and value, every field that it sets, without the values that cannot be evaluated alone. One such value makes the evaluation of all fail,
 * and an evaluation costs as much as hundreds of values, so they are found by bisection; if the first, the middle and the last of many cannot be
 * evaluated, the others are assumed to be written like them.
 */
async function ownFields(
  request: { readonly file: string; readonly env: Environment },
  wanted: readonly (readonly [string, readonly string[]])[],
): Promise<Map<string, Fields>> {
  const { file, env } = request;
  try {
    const snippet = ownFieldsSnippet(file, wanted);
    const { value } = await evaluateSnippet({ file, roots: [file], snippet, environment: env });
    const found = value as readonly (readonly unknown[])[];
    return new Map(
      wanted.flatMap(([axis, values], place) =>
        values.map((name, index) => [keyOf(axis, name), new Map(fieldsIn(found[place][index]))] as const),
      ),
    );
  } catch (error) {
    if (!(error instanceof ConfigError) || error instanceof LimitError) throw error;
  }
  const several = async (parts: readonly (readonly [string, readonly string[]])[]): Promise<Map<string, Fields>> => {
    const found = await Promise.all(parts.map(async (part) => ownFields(request, [part])));
    return new Map(found.flatMap((some) => [...some]));
  };
  if (wanted.length > 1) return several(wanted);
  const [axis, values] = wanted[0];
  if (values.length === 1) return new Map();
  const middle = Math.floor(values.length / 2);
  if (values.length > MOST_SOUGHT) {
    const sample = [values[0], values[middle], values[values.length - 1]];
    if ((await several(sample.map((value) => [axis, [value]]))).size === 0) return new Map();
  }
  return several([values.slice(0, middle), values.slice(middle)].map((half) => [axis, half]));
}

/** Objects on the way are listed too, so that a section that one axis sets to null is compared. */
function* fieldsIn(value: unknown, prefix = ''): Generator<[string, unknown]> {
  if (!isObject(value)) return;
  for (const [key, child] of Object.entries(value)) {
    yield [`${prefix}${key}`, child];
    yield* fieldsIn(child, `${prefix}${key}.`);
  }
}
