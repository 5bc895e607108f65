/** Finds built-in functions that a module has replaced: everything else in its process uses them, too. */
const { getOwnPropertyDescriptor, ownKeys } = Reflect;

interface Member {
  readonly holder: object;
  readonly key: PropertyKey;
  readonly name: string;
  readonly value: unknown;
}

/** Takes note of all built-in functions; the result names the first one that is not the same any more, or null. */
export function watchBuiltins(): () => string | null {
  const members: Member[] = [];
  const note = (holder: object, name: string): void => {
    for (const key of ownKeys(holder)) {
      const value: unknown = getOwnPropertyDescriptor(holder, key)?.value;
      if (typeof value === 'function') members.push({ holder, key, name: `${name}.${String(key)}`, value });
    }
  };
  for (const name of Object.getOwnPropertyNames(globalThis)) {
    // Reading a getter would load what it stands for.
    const value: unknown = getOwnPropertyDescriptor(globalThis, name)?.value;
    const isHolder = (typeof value === 'object' && value !== null) || typeof value === 'function';
    if (!isHolder || value === globalThis) continue;
    note(value, name);
    const prototype: unknown = getOwnPropertyDescriptor(value, 'prototype')?.value;
    if (typeof prototype === 'object' && prototype !== null) note(prototype, `${name}.prototype`);
  }
  return () => {
    // By counting: the iterator of arrays is one of the functions that may have been replaced.
    for (let i = 0; i < members.length; i++) {
      const { holder, key, name, value } = members[i];
      if (getOwnPropertyDescriptor(holder, key)?.value !== value) return name;
    }
    return null;
  };
}
