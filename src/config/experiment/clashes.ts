/** Detects axes that set the same key differently, so that one setting is lost in some cell. */
import { ConfigError } from '../../core/errors.js';
import { LimitError } from '../interpreter.js';
import { evaluateSnippet, type Environment } from '../jsonnet.js';
import { getPath, isObject } from '../../core/schema/walk.js';
import type { AxisValues } from './design.js';
import type { Description } from './schema.js';
import { cellsSnippet, type CellOrder } from './matrix.js';

/** Maximum number of clashes in an error. */
const SHOWN = 5;

interface Clashing {
  readonly file: string;
  readonly env: Environment;
  readonly overlays: readonly string[];
}

/**
 * Raises ConfigError if one axis replaces a setting of another in some cell. Compares axes that set fields of the same section. An axis value sets the
 * fields that it alone changes in the base. If a cell has neither of two settings, they were combined, such as a list that both extend. Returns a warning
 * if a value does not evaluate without the other axes.
 */
export async function checkClashes(
  request: Clashing,
  description: Description,
  cells: readonly { readonly axes: AxisValues; readonly value: unknown }[],
): Promise<string[]> {
  const { axes, base } = description;
  const names = Object.keys(axes).filter((axis) => axis !== base);
  const sectionsOf = (axis: string): Set<string> => new Set(Object.values(axes[axis]).flat());
  const pairs = names.flatMap((a, index) =>
    names.slice(index + 1).flatMap((b) => {
      const [ofA, ofB] = [sectionsOf(a), sectionsOf(b)];
      return [...ofA].some((section) => ofB.has(section)) ? [[a, b] as const] : [];
    }),
  );
  if (pairs.length === 0) return [];
  const own = await ownSettings(request, description, [...new Set(pairs.flat())], cells[0].axes);
  if (own === null) {
    return ['clashes of axes were not checked, because a value does not evaluate without the other axes'];
  }
  const clashes = new Set<string>();
  for (const [a, b] of pairs) {
    for (const { axes: cell, value } of cells) {
      const [ofA, ofB] = [own(a, cell[a]), own(b, cell[b])];
      for (const [path, set] of ofA) {
        const other = ofB.get(path);
        if (other === undefined || same(other, set) || (isObject(other) && isObject(set))) continue;
        const [section] = path.split('.');
        // A section that they do not set themselves only follows from their settings.
        if (!axes[a][cell[a]].includes(section) || !axes[b][cell[b]].includes(section)) continue;
        const found = getPath(value, path);
        if (found !== undefined && !same(found, set) && !same(found, other)) continue;
        clashes.add(
          `axes '${a}' and '${b}' set ${path} differently: ${a} '${cell[a]}' to ${JSON.stringify(set)}, ${b} '${cell[b]}' to ${JSON.stringify(other)}`,
        );
      }
    }
  }
  if (clashes.size === 0) return [];
  const more = clashes.size > SHOWN ? `\n  and ${clashes.size - SHOWN} more` : '';
  throw new ConfigError(`${[...clashes].slice(0, SHOWN).join('\n  ')}${more}`, {
    where: request.file,
    next: 'Let only one axis set the key, or merge the axes.',
  });
}

const same = (a: unknown, b: unknown): boolean => JSON.stringify(a) === JSON.stringify(b);

type OwnSettings = (axis: string, value: string) => ReadonlyMap<string, unknown>;

/** The fields that each axis value changes in the base. Null if a value does not evaluate alone. */
async function ownSettings(
  { file, env, overlays }: Clashing,
  { axes, base }: Description,
  wanted: readonly string[],
  { [base === true ? '' : base]: baseValue }: AxisValues,
): Promise<OwnSettings | null> {
  const values = wanted.flatMap((axis) => Object.keys(axes[axis]).map((value) => [axis, value] as const));
  const orders = [[], ...values.map((value) => [value])].map((mixins): CellOrder => {
    return { name: 'a cell', base: base === true ? null : [base, baseValue], values: mixins, overrides: [] };
  });
  try {
    const snippet = cellsSnippet(file, overlays, orders);
    const { value } = await evaluateSnippet({ file, roots: [file, ...overlays], snippet, environment: env });
    const [before, ...after] = (value as unknown[]).map((settings) => new Map(fieldsIn(settings)));
    const changed = after.map((settings) => new Map([...settings].filter(([key, one]) => !same(one, before.get(key)))));
    const places = new Map(values.map((pair, index) => [pair.join(' '), changed[index]]));
    return (axis, name) => places.get(`${axis} ${name}`) ?? new Map<string, unknown>();
  } catch (error) {
    if (!(error instanceof ConfigError) || error instanceof LimitError) throw error;
    return null;
  }
}

/** Every field by path, including objects, so that a section can be compared with null. */
function* fieldsIn(value: unknown, prefix = ''): Generator<[string, unknown]> {
  if (!isObject(value)) return;
  for (const [key, child] of Object.entries(value)) {
    yield [`${prefix}${key}`, child];
    yield* fieldsIn(child, `${prefix}${key}.`);
  }
}
