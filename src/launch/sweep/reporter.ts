/** Shows a sweep: its schedule as live progress, its events as lines. */
import { plainPaint, type Paint } from '../../core/terminal.js';
import { printable } from '../../core/errors.js';
import { describePlacement } from '../machine/devices.js';
import { runInProgress, type LiveProgress, type RunInProgress } from '../live/progress.js';
import type { View } from '../live/view.js';
import { eventLines, refusedLines } from './lines.js';
import type { Schedule } from './schedule.js';
import type { RunningJob, SweepEvent, SweepView } from './sweep.js';

/** Events that a screen shows anyway. */
const PASSING: ReadonlySet<SweepEvent['kind']> = new Set(['started', 'paused']);

export class SweepReporter implements SweepView {
  /** Runs whose failure has been reported. */
  readonly #told = new Set<string>();

  constructor(
    private readonly experiment: string,
    private readonly view: View,
    private readonly paint: Paint = plainPaint,
  ) {}

  begin(schedule: Schedule, running: ReadonlyMap<string, RunningJob>): void {
    this.view.begin(new SweepProgress(this.experiment, schedule, running));
  }

  tell(event: SweepEvent): void {
    if (event.kind === 'finished') this.view.finished(event.running.job.name, event.seconds);
    if (event.kind === 'failed') this.#told.add(event.running.job.name);
    const lines =
      event.kind === 'gave_up' && !this.#told.has(event.name)
        ? refusedLines(event.name, event.reason, this.paint)
        : eventLines(event, this.paint);
    if (lines.length === 0) return;
    if (PASSING.has(event.kind)) this.view.sayOffScreen(lines.join('\n'));
    else this.view.say(lines.join('\n'));
  }

  remark(sentence: string): void {
    this.view.say(printable(sentence));
  }

  end(): void {
    this.view.end();
  }
}

class SweepProgress implements LiveProgress {
  readonly opening = null;
  readonly #seen = new WeakMap<RunningJob, RunInProgress>();

  constructor(
    readonly title: string,
    private readonly schedule: Schedule,
    private readonly jobs: ReadonlyMap<string, RunningJob>,
  ) {}

  names(phase: Parameters<Schedule['names']>[0]): readonly string[] {
    return this.schedule.names(phase);
  }

  get running(): ReadonlyMap<string, RunInProgress> {
    return new Map([...this.jobs].map(([name, job]) => [name, this.#watched(job)]));
  }

  #watched(running: RunningJob): RunInProgress {
    const known = this.#seen.get(running);
    if (known !== undefined) return known;
    const { job, placement, untilIteration, startedMs } = running;
    const place = describePlacement(placement, job.processes);
    const run = { ...runInProgress(job.config, place, untilIteration), startedMs };
    this.#seen.set(running, run);
    return run;
  }
}
