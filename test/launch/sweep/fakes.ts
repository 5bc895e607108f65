/** A sweep without processes or disks: runs that end when the test says so. */
import type { LoadedConfig } from '../../../src/config/load.js';
import type { MemoryModel } from '../../../src/launch/machine/estimate.js';
import type { Placement } from '../../../src/launch/machine/devices.js';
import type { SizedJob } from '../../../src/launch/sweep/plan.js';
import type { RunFolderState } from '../../../src/launch/sweep/schedule.js';
import type { Runner, RunWorld, Slots, SweepEvent, SweepView } from '../../../src/launch/sweep/sweep.js';

/** As much of a config as a sweep looks at. */
export function fakeConfig(name: string): LoadedConfig {
  const settings = {
    task: 'external',
    run_name: name,
    base_exp_dir: '/nowhere',
    num_iterations: 100,
    launch: { processes: 1 },
  };
  return { settings, resultHash: name, file: 'x.jsonnet' } as unknown as LoadedConfig;
}

export function fakeJob(name: string, parents: readonly string[] = [], more: Partial<SizedJob> = {}): SizedJob {
  return {
    name,
    kind: 'cell',
    parents,
    processes: 1,
    axes: {},
    device: 'cpu',
    bytes: 0,
    config: fakeConfig(name),
    ...more,
  };
}

/** For runs whose memory is unknown. */
export const unknownMemory: MemoryModel = () => ({
  device: 'cpu',
  processes: 1,
  bytes: null,
  verdict: () => null,
  placed: null,
});

interface Attempt {
  readonly name: string;
  readonly placement: Placement;
  readonly stop: AbortSignal;
  end(kind?: 'finished' | 'interrupted'): void;
  fail(error: unknown): void;
}

export class FakeRunner implements Runner {
  readonly attempts: Attempt[] = [];

  runWithoutParents(
    config: LoadedConfig,
    placement: Placement & { readonly stop: AbortSignal },
  ): Promise<{ readonly kind: 'finished' | 'interrupted' }> {
    return new Promise((resolve, reject) => {
      this.attempts.push({
        name: config.settings.run_name,
        placement,
        stop: placement.stop,
        end: (kind = 'finished') => resolve({ kind }),
        fail: reject,
      });
    });
  }

  get names(): string[] {
    return this.attempts.map(({ name }) => name);
  }

  /** The latest attempt at a run. */
  of(name: string): Attempt {
    const attempt = this.attempts.filter((one) => one.name === name).at(-1);
    if (attempt === undefined) throw new Error(`${name} was not started; started: ${this.names.join(', ')}`);
    return attempt;
  }
}

export class FakeSlots implements Slots {
  readonly #taken = new Map<Placement, number>();

  /** One kind of slot, whatever is asked for. */
  constructor(private readonly size: number) {}

  free(): number {
    return this.size - [...this.#taken.values()].reduce((sum, count) => sum + count, 0);
  }

  tryAcquire(processes: number): Placement | null {
    if (processes > this.free()) return null;
    const placement = { devices: [], threads: 1 };
    this.#taken.set(placement, processes);
    return placement;
  }

  release(placement: Placement): void {
    if (!this.#taken.delete(placement)) throw new Error('released twice');
  }
}

export class FakeWorld implements RunWorld {
  readonly states = new Map<string, RunFolderState>();

  inspect(config: LoadedConfig): RunFolderState {
    return this.states.get(config.settings.run_name) ?? { kind: 'open', failed: null, interrupted: false };
  }

  setAsideOutdated(): null {
    return null;
  }
}

export class FakeView implements SweepView {
  readonly events: SweepEvent[] = [];
  ended = 0;

  begin(): void {}
  report(event: SweepEvent): void {
    this.events.push(event);
  }
  remark(): void {}
  end(): void {
    this.ended++;
  }

  get kinds(): string[] {
    return this.events.map((event) => `${event.kind} ${'running' in event ? event.running.job.name : event.name}`);
  }
}

/** Lets everything that is ready happen. */
export async function settle(): Promise<void> {
  for (let turn = 0; turn < 10; turn++) await Promise.resolve();
}
