/** Shows runs in progress: on a terminal as a screen that is redrawn in place, otherwise as lines. */
import { createLogUpdate } from 'log-update';
import { painter, plainPaint, type Paint } from '../../core/terminal.js';
import { printable } from '../../core/errors.js';
import { average } from '../../core/statistics.js';
import { formatDuration } from '../../run/progress.js';
import type { LiveProgress, RunProgress } from './watch.js';
import {
  countsLine,
  PHASES,
  renderScreen,
  runLine,
  shortName,
  timeLine,
  totalOf,
  type LiveSnapshot,
} from './screen.js';

/** Shows events and progress. */
export interface View {
  /** Follows these runs from now on, until `end`. */
  begin(progress: LiveProgress): void;
  /** Prints a sentence that stays. It may contain colors. The caller escapes untrusted text in it. */
  say(text: string): void;
  /** Prints a sentence that a screen shows anyway. Only views without a screen print it. */
  sayOffScreen(text: string): void;
  /** A line that a run's own worker printed. */
  workerLine(run: string, line: string): void;
  /** A line of another trainer's output, which describes the run's progress in its own words. */
  trainerLine(run: string, line: string): void;
  /** Shows a task that takes a while, in place of the previous one. Null ends it. */
  busy(what: string | null): void;
  /** One of the runs finished after this many seconds. */
  finished(run: string, seconds: number): void;
  /** May be called more than once. */
  end(): void;
}

/** The view that suits a stream. */
export function openView(stream: NodeJS.WriteStream): View {
  return stream.isTTY ? new LiveView(stream) : new PlainView((text) => void stream.write(text), painter(stream));
}

/** Shows nothing. */
export const noView: View = {
  begin: () => {},
  say: () => {},
  sayOffScreen: () => {},
  workerLine: () => {},
  trainerLine: () => {},
  busy: () => {},
  finished: () => {},
  end: () => {},
};

const REDRAW_INTERVAL_MS = 500;
/** Without a terminal: seconds between progress lines. They grow from the first to the maximum. */
const LINE_INTERVAL_S = { first: 30, max: 300 };
const LINE_WIDTH = 80;
/** Without a terminal, up to this many runs in progress get a line each. */
const MAX_LINES = 4;

/** Code that both views share. */
abstract class ProgressView implements View {
  protected readonly startedMs = performance.now();
  protected progress: LiveProgress | null = null;
  #timer: NodeJS.Timeout | null = null;
  /** Seconds that finished runs took. */
  readonly #finished: number[] = [];
  /** Warnings of runs with their numbers removed, so that a repeated warning is shown once. */
  readonly #warnings = new Set<string>();

  constructor(
    protected readonly paint: Paint,
    private readonly intervalMs: number,
  ) {}

  begin(progress: LiveProgress): void {
    this.progress = progress;
    this.#timer = setInterval(() => this.tick(), this.intervalMs);
    this.#timer.unref();
  }

  abstract say(text: string): void;
  abstract sayOffScreen(text: string): void;
  abstract busy(what: string | null): void;

