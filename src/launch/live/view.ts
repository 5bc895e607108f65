/** How a person follows runs: on a terminal a screen that is redrawn in place, elsewhere lines. */
import { createLogUpdate } from 'log-update';
import { painter, plainPaint, type Paint } from '../../core/colour.js';
import { printable } from '../../core/errors.js';
import { formatDuration } from '../../run/progress.js';
import type { Course } from './course.js';
import { countsLine, renderScreen, runLine, shortName, timeLine } from './screen.js';
import { Watch, type RunningRow, type Standing } from './watch.js';

/** Shows what happens. */
export interface View {
  /** Follows the course from now on, until `end`. */
  begin(course: Course): void;
  /** Prints a sentence that stays. It may have colours; the caller makes foreign text in it printable. */
  say(text: string): void;
  /** Prints a sentence about something that a screen shows anyway: only views without a screen print it. */
  aside(text: string): void;
  /** A line that a run's own worker printed. */
  heard(run: string, line: string): void;
  /** A line that another trainer printed, which describes the run's progress in its own words. */
  output(run: string, line: string): void;
  /** Something that takes a while, replacing the previous one; null: it is over. */
  busy(what: string | null): void;
  /** A run of the course finished successfully after this many seconds. */
  finished(run: string, seconds: number): void;
  /** Harmless if called again. */
  end(): void;
}

/** The view that suits a stream. */
export function viewOn(stream: NodeJS.WriteStream): View {
  return stream.isTTY ? new LiveView(stream) : new PlainView((text) => void stream.write(text), painter(stream));
}

/** Shows nothing. */
export const noView: View = {
  begin: () => {},
  say: () => {},
  aside: () => {},
  heard: () => {},
  output: () => {},
  busy: () => {},
  finished: () => {},
  end: () => {},
};

const REDRAW_EVERY_MS = 500;
/** Without a terminal: intervals between lines, first and maximum; they grow with time. */
const LINE_EVERY_S = { first: 30, most: 300 };
const LINE_WIDTH = 80;
/** Without a terminal, up to this many runs in progress get a line each. */
const MOST_LINES = 4;

/** What both views share. */
abstract class CourseView implements View {
  #watch: Watch | null = null;
  #course: Course | null = null;
  #timer: NodeJS.Timeout | null = null;
  /** Warnings of runs with their numbers removed, so that a repeated warning is shown once. */
  readonly #heard = new Set<string>();

  constructor(
    protected readonly paint: Paint,
    private readonly everyMs: number,
  ) {}

  begin(course: Course): void {
    this.#course = course;
    this.#watch = new Watch(course);
    this.#timer = setInterval(() => this.tick(), this.everyMs);
    this.#timer.unref();
  }

  abstract say(text: string): void;
  abstract aside(text: string): void;
  abstract busy(what: string | null): void;

