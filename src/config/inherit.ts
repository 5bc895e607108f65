/**
 * Which keys of overlays reach the runs that a run starts from: the keys that their own recipes have, unless an overlay says `reaches_parents:
 * false`.
 */
import { recipeNamed } from './recipes.js';
import { getPath } from '../schema/paths.js';
import { isObject } from '../schema/walk.js';
import { importOf } from './jsonnet.js';

/** The field by which an overlay opts out of reaching parents. */
const REACHES = 'reaches_parents';

/** The Jsonnet expression of an overlay for a run itself, or for one that it starts from. */
export function overlayOf(path: string, parent: boolean): string {
  const refused = `${path}: ${REACHES}: found `;
  const noObject = `${path}: found an overlay that evaluates to `;
  return `(local overlay = ${importOf(path)};
  local says = if std.isObject(overlay) && std.objectHasAll(overlay, '${REACHES}') then overlay.${REACHES} else true;
  if !std.isObject(overlay) then error ${JSON.stringify(noObject)} + std.type(overlay) + '; allowed: an object, which is merged over the config'
  else if !std.isBoolean(says) then error ${JSON.stringify(refused)} + std.manifestJsonMinified(says) + '; allowed: true or false'
  else ${parent ? 'if says then overlay else {}' : 'overlay'})`;
}

/** Merged over the last overlay, because the field is not a setting. */
export const withoutReach = `{ ${REACHES}:: null }`;

type Path = readonly (string | number)[];

/** The keys that the recipe of a config does not have. */
function foreignKeys(value: Readonly<Record<string, unknown>>): Path[] {
  const parsed = recipeNamed(value['task'])?.schema.safeParse(value);
  const issues = parsed === undefined || parsed.success ? [] : parsed.error.issues;
  return issues.flatMap((issue) =>
    issue.code === 'unrecognized_keys' ? issue.keys.map((key) => [...(issue.path as Path), key]) : [],
  );
}

/** Whether a parent's config holds keys that its recipe does not have. */
export function hasForeignKeys(value: unknown): value is Record<string, unknown> {
  return isObject(value) && foreignKeys(value).length > 0;
}

/**
 * Removes keys from a parent's config that its recipe does not have and that came from overlays or axes; those in `own`, what its file evaluates to
 * without these, are the author's and stay. `value` is changed.
 */
export function dropForeignKeys(value: Record<string, unknown>, own: unknown): void {
  for (const path of foreignKeys(value)) {
    if (getPath(own, path) !== undefined) continue;
    const holder = getPath(value, path.slice(0, -1));
    if (isObject(holder)) Reflect.deleteProperty(holder, path[path.length - 1]);
  }
}
