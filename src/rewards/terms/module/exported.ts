/** The shape of a reward module's exports, for both processes that import one. */

/** The members of an export that are checked. */
const members = ['score', 'create', 'check', 'needs'] as const;

/** The shape of an export. */
export interface Shape {
  /** `typeof` the export itself. */
  readonly is: string;
  /** `typeof` each of its members. */
  readonly has: Readonly<Record<(typeof members)[number], string>>;
  readonly needs: unknown;
}

export function chosenExport(namespace: Readonly<Record<string, unknown>>): unknown {
  return namespace['default'] ?? namespace['termKind'];
}

export function shapeOf(exported: unknown): Shape {
  const from = (exported ?? {}) as Readonly<Record<string, unknown>>;
  const has = Object.fromEntries(members.map((member) => [member, typeof from[member]])) as Shape['has'];
  return { is: exported === null ? 'null' : typeof exported, has, needs: from['needs'] };
}

/** The error and, if its stack contains it, its place. */
export function describeThrown(error: unknown): string {
  if (!(error instanceof Error)) return `threw ${String(error)}`;
  const places = (error.stack ?? '').match(/\/[^\s()]*:\d+(?=:\d+)/g) ?? [];
  const place = places.find((one) => !one.includes('/node_modules/'));
  const at = place === undefined ? '' : ` (${place.replace(/^\/\/\//, '/')})`;
  return `${error.name}: ${error.message.split('\n', 1)[0]}${at}`;
}
