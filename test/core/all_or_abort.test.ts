import { describe, expect, it } from 'vitest';
import { allOrAbort } from '../../src/core/clock.js';

const calledOff = (signal: AbortSignal): Promise<never> =>
  new Promise((_resolve, reject) => signal.addEventListener('abort', () => reject(new Error('called off'))));

describe('work that is started at once', () => {
  it('gives its results in order', async () => {
    expect(await allOrAbort([3, 1, 2].map((n) => () => Promise.resolve(n)))).toEqual([3, 1, 2]);
  });

  it('raises the error that called the others off, whichever stands first', async () => {
    const broken = () => Promise.reject(new Error('the disk is full'));
    await expect(allOrAbort([calledOff, broken, calledOff])).rejects.toThrow('the disk is full');
  });

  it('is canceled by its caller', async () => {
    const stop = new AbortController();
    const work = allOrAbort([calledOff], stop.signal);
    stop.abort();
    await expect(work).rejects.toThrow('called off');
  });
});
