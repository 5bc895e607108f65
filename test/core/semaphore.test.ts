import { describe, expect, it } from 'vitest';
import { Semaphore } from '../../src/core/semaphore.js';
import { settle } from './manual_clock.js';

/** Works of a semaphore that last until they are told to end. */
class Works {
  /** The names of those that were started and have not ended, in the order of their starts. */
  readonly running: string[] = [];
  readonly #ends = new Map<string, (error: Error | null) => void>();

  constructor(private readonly semaphore: Semaphore) {}

  /** Asks for the slots; what the caller of `run` gets. */
  ask(name: string, slots?: number): Promise<string> {
    const work = async (): Promise<string> => {
      this.running.push(name);
      const error = await new Promise<Error | null>((end) => this.#ends.set(name, end));
      this.running.splice(this.running.indexOf(name), 1);
      if (error !== null) throw error;
      return name;
    };
    return this.semaphore.run(work, slots);
  }

  async end(name: string, error: Error | null = null): Promise<void> {
    this.#ends.get(name)?.(error);
    await settle();
  }
}

describe('a semaphore', () => {
  it('lets as many work as it has slots, and the others in the order in which they came', async () => {
    const works = new Works(new Semaphore(2));
    const all = ['a', 'b', 'c', 'd'].map((name) => works.ask(name));
    await settle();
    expect(works.running).toEqual(['a', 'b']);
    await works.end('b');
    expect(works.running).toEqual(['a', 'c']);
    await works.end('a');
    expect(works.running).toEqual(['c', 'd']);
    await works.end('c');
    await works.end('d');
    expect(await Promise.all(all)).toEqual(['a', 'b', 'c', 'd']);
  });

  it('counts what each takes, and lets no small one pass a large one that waits', async () => {
    const works = new Works(new Semaphore(4));
    const all = [works.ask('three', 3), works.ask('two', 2), works.ask('one', 1)];
    await settle();
    expect(works.running).toEqual(['three']);
    const late = works.ask('late');
    await works.end('three');
    expect(works.running).toEqual(['two', 'one', 'late']);
    for (const name of ['two', 'one', 'late']) await works.end(name);
    await Promise.all([...all, late]);
  });

  it('gives all its slots, and no more, to one that takes more than there are', async () => {
    const works = new Works(new Semaphore(2));
    const all = [works.ask('small'), works.ask('huge', 100), works.ask('after', 2)];
    await settle();
    expect(works.running).toEqual(['small']);
    await works.end('small');
    expect(works.running).toEqual(['huge']);
    await works.end('huge');
    expect(works.running).toEqual(['after']);
    await works.end('after');
    await Promise.all(all);
  });

  it('has its slots back when a work fails, however it does', async () => {
    const semaphore = new Semaphore(2);
    const works = new Works(semaphore);
    const failing = works.ask('failing', 2).catch((error: Error) => error.message);
    const next = works.ask('next', 2);
    await settle();
    await works.end('failing', new Error('it broke'));
    expect(await failing).toBe('it broke');
    expect(works.running).toEqual(['next']);
    await works.end('next');
    await next;
    const atOnce = (): never => {
      throw new Error('it never began');
    };
    await expect(semaphore.run(atOnce, 2)).rejects.toThrow('it never began');
    expect(await semaphore.run(async () => 'free again', 2)).toBe('free again');
  });
});
