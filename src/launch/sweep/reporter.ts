/** Shows a sweep: its schedule as live progress and its events as lines. */
import { join } from 'node:path';
import { plainPaint, type Paint } from '../../core/terminal.js';
import { printable } from '../../core/errors.js';
import { describePlacement } from '../machine/devices.js';
import { RunInProgress, type LiveProgress } from '../live/watch.js';
import type { View } from '../live/view.js';
import type { Schedule } from './schedule.js';
import type { RunningJob, SweepEvent, SweepView } from './sweep.js';
import { formatDuration } from '../../run/progress.js';
import { RunPaths } from '../../run/paths.js';

/** Events that a live screen already shows. */
const PASSING: ReadonlySet<SweepEvent['kind']> = new Set(['started']);

export class SweepReporter implements SweepView {
  /** Runs whose failure has been reported. */
  readonly #reported = new Set<string>();

  constructor(
    private readonly experiment: string,
    private readonly view: View,
    private readonly paint: Paint = plainPaint,
  ) {}

  begin(schedule: Schedule, running: ReadonlyMap<string, RunningJob>): void {
    this.view.begin(new SweepProgress(this.experiment, schedule, running));
  }

  report(event: SweepEvent): void {
    if (event.kind === 'finished') this.view.finished(event.running.job.name, event.seconds);
    if (event.kind === 'failed') this.#reported.add(event.running.job.name);
    const lines =
      event.kind === 'gave_up' && !this.#reported.has(event.name)
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
  readonly #runs = new WeakMap<RunningJob, RunInProgress>();

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
    const known = this.#runs.get(running);
    if (known !== undefined) return known;
    const { job, placement, startedMs } = running;
    const run = new RunInProgress(job.config, describePlacement(placement, job.processes), startedMs);
    this.#runs.set(running, run);
    return run;
  }
}

/** Number of a worker's last lines that are shown with its failure. */
const LAST_LINES = 8;

type EventLines = { [K in SweepEvent['kind']]: (event: Extract<SweepEvent, { kind: K }>, paint: Paint) => string[] };

const SAY: EventLines = {
  started: ({ running: { job, placement } }) => [
    `start    ${job.name} (${describePlacement(placement, job.processes)})`,
  ],
  finished: () => [],
  interrupted: ({ running }, paint) => [`${paint('stopped', 'yellow')}  ${running.job.name}: it can be continued`],
  failed: ({ running, failure, seconds }, paint) => [
    `${paint('FAILED', 'red')}   ${running.job.name} after ${formatDuration(seconds)}: ${indent(failure.reason)}`,
    ...failure.lastLines.slice(-LAST_LINES).map((line) => paint(`         | ${printable(line)}`, 'dim')),
    ...(failure.advice === null ? [] : [`         ${failure.advice}`]),
    `         log: ${join(RunPaths.of(running.job.config.settings).logsDir, 'console.log')}`,
  ],
  elsewhere: ({ name, holder }) => [`waits    ${name} is run by ${holder}`],
  retry: ({ name, retry, of }) => [`retry    ${name}: it is started again later (${retry} of ${of})`],
  gave_up: () => [],
  blocked: ({ name, by }, paint) => [
    `${paint('blocked', 'yellow')}  ${name}: it starts from ${by}, which did not finish`,
  ],
};

/** The lines of an event. Empty for events that the view itself shows, such as finished runs. */
export function eventLines(event: SweepEvent, paint: Paint): string[] {
  const say = SAY[event.kind] as (event: SweepEvent, paint: Paint) => string[];
  return say(event, paint);
}

/** A run that failed without having been started. */
export function refusedLines(name: string, reason: string, paint: Paint): string[] {
  return [`${paint('FAILED', 'red')}   ${name} was not started: ${indent(reason)}`];
}

function indent(text: string): string {
  return printable(text).split('\n').join('\n         ');
}
