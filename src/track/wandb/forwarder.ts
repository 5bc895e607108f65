/**
 * Forwards a run directory to W&B: rows of metrics, console output, the machine's load, episodes. Everything is read from the run's own files, which
 * serve as the spool: what the server has not confirmed is read again, by this process or by `editrl sync`, and arrives in the same places:
 * row i of `metrics.jsonl` is line i of the history, and iteration i is step i. Only one process at a time forwards a run.
 */
import { sleep, systemClock, type Clock } from '../../core/clock.js';
import { FollowedLog } from '../../core/log/followed.js';
import type { Redact } from '../../http/redact.js';
import { listEpisodeFiles } from '../../run/episodes.js';
import type { RunPaths } from '../../run/paths.js';
import type { RunRecord } from '../../run/record.js';
import { OutputFollower, type OutputLine } from '../output_lines.js';
import { requireRun } from '../require_run.js';
import { RowFollower, type Row } from '../rows.js';
import type { Say } from '../say.js';
import type { WandbClient } from './client.js';
import { writeWandbCursor, type WandbCursor } from './cursor.js';
import { extendedJson, parseExtendedJson } from './extended_json.js';
import { mediaOf, type Media } from './media.js';
import { outputFile, shownLine, summaryFile } from './run_files.js';
import type { MediaFile } from './upload_types.js';
import { Uploads } from './uploads.js';

export interface ForwardPace {
  /** Minimum time between two requests while the run goes on. */
  readonly everyMs: number;
  /** After this time without a request, the server gets a sign of life. */
  readonly heartbeatMs: number;
}

/** As in W&B's SDK; after some minutes of silence a server takes a run for dead. */
export const defaultPace: ForwardPace = { everyMs: 15_000, heartbeatMs: 30_000 };

/** A longer line is refused; the line numbers of the file stay the same. */
const LONGEST_LINE = 10_383_360;
/** A request may have some ten megabytes; what else is sent with rows takes less than the other half. */
const MOST_ROW_BYTES = 5 * 1024 * 1024;
/** After a request of this size there is probably more, so the next one follows without a pause. */
const FULL_BYTES = 1024 * 1024;
const LONGEST_OUTPUT_LINE = 4096;

export interface ForwarderOptions {
  readonly paths: RunPaths;
  readonly client: WandbClient;
  readonly cursor: WandbCursor;
  readonly record: RunRecord;
  /** How many episodes of an iteration are shown. */
  readonly episodes: number;
  /** Files that the page shows from the beginning. */
  readonly files: readonly MediaFile[];
  /** Takes secrets out of what the run printed. */
  readonly redact: Redact;
  readonly pace?: ForwardPace;
  readonly clock?: Clock;
  /** Called when somebody pressed Stop on the run's page. */
  readonly onStop?: () => void;
  readonly say: Say;
}

/** Lines for a remote file, starting at one of its lines. */
interface Batch {
  readonly offset: number;
  readonly content: readonly string[];
}

/** What was sent: only a sign of life, everything there was, or as much as one request takes. */
type SendResult = 'nothing' | 'all' | 'some';

export class WandbForwarder {
  readonly #rows: RowFollower;
  readonly #output: OutputFollower;
  readonly #events: FollowedLog;
  readonly #uploads: Uploads;
  readonly #pace: ForwardPace;
  readonly #clock: Clock;
  readonly #summary: Record<string, unknown>;
  #cursor: WandbCursor;
  #toldToStop: boolean | null = null;
  #sentMs = -Infinity;

  constructor(private readonly options: ForwarderOptions) {
    const { paths, client, cursor, record, episodes, files, pace = defaultPace, clock = systemClock, say } = options;
    this.#pace = pace;
    this.#clock = clock;
    this.#cursor = cursor;
    this.#summary = parseExtendedJson(cursor.summary) ?? {};
    this.#rows = new RowFollower(paths.metrics, cursor.rows, () => record.attempts);
    this.#output = new OutputFollower(paths);
    this.#events = new FollowedLog(paths.systemMetrics);
    const target = { entity: cursor.entity, project: cursor.project, run: cursor.run };
    this.#uploads = new Uploads(client, target, clock, say);
    this.#uploads.addOfRun(files);
    if (episodes === 0) return;
    const missing = listEpisodeFiles(paths)
      .map(({ iteration }) => iteration)
      .filter((iteration) => iteration > cursor.media && iteration <= cursor.iteration);
    for (const iteration of new Set(missing.sort((a, b) => a - b))) {
      this.#uploads.add(iteration, this.#mediaOf(iteration));
    }
  }