  /** Shows every line of a single run, but only the warnings and errors of several. */
  workerLine(run: string, line: string): void {
    const text = printable(line);
    const style = /^error: /.test(text) ? 'red' : /^warning: /.test(text) ? 'yellow' : null;
    const short = shortName(this.progress?.title ?? '', run);
    const isAlone = short === run;
    const named = isAlone || text.includes(run) ? text : `${short}: ${text}`;
    if (style === null) {
      if (isAlone) this.say(this.paint(named, 'dim'));
      return;
    }
    const kind = `${run} ${text.replace(/\d+/g, '#')}`;
    if (this.#warnings.has(kind)) return;
    this.#warnings.add(kind);
    this.say(this.paint(named, style));
  }

  trainerLine(run: string, line: string): void {
    const running = this.progress?.running.get(run);
    if (running !== undefined && line.trim() !== '') running.says = line;
  }

  finished(run: string, seconds: number): void {
    this.#finished.push(seconds);
    const last = this.progress?.running.get(run)?.now();
    if (last !== undefined) this.beforeEnd(last);
    const learned = last === undefined ? '' : learnedText(last);
    this.say(`${this.paint('finished', 'green')} ${run} in ${formatDuration(seconds)}${learned}`);
  }

  end(): void {
    if (this.#timer !== null) clearInterval(this.#timer);
    this.#timer = null;
  }

  protected abstract tick(): void;

  /** Called before the line about a run's end. */
  protected abstract beforeEnd(run: RunProgress): void;

  /** Null before `begin` and after `end`. */
  protected snapshot(): LiveSnapshot | null {
    if (this.#timer === null || this.progress === null) return null;
    const { title } = this.progress;
    const running = [...this.progress.running.values()].map((run) => run.now());
    const names = Object.fromEntries(
      PHASES.map((phase) => [phase, this.progress?.names(phase)]),
    ) as LiveSnapshot['names'];
    const elapsedS = (performance.now() - this.startedMs) / 1000;
    return { title, names, running, elapsedS, leftS: this.#secondsLeft(running, names.queued.length) };
  }

  /** Assumes that queued runs take as long as finished ones, or, without any, as those in progress. */
  #secondsLeft(running: readonly RunProgress[], queued: number): number | null {
    const estimated = running.flatMap(({ elapsedS, leftS }) => (leftS === null ? [] : [elapsedS + leftS]));
    const known = this.#finished.length > 0 ? this.#finished : estimated;
    if (known.length === 0) return null;
    const mean = average(known);
    const current = running.reduce((sum, { leftS, elapsedS }) => sum + (leftS ?? Math.max(0, mean - elapsedS)), 0);
    return (current + mean * queued) / Math.max(1, running.length);
  }
}

/** The first and last held-out numbers of a run, as part of a line. */
function learnedText({ heldOut: [curve] }: RunProgress): string {
  if (curve === undefined) return '';
  const [before, after] = [curve.points[0], curve.points[curve.points.length - 1]];
  const first = before === after ? '' : `${before.shown} -> `;
  return `, ${curve.label} ${first}${after.shown}`;
}

/** Prints a line for each start and end, for each held-out evaluation of a policy, and progress at intervals. */
export class PlainView extends ProgressView {
  #lastMs = performance.now();
  #busySince: number | null = null;
  /** By run: the last iteration whose evaluation was printed. */
  readonly #evaluated = new Map<string, number>();

  constructor(
    private readonly write: (text: string) => void,
    paint: Paint = plainPaint,
  ) {
    super(paint, 1000);
  }

  override begin(progress: LiveProgress): void {
    super.begin(progress);
    const snapshot = this.snapshot();
    if (snapshot === null || totalOf(snapshot.names) < 2) return;
    this.say(`${snapshot.title}: ${progress.opening ?? countsLine(snapshot, this.paint)}`);
  }

  override end(): void {
    const snapshot = this.snapshot();
    super.end();
    if (snapshot === null || totalOf(snapshot.names) < 2 || snapshot.title === snapshot.names.finished.at(-1)) return;
    this.say(`${snapshot.title}: ${countsLine(snapshot, this.paint)}; ${formatDuration(snapshot.elapsedS)}`);
  }

  override say(text: string): void {
    this.write(`${text}\n`);
  }

  /** Short work gets no line. */
  override busy(what: string | null): void {
    const now = performance.now();
    if (what === null) this.#busySince = null;
    else if (this.#busySince === null) this.#busySince = now;
    else if (now - this.#busySince >= LINE_INTERVAL_S.first * 1000) {
      this.#busySince = now;
      this.say(what);
    }
  }

  override sayOffScreen(text: string): void {
    this.say(text);
  }

  protected override tick(): void {
    const snapshot = this.snapshot();
    if (snapshot === null) return;
    const { title, running, names } = snapshot;
    const lines = running.length <= MAX_LINES ? running : [];
    for (const run of lines) this.#sayEvaluations(title, run);
    const now = performance.now();
    const intervalS = Math.min(LINE_INTERVAL_S.max, Math.max(LINE_INTERVAL_S.first, (now - this.startedMs) / 30_000));
    if (now - this.#lastMs < intervalS * 1000) return;
    this.#lastMs = now;
    // The runs of a chain come one after another, and each reports its own progress.
    if (totalOf(names) > 1 && running.every(({ name }) => shortName(title, name) !== name)) {
      this.say(`${title}: ${countsLine(snapshot, this.paint)}; ${timeLine(snapshot)}`);
    }
    for (const run of lines) this.say(runLine(title, run, LINE_WIDTH));
  }

  /** A short run may end between two ticks. */
  protected override beforeEnd(run: RunProgress): void {
    if (this.progress !== null && this.progress.running.size <= MAX_LINES) {
      this.#sayEvaluations(this.progress.title, run);
    }
  }

  /** A policy's evaluations are few and are the point of a run. A loss is in the progress lines. */
  #sayEvaluations(title: string, { name, heldOut, reached }: RunProgress): void {
    const [curve, ...others] = heldOut.filter(({ label }) => label !== 'held-out loss');
    if (curve === undefined) return;
    // Evaluations of earlier attempts are not printed again.
    const printed = this.#evaluated.get(name) ?? (reached > 0 ? reached : -1);
    for (const { iteration, shown } of curve.points.filter((point) => point.iteration > printed)) {
      const more = others.flatMap(({ label, points }) =>
        points.filter((point) => point.iteration === iteration).map((point) => `, ${label} ${point.shown}`),
      );
      this.say(`${shortName(title, name)}  ${curve.label} at ${iteration}: ${shown}${more.join('')}`);
    }
    this.#evaluated.set(name, curve.points[curve.points.length - 1].iteration);
  }
}

/** The screen at the bottom, redrawn in place. Printed lines stay above it. */
export class LiveView extends ProgressView {
  readonly #draw: ReturnType<typeof createLogUpdate>;
  #busy: string | null = null;
  #drawnMs = 0;
  /** Number of lines of the last frame. */
  #height = 0;

  constructor(private readonly terminal: NodeJS.WriteStream) {
    super(painter(terminal), REDRAW_INTERVAL_MS);
    // The cursor stays visible: a program that is killed could not show it again.
    this.#draw = createLogUpdate(terminal, { showCursor: true });
  }

  override begin(progress: LiveProgress): void {
    super.begin(progress);
    this.#busy = null;
    if (progress.opening !== null) this.say(`${progress.title}: ${progress.opening}`);
    this.tick();
  }

  override end(): void {
    super.end();
    this.#busy = null;
    this.#draw.clear();
  }

  override say(text: string): void {
    this.#draw.persist(text);
    this.tick();
  }

  override busy(what: string | null): void {
    const now = performance.now();
    const often = what !== null && this.#busy !== null && now - this.#drawnMs < REDRAW_INTERVAL_MS;
    this.#busy = what;
    if (!often) this.tick();
  }

  override sayOffScreen(): void {}

  protected override beforeEnd(): void {}

  protected override tick(): void {
    this.#drawnMs = performance.now();
    const snapshot = this.snapshot();
    const size = { columns: this.terminal.columns || 80, rows: this.terminal.rows || 24 };
    const busy = this.#busy === null ? [] : [this.paint(this.#busy, 'dim')];
    const lines = snapshot === null ? busy : [...renderScreen(snapshot, size, this.paint), ...busy];
    // It erases as many lines as the last frame had.
    if (lines.length !== this.#height) this.#draw.clear();
    this.#height = lines.length;
    if (lines.length > 0) this.#draw(lines.join('\n'));
  }
}
