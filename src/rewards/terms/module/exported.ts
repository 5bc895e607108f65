/** What a reward module exports, as both processes that import one see it. */

/** The members of an export that are looked at. */
const members = ['score', 'create', 'check', 'needs'] as const;

/** What an export looks like from outside. */
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

/** What was thrown and, if its stack tells, at which place. */
export function describeThrown(error: unknown): string {
  if (!(error instanceof Error)) return `threw ${String(error)}`;
  const places = (error.stack ?? '').match(/\/[^\s()]*:\d+(?=:\d+)/g) ?? [];
  const place = places.find((one) => !one.includes('/node_modules/'));
  const at = place === undefined ? '' : ` (${place.replace(/^\/\/\//, '/')})`;
  return `${error.name}: ${error.message.split('\n', 1)[0]}${at}`;
}
