/** How a person follows runs: on a terminal a screen that is redrawn in place, elsewhere lines. */
import { createLogUpdate } from 'log-update';
import { painter, plainPaint, type Paint } from '../../core/terminal.js';
import { printable } from '../../core/errors.js';
import { formatDuration } from '../../run/progress.js';
import { RunWatcher, type HeldOutCurve, type LiveProgress, type LiveSnapshot, type RunningRow } from './watch.js';
import { countsLine, renderScreen, runLine, shortName, timeLine } from './screen.js';

/** Shows what happens. */
export interface View {
  /** Follows these runs from now on, until `end`. */
  begin(progress: LiveProgress): void;
  /** Prints a sentence that stays. It may have colours; the caller makes foreign text in it printable. */
  say(text: string): void;
  /** Prints a sentence about something that a screen shows anyway: only views without a screen print it. */
  sayOffScreen(text: string): void;
  /** A line that a run's own worker printed. */
  workerLine(run: string, line: string): void;
  /** A line that another trainer printed, which describes the run's progress in its own words. */
  trainerLine(run: string, line: string): void;
  /** Something that takes a while, replacing the previous one; null: it is over. */
  busy(what: string | null): void;
  /** One of these runs finished successfully after this many seconds. */
  finished(run: string, seconds: number): void;
  /** Harmless if called again. */
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

const REDRAW_EVERY_MS = 500;
/** Without a terminal: intervals between lines, first and maximum; they grow with time. */
const LINE_EVERY_S = { first: 30, most: 300 };
const LINE_WIDTH = 80;
/** Without a terminal, up to this many runs in progress get a line each. */
const MOST_LINES = 4;

/** What both views share. */
abstract class ProgressView implements View {
  #watch: RunWatcher | null = null;
  #progress: LiveProgress | null = null;
  #timer: NodeJS.Timeout | null = null;
  /** Warnings of runs with their numbers removed, so that a repeated warning is shown once. */
  readonly #heard = new Set<string>();

  constructor(
    protected readonly paint: Paint,
    private readonly everyMs: number,
  ) {}

  begin(progress: LiveProgress): void {
    this.#progress = progress;
    this.#watch = new RunWatcher(progress);
    this.#timer = setInterval(() => this.tick(), this.everyMs);
    this.#timer.unref();
  }

  abstract say(text: string): void;
  abstract sayOffScreen(text: string): void;
  abstract busy(what: string | null): void;

  /** Shows every line of a single run, but only the warnings and errors of several. */
  workerLine(run: string, line: string): void {
    const text = printable(line);
    const style = /^error: /.test(text) ? 'red' : /^warning: /.test(text) ? 'yellow' : null;
    const { title = '' } = this.#progress ?? {};
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

  trainerLine(run: string, line: string): void {
    this.#watch?.trainerLine(run, line);
  }

  finished(run: string, seconds: number): void {
    this.#watch?.finished(seconds);
    const row = this.#watch?.row(run) ?? null;
    if (row !== null) this.ended(row);
    const came = row === null ? '' : learnedText(row);
    this.say(`${this.paint('finished', 'green')} ${run} in ${formatDuration(seconds)}${came}`);
  }

  end(): void {
    if (this.#timer !== null) clearInterval(this.#timer);
    this.#timer = null;
  }

  protected abstract tick(): void;

  /** Called before a run is said to have finished. */
  protected abstract ended(row: RunningRow): void;

  protected snapshot(): LiveSnapshot | null {
    return this.#timer === null ? null : (this.#watch?.now() ?? null);
  }
}

/** What a run has learned, as far as it fits on one line. */
function learnedText({ heldOut: [curve] }: RunningRow): string {
  if (curve === undefined) return '';
  const [before, after] = [curve.points[0], curve.points[curve.points.length - 1]];
  const first = before === after ? '' : `${before.shown} -> `;
  return `, ${curve.label} ${first}${after.shown}`;
}

function withoutLast({ label, points }: HeldOutCurve): HeldOutCurve {
  return { label, points: points.slice(0, -1) };
}

/** Prints a line for each start and end, for each held-out evaluation of a policy, and progress at intervals. */
export class PlainView extends ProgressView {
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

  override begin(progress: LiveProgress): void {
    super.begin(progress);
    const snapshot = this.snapshot();
    if (snapshot === null || snapshot.total < 2) return;
    this.say(`${snapshot.title}: ${progress.opening ?? countsLine(snapshot, this.paint)}`);
  }

  override end(): void {
    const snapshot = this.snapshot();
    super.end();
    if (snapshot !== null && snapshot.total > 1 && snapshot.title !== snapshot.names.finished.at(-1)) {
      this.say(`${snapshot.title}: ${countsLine(snapshot, this.paint)}; ${formatDuration(snapshot.elapsedS)}`);
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

  override sayOffScreen(text: string): void {
    this.say(text);
  }

  protected override tick(): void {
    const snapshot = this.snapshot();
    if (snapshot === null) return;
    if (snapshot.running.length <= MOST_LINES) for (const row of snapshot.running) this.#tellEvaluation(snapshot, row);
    const now = performance.now();
    const everyS = Math.min(LINE_EVERY_S.most, Math.max(LINE_EVERY_S.first, (now - this.#startedMs) / 30_000));
    if (now - this.#lastMs < everyS * 1000) return;
    this.#lastMs = now;
    const { title, running, total } = snapshot;
    // The runs of a chain come one after another, and each reports its own progress.
    if (total > 1 && running.every(({ name }) => shortName(title, name) !== name)) {
      this.say(`${title}: ${countsLine(snapshot, this.paint)}; ${timeLine(snapshot)}`);
    }
    if (running.length <= MOST_LINES) for (const row of running) this.say(runLine(title, row, LINE_WIDTH));
  }

  /** A short run may end between two ticks. Its last evaluation is in the line that says so. */
  protected override ended(row: RunningRow): void {
    const snapshot = this.snapshot();
    if (snapshot === null || snapshot.running.length > MOST_LINES) return;
    this.#tellEvaluation(snapshot, { ...row, heldOut: row.heldOut.map(withoutLast) });
  }

  /** A policy's evaluations are few and are what a run is about; a loss is in the progress lines anyway. */
  #tellEvaluation({ title }: LiveSnapshot, { name, heldOut, reached }: RunningRow): void {
    const [curve, ...others] = heldOut.filter(({ label }) => label !== 'held-out loss');
    // A run may be evaluated before it is first looked at; measurements of earlier attempts are not repeated.
    const told = this.#evaluated.get(name) ?? (reached > 0 ? reached : -1);
    this.#evaluated.set(name, curve?.points.at(-1)?.iteration ?? -1);
    if (curve === undefined) return;
    for (const { iteration, shown } of curve.points.filter((point) => point.iteration > told)) {
      const more = others.flatMap(({ label, points }) =>
        points.filter((point) => point.iteration === iteration).map((point) => `, ${label} ${point.shown}`),
      );
      this.say(`${shortName(title, name)}  ${curve.label} at ${iteration}: ${shown}${more.join('')}`);
    }
  }
}

/** The screen at the bottom, redrawn in place; printed lines stay above it. */
export class LiveView extends ProgressView {
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

  override begin(progress: LiveProgress): void {
    super.begin(progress);
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

  override sayOffScreen(): void {}

  protected override ended(): void {}

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
