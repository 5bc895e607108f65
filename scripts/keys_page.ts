/** The page docs/reference/keys.md: every key that a config may have, from the schema. */
import { jsonSchema } from '../src/config/json_schema.js';

interface Part {
  readonly $ref?: string;
  readonly description?: string;
  readonly default?: unknown;
  readonly effect?: string;
  readonly const?: unknown;
  readonly properties?: Readonly<Record<string, Part>>;
  readonly additionalProperties?: Part | boolean;
  readonly items?: Part;
  readonly anyOf?: readonly Part[];
  readonly oneOf?: readonly Part[];
  readonly allOf?: readonly Part[];
}

/** Its elements have the fields of `reward.terms[]` but the weight, so the page has these once. */
const MEASURES = 'validation.measure[]';

/** The description of a key, with the recipes that share it. */
interface Key {
  readonly description: string;
  readonly default: string;
  readonly effect: string;
  readonly recipes: Set<string>;
}

/** All keys by their dotted paths, with their descriptions by recipe. `[]` is an element of a list, `*` a name chosen by the user. */
function keysOf(root: Part & { readonly $defs: Readonly<Record<string, Part>> }): Map<string, Key[]> {
  const found = new Map<string, Key[]>();
  const defOf = (part: Part): Part => root.$defs[part.$ref?.replace('#/$defs/', '') ?? ''];
  /** A part with the keywords of its definition. */
  const resolved = (part: Part): Part => (part.$ref === undefined ? part : { ...resolved(defOf(part)), ...part });
  const visit = (part: Part, path: string, recipe: string, seen: readonly string[]): void => {
    if (path === MEASURES) return;
    if (part.$ref !== undefined) {
      const name = part.$ref.replace('#/$defs/', '');
      // A recursive type is not visited again: a nested value of the same type adds no keys.
      if (!seen.includes(name)) visit(defOf(part), path, recipe, [...seen, name]);
    }
    for (const inner of [...(part.anyOf ?? []), ...(part.oneOf ?? []), ...(part.allOf ?? [])]) {
      visit(inner, path, recipe, seen);
    }
    for (const [name, field] of Object.entries(part.properties ?? {})) {
      const key = path === '' ? name : `${path}.${name}`;
      note(key, resolved(field), recipe);
      visit(field, key, recipe, seen);
    }
    if (part.items !== undefined) visit(part.items, `${path}[]`, recipe, seen);
    if (typeof part.additionalProperties === 'object') visit(part.additionalProperties, `${path}.*`, recipe, seen);
  };
  const note = (key: string, field: Part, recipe: string): void => {
    const entry = {
      description: field.description ?? '',
      default: field.default === undefined ? '' : JSON.stringify(field.default),
      effect: field.effect ?? '',
    };
    const entries = found.get(key) ?? [];
    found.set(key, entries);
    const same = entries.find(
      (other) =>
        other.description === entry.description && other.default === entry.default && other.effect === entry.effect,
    );
    if (same === undefined) entries.push({ ...entry, recipes: new Set([recipe]) });
    else same.recipes.add(recipe);
  };
  for (const branch of root.oneOf ?? []) {
    const fields = resolved(branch).properties ?? {};
    visit(branch, '', String(resolved(fields['task']).const), []);
  }
  return found;
}

/** The dotted paths of all keys, as written on the page. */
export function keyPaths(): ReadonlySet<string> {
  return new Set(keysOf(jsonSchema() as unknown as Parameters<typeof keysOf>[0]).keys());
}

/** A longer default belongs to a section, whose fields are listed one by one. */
const LONGEST_DEFAULT = 60;

/** The page, with the keys of `config schema`. */
export function keysPage(): string {
  const root = jsonSchema() as unknown as Parameters<typeof keysOf>[0];
  const keys = keysOf(root);
  const every = (root.oneOf ?? []).length;
  const lines = [
    '# Every key',
    '',
    'The schema generates this page (`npm run build && node dist/scripts/keys.js`). `editrl config schema` prints the schema as JSON, and `editrl config explain KEY` describes one key.',
    '',
    '`[]` is an element of a list and `*` a name that you choose. An element of `validation.measure` has the fields of `reward.terms` without the weight. A `result` key affects training and cannot change on resume. An `operation` key can change at any time.',
  ];
  let section = '';
  for (const key of [...keys.keys()].sort()) {
    const [first] = key.split(/[.[]/);
    if (first !== section) lines.push('', `## ${first}`, '');
    section = first;
    const entries = keys.get(key) ?? [];
    // A recipe's section with its own defaults has no description. It takes the description of the same section without them.
    const usual =
      entries.find(({ description }) => description !== '')?.description ??
      `Part of \`${key.replace(/(\[\]|\.\*)*\.\w+$/, '')}\`.`;
    for (const { description, default: value, effect, recipes } of entries) {
      const facts = [
        ...(effect === '' ? [] : [effect]),
        ...(['', '{}'].includes(value) || value.length > LONGEST_DEFAULT ? [] : [`default \`${value}\``]),
        ...(recipes.size === every ? [] : [`in ${[...recipes].sort().join(', ')}`]),
      ];
      lines.push(
        `- \`${key}\`: ${(description === '' ? usual : description).replaceAll('\n', ' ')}${facts.length === 0 ? '' : ` (${facts.join('; ')})`}`,
      );
    }
  }
  return `${lines.join('\n')}\n`;
}