  /** How many rows the server has confirmed. */
  get rows(): number {
    return this.#rows.confirmed;
  }

  /**
   * Forwards until `ending` is aborted and everything in the files by then is confirmed; then reports how the run ended, if that is known
   * (`exitCode`). Raises WandbRefusedError, GivenUpError once the client's signal is aborted, and RunError.
   */
  async follow(ending: AbortSignal, exitCode: () => number | null): Promise<void> {
    const complete = new AbortController();
    const uploading = this.#uploads.run(complete.signal);
    // It is awaited at the end; until then, this avoids an unhandled rejection.
    uploading.catch(() => undefined);
    try {
      for (;;) {
        requireRun(this.options.paths);
        // Checked before reading: what was written before the end is still sent.
        const last = ending.aborted;
        const sent = await this.#send();
        if (last && sent === 'nothing') break;
        if (sent !== 'some') await sleep(this.#clock, this.#pace.everyMs, ending);
      }
      const { paths, redact } = this.options;
      this.#uploads.addOfRun([summaryFile(this.#cursor), outputFile(paths, redact)]);
      complete.abort();
      await uploading;
      await this.#send();
      await this.#end(exitCode());
    } finally {
      this.#uploads.stop();
      this.#rows.close();
      this.#output.close();
      this.#events.close();
    }
  }

  /** Sends one request with what there is, or a sign of life if one is due. */
  async #send(): Promise<SendResult> {
    const { output: outputAt, events: eventsAt } = this.#cursor;
    const { rows, media, lines } = this.#nextRows();
    const output = this.#output.next(outputAt);
    const events = this.#nextEvents();
    const { names, through } = this.#uploads.taken();
    const summary = rows.length === 0 ? [] : [extendedJson(this.#summarise(rows, media))];
    const pieces: Readonly<Record<string, Batch>> = {
      'wandb-history.jsonl': { offset: rows.at(0)?.index ?? 0, content: lines },
      'wandb-events.jsonl': { offset: eventsAt.lines, content: events.lines },
      'output.log': {
        offset: outputAt.lines,
        content: output.lines.map((line) => outputLine(line, this.options.redact)),
      },
      'wandb-summary.json': { offset: 0, content: summary },
    };
    const files = Object.entries(pieces).filter(([, { content }]) => content.length > 0);
    const nothing = files.length === 0 && names.length === 0;
    if (!nothing || this.#clock.now() - this.#sentMs >= this.#pace.heartbeatMs) {
      await this.#stream({
        ...(files.length > 0 ? { files: Object.fromEntries(files) } : {}),
        ...(names.length > 0 ? { uploaded: names } : {}),
      });
    }
    const last = rows.at(-1);
    if (last !== undefined) this.#rows.confirm(last);
    this.#cursor = {
      ...this.#cursor,
      rows: [...this.#rows.marks],
      events: { lines: eventsAt.lines + events.lines.length, bytes: events.bytes },
      output: { lines: outputAt.lines + output.lines.length, ...output.place },
      summary: summary.at(0) ?? this.#cursor.summary,
      iteration: last?.iteration ?? this.#cursor.iteration,
      media: Math.min(through ?? this.#cursor.media, last?.iteration ?? Infinity),
    };
    rows.forEach(({ iteration }, i) => this.#uploads.add(iteration, media[i]));
    if (nothing) return 'nothing';
    writeWandbCursor(this.options.paths, this.#cursor);
    const bytes = files.reduce((sum, [, { content }]) => content.reduce((all, line) => all + line.length, sum), 0);
    return bytes >= FULL_BYTES ? 'some' : 'all';
  }

  async #end(exitCode: number | null): Promise<void> {
    if (exitCode === null) return;
    await this.#stream({ complete: true, exitcode: exitCode });
    this.#cursor = { ...this.#cursor, ended: exitCode };
    writeWandbCursor(this.options.paths, this.#cursor);
  }

  async #stream(body: object): Promise<void> {
    const { client, onStop } = this.options;
    const { entity, project, run } = this.#cursor;
    const segments = [entity, project, run].map(encodeURIComponent).join('/');
    const { stopped } = await client.stream(`/files/${segments}/file_stream`, JSON.stringify(body));
    this.#sentMs = this.#clock.now();
    // If the first reply already says so, it is about an earlier attempt.
    if (stopped && this.#toldToStop === false) onStop?.();
    this.#toldToStop = stopped;
  }

  /** As many rows as one request takes. */
  #nextRows(): { readonly rows: readonly Row[]; readonly media: readonly Media[]; readonly lines: readonly string[] } {
    const rows: Row[] = [];
    const media: Media[] = [];
    const lines: string[] = [];
    let bytes = 0;
    for (const row of this.#rows.next()) {
      const shown = this.#mediaOf(row.iteration);
      const line = this.#historyLine(row, shown);
      bytes += Buffer.byteLength(line);
      if (rows.length > 0 && bytes > MOST_ROW_BYTES) break;
      rows.push(row);
      media.push(shown);
      lines.push(line);
    }
    return { rows, media, lines };
  }

  #mediaOf(iteration: number): Media {
    const { paths, episodes } = this.options;
    return mediaOf(paths, iteration, episodes);
  }

  #historyLine({ iteration, metrics, mark }: Row, { values }: Media): string {
    const always = {
      iteration,
      _step: iteration,
      _timestamp: mark.at,
      _runtime: mark.runtime,
    };
    const line = extendedJson({ ...metrics, ...values, ...always });
    // A placeholder takes the place of a line that is too long, so that all that follow keep theirs.
    return Buffer.byteLength(line) <= LONGEST_LINE
      ? line
      : extendedJson({ 'metrics/too_long': line.length, ...always });
  }

