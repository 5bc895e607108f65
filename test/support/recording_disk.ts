/**
 * The file system of a test that replaces `node:fs`: it notes what is changed and in which order, and can let the process die in
 * between. Use in a `*.mocks.test.ts`:
 * `vi.mock('node:fs', async (original) => (await import('./recording_disk.js')).recording(await original()))`.
 */
import { relative } from 'node:path';
import type * as fs from 'node:fs';

type Call = (...args: never[]) => unknown;

/** Raised by every operation of a process that is dead, so that no clean-up of its own runs either. */
class Died extends Error {}

export const disk = {
  /** Folder whose files are watched; the others change unnoticed. */
  root: '/nowhere',
  /** What was done to it, one operation a line. */
  log: [] as string[],
  /** So many more operations are done; at the next one the process dies. */
  left: Infinity,
  /** Whether it has died. */
  get died(): boolean {
    return disk.left < 0;
  },
  /** Watches a folder from now on. */
  watch(root: string, left = Infinity): void {
    disk.root = root;
    disk.left = left;
    disk.log = [];
  },
  /** Goes on as another process does, unwatched. */
  rest(): void {
    disk.watch('/nowhere');
  },
};

/** Names of `node:fs` whose operations are noted: how each reads, from its arguments and the paths of open files. */
const NOTED: Readonly<Record<string, (args: readonly unknown[], opened: ReadonlyMap<unknown, string>) => string[]>> = {
  mkdirSync: ([path]) => ['make', String(path)],
  writeFileSync: ([path]) => ['write', String(path)],
  writeSync: ([file], opened) => ['write', opened.get(file) ?? ''],
  fsyncSync: ([file], opened) => ['sync', opened.get(file) ?? ''],
  ftruncateSync: ([file], opened) => ['cut', opened.get(file) ?? ''],
  renameSync: ([from, to]) => ['rename', String(from), String(to)],
  linkSync: ([from, to]) => ['link', String(from), String(to)],
  rmSync: ([path]) => ['remove', String(path)],
};

export function recording(real: typeof fs): typeof fs {
  const opened = new Map<unknown, string>();
  const replaced: Record<string, Call> = {
    openSync: (...args: Parameters<typeof fs.openSync>) => {
      const file = real.openSync(...args);
      opened.set(file, String(args[0]));
      return file;
    },
  };
  for (const [name, words] of Object.entries(NOTED)) {
    const call = (real as unknown as Record<string, Call>)[name];
    replaced[name] = (...args) => {
      const [verb, ...paths] = words(args, opened);
      const inside = paths.map((path) => relative(disk.root, path));
      if (inside.some((path) => path.startsWith('..'))) return call(...args);
      disk.left--;
      if (disk.died) throw new Died();
      // Ids of processes and lengths of writes are nothing that a test could expect.
      disk.log.push([verb, ...inside.map((path) => path.replaceAll(`-${process.pid}`, ''))].join(' '));
      return call(...args);
    };
  }
  return { ...real, ...replaced, default: { ...real, ...replaced } } as unknown as typeof fs;
}
