/**
 * Claims of one lock in a world that is moved step by step. The real code of the lock runs over a disk in memory; whatever it asks of its surroundings
 * is one step of its process, and after each step any other process may have its turn, or the process may die. To be continued at a step, a
 * process's code is called again from its beginning and given what it was told before: it is a function of that.
 */

/** Raised into the code of a process that has had its step. */
class Paused extends Error {}

/** How the code of a process ended. */
export type Outcome = 'under way' | 'holds' | 'refused' | 'released' | 'dead' | 'failed';

interface Inode {
  text: string;
}

interface Told {
  readonly asked: string;
  readonly value?: unknown;
  readonly code?: string;
}

/** A process: what it was told so far, and where that has brought it. */
interface Actor {
  readonly name: string;
  readonly told: readonly Told[];
  readonly outcome: Outcome;
}

/** One state of the world; never changed in place. */
export interface World {
  /** Files by path; two links to one file have the same number. */
  readonly files: ReadonlyMap<string, number>;
  readonly inodes: readonly Inode[];
  readonly actors: readonly Actor[];
}

/** What a process does with the lock: claims it, and gives it free again where it is told to. `holds` is called while it has it. */
export type Program = (name: string, holds: () => void, releases: () => void) => 'refused' | 'released';

function systemError(code: string): Error {
  return Object.assign(new Error(code), { code });
}

/** The disk and the processes as the code under test asks them; one process has its turn at a time. */
export class SteppedDisk {
  #files = new Map<string, number>();
  #inodes: Inode[] = [];
  #actors: readonly Actor[] = [];
  #current: { actor: Actor; at: number; next: Told | null; paused: boolean } | null = null;

  constructor(readonly links: boolean) {}

  get currentName(): string {
    return this.#turn().actor.name;
  }

  #turn() {
    if (this.#current === null) throw new Error('no process has its turn');
    return this.#current;
  }

  /** One step of the process whose turn it is: told again where it was told before, done where it is the next one. */
  #step<T>(asked: string, act: () => T): T {
    const turn = this.#turn();
    if (turn.paused) throw new Paused();
    const before = turn.actor.told.at(turn.at);
    if (before !== undefined) {
      turn.at += 1;
      if (before.asked !== asked) throw new Error(`a process asks ${asked}, and asked ${before.asked} before`);
      if (before.code !== undefined) throw systemError(before.code);
      return before.value as T;
    }
    if (turn.next !== null) {
      turn.paused = true;
      throw new Paused();
    }
    try {
      const value = act();
      turn.next = { asked, value };
      return value;
    } catch (error) {
      const code = (error as NodeJS.ErrnoException).code;
      if (code === undefined) throw error;
      turn.next = { asked, code };
      throw error;
    }
  }

  write(path: string, text: string): void {
    this.#step(`write ${path}`, () => {
      this.#inodes.push({ text });
      this.#files.set(path, this.#inodes.length - 1);
    });
  }

  link(from: string, to: string): void {
    this.#step(`link ${from} ${to}`, () => {
      if (!this.links) throw systemError('EPERM');
      const found = this.#files.get(from);
      if (found === undefined) throw systemError('ENOENT');
      if (this.#files.has(to)) throw systemError('EEXIST');
      this.#files.set(to, found);
    });
  }

  /** In two steps: the file is there before it is whole. */
  copy(from: string, to: string): void {
    const inode = this.#step(`create ${to}`, () => {
      if (this.#files.has(to)) throw systemError('EEXIST');
      this.#inodes.push({ text: '' });
      this.#files.set(to, this.#inodes.length - 1);
      return this.#inodes.length - 1;
    });
    this.#step(`fill ${to}`, () => {
      const found = this.#files.get(from);
      if (found === undefined) throw systemError('ENOENT');
      this.#inodes[inode] = { text: this.#inodes[found].text };
    });
  }

  rename(from: string, to: string): void {
    this.#step(`rename ${from} ${to}`, () => {
      const found = this.#files.get(from);
      if (found === undefined) throw systemError('ENOENT');
      // As POSIX has it: nothing happens to two links to one file.
      if (this.#files.get(to) === found) return;
      this.#files.delete(from);
      this.#files.set(to, found);
    });
  }

  remove(path: string): void {
    this.#step(`remove ${path}`, () => void this.#files.delete(path));
  }

  read(path: string): string | null {
    return this.#step(`read ${path}`, () => {
      const found = this.#files.get(path);
      return found === undefined ? null : this.#inodes[found].text;
    });
  }

  exists(path: string): boolean {
    return this.#step(`stat ${path}`, () => this.#files.has(path));
  }

  /** Whether a process of this machine runs. */
  lives(pid: number): boolean {
    return this.#step(`process ${pid}`, () => {
      const outcome = this.#actors.at(pid - 1)?.outcome;
      return outcome === 'under way' || outcome === 'holds';
    });
  }

  /** The world after a step of one process. */
  after(world: World, which: number, program: Program): World {
    this.#files = new Map(world.files);
    this.#inodes = [...world.inodes];
    this.#actors = world.actors;
    const actor = world.actors[which];
    const turn = { actor, at: 0, next: null as Told | null, paused: false };
    this.#current = turn;
    let outcome: Outcome = 'under way';
    // A process that begins to give the lock free holds it no more.
    const marks = { holds: () => (outcome = 'holds'), releases: () => (outcome = 'under way') } as const;
    try {
      outcome = program(
        actor.name,
        () => {
          if (!turn.paused) marks.holds();
          // A step of its own: how long it holds the lock is open.
          this.#step('hold', () => undefined);
        },
        () => {
          if (!turn.paused) marks.releases();
        },
      );
    } catch (error) {
      if (!turn.paused) {
        outcome = 'failed';
        throw error;
      }
    } finally {
      this.#current = null;
    }
    const told = turn.next === null ? actor.told : [...actor.told, turn.next];
    const actors = world.actors.map((one, i) => (i === which ? { ...actor, told, outcome } : one));
    return { files: this.#files, inodes: this.#inodes, actors };
  }
}

