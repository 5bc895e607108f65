/** How a person follows a sweep: a table that is redrawn in place on a terminal, plain lines elsewhere. */
import { countsLine, renderTable, timeLine, type Paint } from './table.js';
import { eventLines, refusedLines } from './lines.js';
import { Watch } from './progress.js';
import type { Schedule } from './schedule.js';
import type { RunningJob, SweepEvent, SweepView } from './sweep.js';

const SUMMARY_EVERY_MS = 30_000;
const REDRAW_EVERY_MS = 500;

/** What both views share: the watch, and whose failure was shown already. */
abstract class LineView implements SweepView {
  #watch: Watch | null = null;
  /** Runs whose failure was told when it happened. */
  readonly #told = new Set<string>();
  #timer: NodeJS.Timeout | null = null;

  constructor(
    protected readonly experiment: string,
    protected readonly paint: Paint,
    private readonly everyMs: number,
  ) {}

  begin(schedule: Schedule, running: ReadonlyMap<string, RunningJob>): void {
    this.#watch = new Watch(schedule, running);
    this.#timer = setInterval(() => this.tick(), this.everyMs);
    this.#timer.unref();
  }

  tell(event: SweepEvent): void {
    if (event.kind === 'finished') this.#watch?.finished(event.seconds);
    if (event.kind === 'failed') this.#told.add(event.running.job.name);
    const lines =
      event.kind === 'gave_up' && !this.#told.has(event.name)
        ? refusedLines(event.name, event.reason, this.paint)
        : eventLines(event, this.paint);
    if (lines.length > 0) this.say(lines, event);
  }

  remark(sentence: string): void {
    this.say([sentence], null);
  }

  end(): void {
    if (this.#timer !== null) clearInterval(this.#timer);
    this.#timer = null;
  }

  protected get watch(): Watch | null {
    return this.#watch;
  }

  /** Between `begin` and `end`. */
  protected get isLive(): boolean {
    return this.#timer !== null;
  }

  /** `event` is null for a remark. */
  protected abstract say(lines: readonly string[], event: SweepEvent | null): void;
  protected abstract tick(): void;
}

/** One line for each start and end, and where the sweep stands every 30 s. */
export class PlainView extends LineView {
  constructor(
    experiment: string,
    private readonly write: (text: string) => void,
    paint: Paint,
  ) {
    super(experiment, paint, SUMMARY_EVERY_MS);
  }

  override begin(schedule: Schedule, running: ReadonlyMap<string, RunningJob>): void {
    super.begin(schedule, running);
    this.tick();
  }

  override end(): void {
    if (this.isLive) this.tick();
    super.end();
  }

  protected override say(lines: readonly string[]): void {
    this.write(`${lines.join('\n')}\n`);
  }

  protected override tick(): void {
    const standing = this.watch?.now();
    if (standing === undefined) return;
    const time = standing.elapsedS < 1 ? '' : `; ${timeLine(standing)}`;
    this.write(`${this.experiment}: ${countsLine(standing)}${time}\n`);
  }
}

/** The part of a terminal that a live view needs. */
export interface Terminal {
  write(text: string): unknown;
  readonly columns?: number;
  readonly rows?: number;
}

const CLEAR_LINE_END = '\u001b[K';
const CLEAR_BELOW = '\u001b[J';

/** The table at the bottom, redrawn in place; what happened stands above it and stays. */
export class LiveView extends LineView {
  #drawn = 0;

  constructor(
    experiment: string,
    private readonly terminal: Terminal,
    paint: Paint,
  ) {
    super(experiment, paint, REDRAW_EVERY_MS);
  }

  override begin(schedule: Schedule, running: ReadonlyMap<string, RunningJob>): void {
    super.begin(schedule, running);
    this.#draw([]);
  }

  /** Of the table only its first line stays; what comes after stands below it. */
  override end(): void {
    const standing = this.isLive ? this.watch?.now() : undefined;
    super.end();
    if (standing === undefined) return;
    const last = `${this.experiment}  ${countsLine(standing, this.paint)}  ${timeLine({ ...standing, leftS: null })}`;
    this.terminal.write(`${this.#toTop()}${CLEAR_BELOW}\n${last}\n`);
    this.#drawn = 0;
  }

  protected override say(lines: readonly string[], event: SweepEvent | null): void {
    // The table shows what is under way; a line for each start would push everything else out of sight.
    this.#draw(event?.kind === 'started' || event?.kind === 'paused' ? [] : lines);
  }

  protected override tick(): void {
    this.#draw([]);
  }

  /** One write for a whole frame, so that none is seen half drawn. */
  #draw(above: readonly string[]): void {
    const standing = this.watch?.now();
    if (standing === undefined) return;
    const size = { columns: this.terminal.columns ?? 80, rows: this.terminal.rows ?? 24 };
    const table = renderTable(this.experiment, standing, size, this.paint);
    const lines = [...above.flatMap((text) => text.split('\n')), ...table];
    const frame = lines.map((line) => `${line}${CLEAR_LINE_END}\n`).join('');
    this.terminal.write(`${this.#toTop()}${frame}${CLEAR_BELOW}`);
    this.#drawn = table.length;
  }

  #toTop(): string {
    return this.#drawn === 0 ? '' : `\u001b[${this.#drawn}F`;
  }
}
