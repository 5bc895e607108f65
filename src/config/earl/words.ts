/** Reports problems with a flat file in terms of the file's own keys. */
import type { Problem } from '../../schema/rules.js';
import type { Change } from '../sets.js';

/** Maps canonical keys back to the flat keys that they were translated from. */
export class FlatWords {
  constructor(
    private readonly names: ReadonlyMap<string, string>,
    /** Canonical paths that stay empty, which has been reported. */
    private readonly missing: readonly string[],
    /** Changes from `--set`: a value at a canonical path that one of them gives keeps that path's name. */
    private readonly changes: readonly Change[],
  ) {}

  /** Problems with canonical keys, without those that only repeat that something is missing. */
  problems(found: readonly Problem[]): Problem[] {
    return found
      .filter(
        ({ key, message }) => !(message.startsWith('missing') && this.missing.some((path) => isWithin(path, key))),
      )
      .map(({ key, message }) => ({ key: this.key(key), message: this.text(message) }));
  }

  /** Rewords a sentence that names canonical keys. */
  text(sentence: string): string {
    return sentence.replace(/(?<![\w.])\w+(?:\.\w+)+/g, (path) => this.names.get(path) ?? path);
  }

  /** The flat key that gave the value at a canonical path, or else the path itself. */
  key(path: string): string {
    if (this.changes.some((change) => isWithin(path, change.path))) return path;
    const parts = path.split('.');
    const upTo = parts.map((_, depth) => parts.slice(0, parts.length - depth).join('.'));
    const known = upTo.find((above) => this.names.has(above));
    return known === undefined ? path : (this.names.get(known) ?? path);
  }
}

/** Whether a dotted path equals another one or is inside it. */
export function isWithin(path: string, outer: string): boolean {
  return path === outer || path.startsWith(`${outer}.`);
}
