/** What everything that passes a run's rows on promises. Each such tracker's test runs this. */
import { appendFileSync, existsSync, mkdirSync, renameSync, writeFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { FakeRun } from './run_directory.js';

export interface GivenTracker {
  /** A folder of runs. */
  readonly folder: () => string;
  /**
   * Passes on what is there until `ending` is aborted, at once unless given. Gives all that it says to whoever watches the run; an error's
   * message counts as said.
   */
  readonly forward: (run: FakeRun, ending?: AbortSignal) => Promise<string>;
  /** The rows as somebody reads them there: the iteration and `reward/mean` of each, in order, none that another one took the place of. */
  readonly rows: (run: FakeRun) => readonly (readonly [iteration: number, reward: number])[];
  /** Removes what has been passed on, as somebody does who cleans up there. */
  readonly lose: (run: FakeRun) => void;
  /** The file in which it notes how far it is. */
  readonly notes: (run: FakeRun) => string;
}

export function trackerContract(name: string, { folder, forward, rows, lose, notes }: GivenTracker): void {
  const upTo = (last: number) =>
    Array.from({ length: last }, (_, i) => [i + 1, expect.closeTo((i + 1) / 10, 5) as number] as const);
  const begun = (last: number): FakeRun => {
    const run = new FakeRun(folder());
    run.iterations(1, last);
    return run;
  };
  const until = async (holds: () => boolean): Promise<void> => {
    for (let looks = 0; !holds(); looks++) {
      if (looks > 2000) throw new Error('waited in vain');
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
  };
  const isThere = (run: FakeRun, count: number) => (): boolean => {
    try {
      return rows(run).length === count;
    } catch {
      return false; // Nothing has been passed on yet.
    }
  };

  describe(`${name} keeps the contract of trackers`, () => {
    it('passes rows on while the run continues, and what is there at its end', async () => {
      const run = begun(2);
      const ending = new AbortController();
      const forwarding = forward(run, ending.signal);
      await until(isThere(run, 2));
      run.iterations(3, 5);
      ending.abort();
      await forwarding;
      expect(rows(run)).toEqual(upTo(5));
    });

    it('passes each row on once, however often it is started', async () => {
      const run = begun(3);
      await forward(run);
      await forward(run);
      expect(rows(run)).toEqual(upTo(3));
      run.iterations(4, 5);
      await forward(run);
      expect(rows(run)).toEqual(upTo(5));
    });

    it('has what a run did again after a crash in the place of what it did before', async () => {
      const run = begun(4);
      await forward(run);
      run.goOnFrom(2);
      run.iteration(3, { 'reward/mean': 9 });
      await forward(run);
      run.iteration(4);
      await forward(run);
      expect(rows(run)).toEqual([...upTo(2), [3, 9], ...upTo(4).slice(3)]);
    });

    it('leaves a last line that is half written for later', async () => {
      const run = begun(2);
      appendFileSync(run.paths.metrics, '{"iteration":3,"rew');
      await forward(run);
      expect(rows(run)).toEqual(upTo(2));
      appendFileSync(run.paths.metrics, 'ard/mean":0.3}\n');
      await forward(run);
      expect(rows(run)).toEqual(upTo(3));
    });

    it('passes everything on again that was lost there', async () => {
      const run = begun(3);
      await forward(run);
      lose(run);
      run.iteration(4);
      await forward(run);
      expect(rows(run)).toEqual(upTo(4));
    });

    it('names a line that is none', async () => {
      const run = begun(2);
      appendFileSync(run.paths.metrics, 'nonsense\n');
      expect(await forward(run)).toContain(`${run.paths.metrics}:3: invalid line`);
    });

    it('reports that the run directory is gone, and makes none', async () => {
      const run = begun(2);
      const ending = new AbortController();
      const forwarding = forward(run, ending.signal);
      await until(isThere(run, 2));
      renameSync(run.paths.dir, `${run.paths.dir}.removed`);
      expect(await forwarding).toContain('the run directory was removed');
      ending.abort();
      expect(existsSync(run.paths.dir)).toBe(false);
    });

    it('rejects the notes of another version', async () => {
      const run = begun(1);
      mkdirSync(run.paths.trackDir, { recursive: true });
      writeFileSync(notes(run), '{"format":99}');
      expect(await forward(run)).toContain(`${notes(run)}: invalid `);
    });
  });
}