/** The same world whatever its files are numbered. */
function keyOf({ files, inodes, actors }: World): string {
  const numbers = new Map<number, number>();
  const disk = [...files]
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([path, inode]) => {
      if (!numbers.has(inode)) numbers.set(inode, numbers.size);
      return [path, numbers.get(inode), inodes[inode].text];
    });
  return JSON.stringify([disk, actors.map(({ told, outcome }) => [outcome, told.map((one) => [one.value, one.code])])]);
}

export interface Explored {
  readonly states: number;
  /** Worlds in which nobody can take another step. */
  readonly ends: readonly World[];
  /** How two processes came to hold the lock at once: the name of each step's process. */
  readonly overlap: readonly string[] | null;
}

/**
 * All worlds that the processes can reach, in every order of their steps; `deaths` of them may die between any two steps. Ends at the first world in
 * which two processes hold the lock.
 */
export function explore(disk: SteppedDisk, start: World, program: Program, deaths: number): Explored {
  const seen = new Set([keyOf(start)]);
  const ends: World[] = [];
  const open: { world: World; path: readonly string[]; deaths: number }[] = [{ world: start, path: [], deaths }];
  for (let here = open.pop(); here !== undefined; here = open.pop()) {
    const { world, path } = here;
    if (world.actors.filter(({ outcome }) => outcome === 'holds').length > 1) {
      return { states: seen.size, ends, overlap: path };
    }
    const going = world.actors.flatMap(({ outcome }, i) => (outcome === 'under way' || outcome === 'holds' ? [i] : []));
    if (going.length === 0) ends.push(world);
    const reach = (next: World, step: string, left: number): void => {
      const key = `${left} ${keyOf(next)}`;
      if (seen.has(key)) return;
      seen.add(key);
      open.push({ world: next, path: [...path, step], deaths: left });
    };
    for (const which of going) {
      const { name } = world.actors[which];
      const next = disk.after(world, which, program);
      reach(next, `${name}: ${next.actors[which].told.at(-1)?.asked ?? next.actors[which].outcome}`, here.deaths);
      if (here.deaths === 0) continue;
      const actors = world.actors.map((one, i) => (i === which ? { ...one, outcome: 'dead' as const } : one));
      reach({ ...world, actors }, `${name} dies`, here.deaths - 1);
    }
  }
  return { states: seen.size, ends, overlap: null };
}