  /** Shows every line of a single run, but only the warnings and errors of several. */
  heard(run: string, line: string): void {
    const text = printable(line);
    const style = /^error: /.test(text) ? 'red' : /^warning: /.test(text) ? 'yellow' : null;
    const { title = '' } = this.#course ?? {};
    const alone = shortName(title, run) === run;
    const named = alone || text.includes(run) ? text : `${shortName(title, run)}: ${text}`;
    if (style === null) {
      if (alone) this.say(this.paint(named, 'dim'));
      return;
    }
    const kind = `${run} ${text.replace(/\d+/g, '#')}`;
    if (this.#heard.has(kind)) return;
    this.#heard.add(kind);
    this.say(this.paint(named, style));
  }

  output(run: string, line: string): void {
    this.#watch?.says(run, line);
  }

  finished(run: string, seconds: number): void {
    this.#watch?.finished(seconds);
    const row = this.#watch?.row(run) ?? null;
    const came = row === null ? '' : cameTo(row);
    this.say(`${this.paint('finished', 'green')} ${run} in ${formatDuration(seconds)}${came}`);
  }

  end(): void {
    if (this.#timer !== null) clearInterval(this.#timer);
    this.#timer = null;
  }

  protected abstract tick(): void;

  protected standing(): Standing | null {
    return this.#timer === null ? null : (this.#watch?.now() ?? null);
  }
}

/** What a run has learned, as far as it fits on one line. */
function cameTo({ heldOut: [course] }: RunningRow): string {
  if (course === undefined) return '';
  const [before, after] = [course.points[0], course.points[course.points.length - 1]];
  const first = before === after ? '' : `${before.shown} -> `;
  return `, ${course.label} ${first}${after.shown}`;
}

/** Prints a line for each start and end, for each held-out evaluation of a policy, and progress at intervals. */
export class PlainView extends CourseView {
  readonly #startedMs = performance.now();
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

  override begin(course: Course): void {
    super.begin(course);
    const standing = this.standing();
    if (standing === null || standing.total < 2) return;
    this.say(`${standing.title}: ${course.opening ?? countsLine(standing, this.paint)}`);
  }

  override end(): void {
    const standing = this.standing();
    super.end();
    if (standing !== null && standing.total > 1 && standing.title !== standing.names.finished.at(-1)) {
      this.say(`${standing.title}: ${countsLine(standing, this.paint)}; ${formatDuration(standing.elapsedS)}`);
    }
  }

  override say(text: string): void {
    this.write(`${text}\n`);
  }

  /** Work that is over soon does not need a line. */
  override busy(what: string | null): void {
    const now = performance.now();
    if (what === null) this.#busySince = null;
    else if (this.#busySince === null) this.#busySince = now;
    else if (now - this.#busySince >= LINE_EVERY_S.first * 1000) {
      this.#busySince = now;
      this.say(what);
    }
  }

  override aside(text: string): void {
    this.say(text);
  }

  protected override tick(): void {
    const standing = this.standing();
    if (standing === null) return;
    if (standing.running.length <= MOST_LINES) for (const row of standing.running) this.#tellEvaluation(standing, row);
    const now = performance.now();
    const everyS = Math.min(LINE_EVERY_S.most, Math.max(LINE_EVERY_S.first, (now - this.#startedMs) / 30_000));
    if (now - this.#lastMs < everyS * 1000) return;
    this.#lastMs = now;
    const { title, running, total } = standing;
    // The runs of a chain come one after another, and each reports its own progress.
    if (total > 1 && running.every(({ name }) => shortName(title, name) !== name)) {
      this.say(`${title}: ${countsLine(standing, this.paint)}; ${timeLine(standing)}`);
    }
    if (running.length <= MOST_LINES) for (const row of running) this.say(runLine(title, row, LINE_WIDTH));
  }

  /** A policy's evaluations are few and are what a run is about; a loss is in the progress lines anyway. */
  #tellEvaluation({ title }: Standing, { name, heldOut, reached }: RunningRow): void {
    const [course, ...others] = heldOut.filter(({ label }) => label !== 'held-out loss');
    // A run may be evaluated before it is first looked at; measurements of earlier attempts are not repeated.
    const told = this.#evaluated.get(name) ?? (reached > 0 ? reached : -1);
    this.#evaluated.set(name, course?.points.at(-1)?.iteration ?? -1);
    if (course === undefined) return;
    for (const { iteration, shown } of course.points.filter((point) => point.iteration > told)) {
      const more = others.flatMap(({ label, points }) =>
        points.filter((point) => point.iteration === iteration).map((point) => `, ${label} ${point.shown}`),
      );
      this.say(`${shortName(title, name)}  ${course.label} at ${iteration}: ${shown}${more.join('')}`);
    }
  }
}

/** The screen at the bottom, redrawn in place; printed lines stay above it. */
export class LiveView extends CourseView {
  readonly #draw: ReturnType<typeof createLogUpdate>;
  #busy: string | null = null;
  #drawnMs = 0;
  /** Number of lines of the last frame. */
  #height = 0;

  constructor(private readonly terminal: NodeJS.WriteStream) {
    super(painter(terminal), REDRAW_EVERY_MS);
    // The cursor stays visible: a program that is killed could not show it again.
    this.#draw = createLogUpdate(terminal, { showCursor: true });
  }

  override begin(course: Course): void {
    super.begin(course);
    this.#busy = null;
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
    const often = what !== null && this.#busy !== null && now - this.#drawnMs < REDRAW_EVERY_MS;
    this.#busy = what;
    if (!often) this.tick();
  }

  override aside(): void {}

  protected override tick(): void {
    this.#drawnMs = performance.now();
    const standing = this.standing();
    const size = { columns: this.terminal.columns || 80, rows: this.terminal.rows || 24 };
    const busy = this.#busy === null ? [] : [this.paint(this.#busy, 'dim')];
    const lines = standing === null ? busy : [...renderScreen(standing, size, this.paint), ...busy];
    // It erases as many lines as the last frame had.
    if (lines.length !== this.#height) this.#draw.clear();
    this.#height = lines.length;
    if (lines.length > 0) this.#draw(lines.join('\n'));
  }
}
