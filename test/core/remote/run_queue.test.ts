import { describe, expect, it } from 'vitest';
import { RunQueue } from '../../../src/core/remote/run_queue.js';

const wide = { perRun: 100, total: 1000, inFlight: Infinity };
const any = (): boolean => true;

/** Takes items one at a time, each ended at once. */
function drain(queue: RunQueue<string>): string[] {
  const taken: string[] = [];
  for (let turn = queue.take(any); turn !== null; turn = queue.take(any)) {
    taken.push(turn.item);
    turn.end();
  }
  return taken;
}

describe('RunQueue', () => {
  it('gives each run its turn, however many items one has waiting', () => {
    const queue = new RunQueue<string>(wide);
    for (const item of ['a1', 'a2', 'a3', 'a4', 'b1', 'b2', 'c1']) queue.push(item[0], item);
    expect(drain(queue)).toEqual(['a1', 'b1', 'c1', 'a2', 'b2', 'a3', 'a4']);
    expect([queue.waiting, queue.runs().size]).toEqual([0, 0]);
  });

  it('lets a run that comes back wait for one turn of each other run', () => {
    const queue = new RunQueue<string>(wide);
    for (let i = 0; i < 50; i++) queue.push('greedy', `g${i}`);
    const order: string[] = [];
    for (let i = 0; i < 10; i++) {
      queue.push('modest', `m${i}`);
      for (let turn = 0; turn < 2; turn++) order.push(queue.take(any)?.item[0] ?? '');
    }
    expect(order.filter((run) => run === 'm')).toHaveLength(10);
  });

  it('passes over a run with its quota in flight, and an item that may not go', () => {
    const queue = new RunQueue<string>({ ...wide, inFlight: 1 });
    for (const item of ['a1', 'a2', 'b1', 'b2']) queue.push(item[0], item);
    const first = queue.take(any);
    expect([first?.item, queue.take((item) => item !== 'b1')?.item, queue.take(any)]).toEqual(['a1', 'b2', null]);
    expect(queue.runs()).toEqual(
      new Map([
        ['a', { inFlight: 1, waiting: 1 }],
        ['b', { inFlight: 1, waiting: 1 }],
      ]),
    );
    first?.end();
    first?.end();
    expect(queue.take(any)?.item).toBe('a2');
  });

  it('rejects an item above the limit of its run, and pushes out the last one of the longest run', () => {
    const queue = new RunQueue<string>({ perRun: 3, total: 4, inFlight: 1 });
    for (const item of ['a1', 'a2', 'a3']) expect(queue.push('a', item)).toBeNull();
    expect(queue.push('a', 'a4')).toBe('a4');
    expect(queue.push('b', 'b1')).toBeNull();
    expect(queue.push('b', 'b2')).toBe('a3');
    expect(queue.push('a', 'a0', true)).toBeNull();
    expect(queue.waiting).toBe(5);
    expect(drain(queue)).toEqual(['a0', 'b1', 'a1', 'b2', 'a2']);
  });

  it('drops items that wait, and only those', () => {
    const queue = new RunQueue<string>(wide);
    for (const item of ['a1', 'a2', 'b1']) queue.push(item[0], item);
    expect([queue.drop('a', 'a1'), queue.drop('a', 'a1'), queue.drop('c', 'a2')]).toEqual([true, false, false]);
    expect(queue.dropAll((item) => item.endsWith('1'))).toEqual(['b1']);
    expect(drain(queue)).toEqual(['a2']);
  });
});