  /** The last value of each metric, updated with further rows. */
  #summarise(rows: readonly Row[], media: readonly Media[]): Readonly<Record<string, unknown>> {
    for (const [i, { iteration, metrics, mark }] of rows.entries()) {
      Object.assign(this.#summary, metrics, media[i].values, {
        iteration,
        _step: iteration,
        _timestamp: mark.at,
        _runtime: mark.runtime,
        _wandb: { runtime: Math.floor(mark.runtime) },
      });
    }
    return this.#summary;
  }

  #nextEvents(): { readonly lines: readonly string[]; readonly bytes: number } {
    const { bytes } = this.#cursor.events;
    const placed = this.#events.look(bytes)?.log.piece(bytes) ?? [];
    const began = Date.parse(this.options.record.created_at) / 1000;
    return { lines: placed.flatMap(({ text }) => eventLine(text, began)), bytes: placed.at(-1)?.end ?? bytes };
  }
}

/** A line of `system.jsonl`; none if a crash tore it, since the next line repeats it. */
function eventLine(text: string, began: number): string[] {
  const { at, ...load } = parseExtendedJson(text) ?? {};
  if (typeof at !== 'number') return [];
  const named = Object.fromEntries(Object.entries(load).map(([name, value]) => [`system.${name}`, value]));
  return [extendedJson({ _wandb: true, _timestamp: at, _runtime: round(Math.max(0, at - began)), ...named })];
}

function round(seconds: number): number {
  return Math.round(seconds * 1000) / 1000;
}

function outputLine({ time, level, text }: OutputLine, redact: Redact): string {
  const prefix = level === 'error' ? 'ERROR ' : '';
  const at = /^(\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2})\.(\d{3})Z$/.exec(time);
  const dated = at === null ? '' : `${at[1]}.${at[2]}000 `;
  return `${prefix}${dated}${redact(shownLine(level, text))}`.slice(0, LONGEST_OUTPUT_LINE);
}
