/** The lines that a sweep prints about each event, understandable on their own. */
import { formatDuration } from '../../run/progress.js';
import type { SweepEvent } from './sweep.js';
import type { Paint } from '../../core/terminal.js';
import { printable } from '../../core/errors.js';
import { RunPaths } from '../../run/paths.js';
import { describePlacement } from '../machine/devices.js';
import { join } from 'node:path';

/** How many of a worker's last lines are shown with its failure. */
const LAST_LINES = 8;

type EventLines = { [K in SweepEvent['kind']]: (event: Extract<SweepEvent, { kind: K }>, paint: Paint) => string[] };

const SAY: EventLines = {
  started: ({ running }) => {
    const { job, placement, untilIteration } = running;
    const until = untilIteration < job.numIterations ? `, up to iteration ${untilIteration}` : '';
    return [`start    ${job.name} (${describePlacement(placement, job.processes)}${until})`];
  },
  finished: () => [],
  paused: ({ running }) => [`at rung  ${running.job.name}, iteration ${running.untilIteration}: waits for the others`],
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
  stopped: ({ name, reason }, paint) => [`${paint('stopped', 'yellow')}  ${name} ${reason}`],
};

/** The lines of an event; none for events that the view itself reports, such as what finished. */
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
