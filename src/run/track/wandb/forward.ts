/** Forwards a whole run to W&B, from its settings to its last line, during the run and for `editrl sync`. */
import { sleep, systemClock, type Clock } from '../../../core/clock.js';
import { EndpointError } from '../../../core/errors.js';
import { FollowedLog, scanLines } from '../../../core/log.js';
import type { Redact } from '../../../core/http/key.js';
import { listEpisodeFiles } from '../../episodes.js';
import type { RunPaths } from '../../paths.js';
import type { RunRecord } from '../../record.js';
import { readState, type RunStateName } from '../../state.js';
import type { WandbSettings } from '../../../config/schema/track.js';
import { OutputFollower, RowFollower, type OutputLine, type Row } from '../rows.js';
import { codeRevision, redactorOfRun, requireRun, shownSettings, type CodeRevision, type Say } from '../shared.js';
import { extendedJson, GivenUpError, parseExtendedJson, WandbClient, type WandbRetryPolicy } from './client.js';
import { recordedWandbId, pageAddress, type WandbEnvironment } from './environment.js';
import {
  attachRun,
  defaultEntity,
  readWandbCursor,
  writeWandbCursor,
  type AttachedRun,
  type WandbCursor,
} from './server_run.js';
import { mediaOf, Uploads, type Media, type MediaFile } from './uploads.js';

export interface ForwardOptions {
  readonly paths: RunPaths;
  readonly record: RunRecord;
  readonly settings: WandbSettings;
  readonly environment: WandbEnvironment;
  /** Environment whose secrets are redacted. Default: the environment of this process. */
  readonly env?: NodeJS.ProcessEnv | undefined;
  /** Aborted when the run has ended. Content of its files up to then is still sent. */
  readonly ending: AbortSignal;
  /** Milliseconds to wait after the end for a server that does not answer. */
  readonly finishMs: number;
  /** Ends at once. */
  readonly giveUp: AbortSignal;
  readonly say: Say;
  readonly onStop?: (() => void) | undefined;
  readonly clock?: Clock | undefined;
  readonly pace?: ForwardPace | undefined;
  readonly retryPolicy?: WandbRetryPolicy | undefined;
}

/** The amount sent, and the address of the run's page. */
export interface ForwardResult {
  readonly rows: number;
  readonly page: string;
}

/**
 * Forwards a run until it has ended and everything is confirmed.
 * Raises EndpointError when the server refuses or does not answer in the end. Unsent content stays in the run
 * directory. Raises RunError for unreadable records.
 */
export async function forwardToWandb(options: ForwardOptions): Promise<ForwardResult> {
  const { paths, record, settings, environment, ending, finishMs, giveUp, say, clock = systemClock, onStop } = options;
  const { baseUrl } = environment;
  const over = new AbortController();
  const client = new WandbClient({
    baseUrl,
    key: requireKey(environment),
    signal: AbortSignal.any([giveUp, over.signal]),
    clock,
    retryPolicy: options.retryPolicy,
    onAway: (found) =>
      say(
        `W&B at ${baseUrl} does not respond (${found}). Rows stay in the run directory and are uploaded later.`,
        'warn',
      ),
  });
  const stopWaiting = abortAfterSilence(finishMs, ending, client, over, clock);
  let forwarder: WandbForwarder | null = null;
  try {
    const redact = redactorOfRun(record.settings, options.env ?? process.env, environment.key);
    const code = await codeRevision();
    const { cursor, taken } = await attachToServer(client, options, code, redact);
    const page = `${pageAddress(baseUrl)}/${cursor.entity}/${cursor.project}/runs/${cursor.run}`;
    say(`W&B: ${page}`, 'info');
    if (taken !== null) {
      say(`the W&B run ${taken} contains lines of another writer, so this run uses the id ${cursor.run}`, 'warn');
    }
    forwarder = new WandbForwarder({
      paths,
      client,
      cursor,
      record,
      clock,
      say,
      episodes: settings.episodes,
      metadata: metadataFile(record, code, redact),
      redact,
      pace: options.pace,
      onStop,
    });
    await forwarder.follow(ending, () => exitCodeOf(paths));
    return { rows: forwarder.rows, page };
  } catch (error) {
    if (!(error instanceof GivenUpError)) throw error;
    const [sent, all] = [forwarder?.rows ?? 0, countRows(paths)];
    throw new EndpointError(`W&B does not respond; it has ${sent} of ${all} rows`, {
      where: baseUrl,
      next: `\`editrl sync ${paths.runName}\` uploads the rest.`,
    });
  } finally {
    stopWaiting();
  }
}

/** W&B's exit code for a run's end. Null for a run that continues or whose end is unknown. */
const EXIT_CODES: Readonly<Record<RunStateName, number | null>> = {
  queued: null,
  running: null,
  waiting: null,
  finished: 0,
  failed: 1,
  interrupted: 130,
};

function exitCodeOf(paths: RunPaths): number | null {
  const state = readState(paths);
  return state === null ? null : EXIT_CODES[state.state];
}

function requireKey({ key, baseUrl }: WandbEnvironment): string {
  if (key !== null) return key;
  throw new EndpointError('no W&B API key', {
    where: baseUrl,
    next: `Set WANDB_API_KEY, or add 'machine ${new URL(baseUrl).host} login user password KEY' to ~/.netrc.`,
  });
}

async function attachToServer(
  client: WandbClient,
  options: ForwardOptions,
  code: CodeRevision | null,
  redact: Redact,
): Promise<AttachedRun> {
  const { paths, record, settings, environment } = options;
  const { baseUrl } = environment;
  const before = readWandbCursor(paths);
  const named = settings.entity ?? environment.entity;
  const id = recordedWandbId(paths) ?? paths.runName;
  // A run that is sent to another destination starts over, as does a run that was recreated.
  const known =
    before?.base_url === baseUrl &&
    before.project === settings.project &&
    before.asked === id &&
    before.created_at === record.created_at &&
    (named === null || before.entity === named)
      ? before
      : null;
  const entity = named ?? known?.entity ?? (await defaultEntity(client));
  const last = record.attempts.at(-1);
  const described = {
    id,
    name: paths.runName,
    project: settings.project,
    entity,
    group: settings.group ?? record.experiment ?? null,
    jobType: settings.job_type ?? String(record.settings['task']),
    tags: settings.tags,
    notes: settings.notes,
    settings: shownSettings(record.settings, redact),
    code,
    host: last?.host ?? '',
    version: last?.versions['editrl'] ?? '0',
  };
  return attachRun(client, described, record, known, baseUrl);
}

/**
 * Aborts if the run has ended and the server has accepted nothing for `finishMs`. The returned function cancels that.
 */
function abortAfterSilence(
  finishMs: number,
  ending: AbortSignal,
  client: WandbClient,
  over: AbortController,
  clock: Clock,
): () => void {
  let cancel = (): void => undefined;
  const watch = (): void => {
    const endedMs = clock.now();
    const check = (): void => {
      const silentMs = clock.now() - Math.max(endedMs, client.lastAcceptedMs);
      if (silentMs >= finishMs) over.abort();
      else cancel = clock.after(Math.max(1, finishMs - silentMs), check);
    };
    check();
  };
  ending.addEventListener('abort', watch);
  if (ending.aborted) watch();
  return () => {
    ending.removeEventListener('abort', watch);
    cancel();
  };
}

function countRows(paths: RunPaths): number {
  let rows = 0;
  scanLines(paths.metrics, () => rows++);
  return rows;
}

export interface ForwardPace {
  /** Minimum milliseconds between two requests during the run. */
  readonly everyMs: number;
  /** Milliseconds without a request after which the server gets a heartbeat. */
  readonly heartbeatMs: number;
}

/** The intervals of W&B's SDK. After some minutes of silence, a server considers a run crashed. */
export const defaultPace: ForwardPace = { everyMs: 15_000, heartbeatMs: 30_000 };

/** The server rejects longer lines. Line numbers of the file stay the same. */
const MAX_LINE_BYTES = 10_383_360;
/** A request may have about ten megabytes. Everything else in it takes less than half. */
const MAX_ROW_BYTES = 5 * 1024 * 1024;
/** After a request of this size there is probably more, so the next one follows without a pause. */
const FULL_BYTES = 1024 * 1024;
const MAX_OUTPUT_LINE = 4096;

export interface ForwarderOptions {
  readonly paths: RunPaths;
  readonly client: WandbClient;
  readonly cursor: WandbCursor;
  readonly record: RunRecord;
  /** Maximum number of shown episodes of an iteration. */
  readonly episodes: number;
  /** The file that describes where the run was made. */
  readonly metadata: MediaFile;
  /** Redacts secrets in the run's output. */
  readonly redact: Redact;
  readonly pace?: ForwardPace | undefined;
  readonly clock?: Clock | undefined;
  /** Called when someone pressed Stop on the run's page. */
  readonly onStop?: (() => void) | undefined;
  readonly say: Say;
}

/** Lines for a remote file, starting at one of its lines. */
interface Batch {
  readonly offset: number;
  readonly content: readonly string[];
}

/** What was sent: only a heartbeat, everything there was, or as much as one request takes. */
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
  #wasStopRequested: boolean | null = null;
  #sentMs = -Infinity;

  constructor(private readonly options: ForwarderOptions) {
    const { paths, client, cursor, record, episodes, metadata, pace = defaultPace, clock = systemClock, say } = options;
    this.#pace = pace;
    this.#clock = clock;
    this.#cursor = cursor;
    this.#summary = parseExtendedJson(cursor.summary) ?? {};
    this.#rows = new RowFollower(paths.metrics, cursor.rows, () => record.attempts);
    this.#output = new OutputFollower(paths);
    this.#events = new FollowedLog(paths.systemMetrics);
    const target = { entity: cursor.entity, project: cursor.project, run: cursor.run };
    this.#uploads = new Uploads(client, target, clock, say);
    this.#uploads.addOfRun([metadata]);
    if (episodes === 0) return;
    const missing = listEpisodeFiles(paths)
      .map(({ iteration }) => iteration)
      .filter((iteration) => iteration > cursor.media && iteration <= cursor.iteration);
    for (const iteration of new Set(missing.sort((a, b) => a - b))) {
      this.#uploads.add(iteration, this.#mediaOf(iteration));
    }
  }

  /** Number of rows that the server has confirmed. */
  get rows(): number {
    return this.#rows.confirmed;
  }

  /**
   * Forwards until `ending` is aborted and all content of the files up to then is confirmed. Then reports the run's
   * `exitCode`, if known.
   * Raises WandbRefusedError, GivenUpError once the client's signal is aborted, and RunError.
   */
  async follow(ending: AbortSignal, exitCode: () => number | null): Promise<void> {
    const complete = new AbortController();
    const uploading = this.#uploads.run(complete.signal);
    // Awaited at the end. Until then, this avoids an unhandled rejection.
    uploading.catch(() => undefined);
    try {
      for (;;) {
        requireRun(this.options.paths);
        // Checked before reading, so that everything written before the end is sent.
        const last = ending.aborted;
        const sent = await this.#send();
        if (last && sent === 'nothing') break;
        if (sent !== 'some') await sleep(this.#clock, this.#pace.everyMs, ending);
      }
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

  /** Sends one request with new content, or a heartbeat if one is due. */
  async #send(): Promise<SendResult> {
    const { output: outputAt, events: eventsAt } = this.#cursor;
    const { rows, media, lines } = this.#nextRows();
    const output = this.#output.next(outputAt);
    const events = this.#nextEvents();
    const { names, through } = this.#uploads.taken();
    const summary = rows.length === 0 ? [] : [extendedJson(this.#summarize(rows, media))];
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
    if (stopped && this.#wasStopRequested === false) onStop?.();
    this.#wasStopRequested = stopped;
  }

  /** The rows of the next request, up to its maximum size. */
  #nextRows(): { readonly rows: readonly Row[]; readonly media: readonly Media[]; readonly lines: readonly string[] } {
    const rows: Row[] = [];
    const media: Media[] = [];
    const lines: string[] = [];
    let bytes = 0;
    for (const row of this.#rows.next()) {
      const shown = this.#mediaOf(row.iteration);
      const line = this.#historyLine(row, shown);
      bytes += Buffer.byteLength(line);
      if (rows.length > 0 && bytes > MAX_ROW_BYTES) break;
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
    // A placeholder replaces a line that is too long, so that later lines keep their numbers.
    return Buffer.byteLength(line) <= MAX_LINE_BYTES
      ? line
      : extendedJson({ 'metrics/too_long': line.length, ...always });
  }

  /** The last value of each metric, updated with further rows. */
  #summarize(rows: readonly Row[], media: readonly Media[]): Readonly<Record<string, unknown>> {
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

/** A line of `system.jsonl` as an event. Empty if a crash has torn it, because the next line repeats it. */
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
  return `${prefix}${dated}${redact(`${level === 'warn' ? 'warning: ' : ''}${text}`)}`.slice(0, MAX_OUTPUT_LINE);
}

/** The file that records the machine, the time and the program of the run. */
export function metadataFile(record: RunRecord, code: CodeRevision | null, redact: Redact): MediaFile {
  const { created_at, attempts } = record;
  const last = attempts.at(-1);
  const gpus = last?.devices.filter((device) => device.startsWith('gpu')).length ?? 0;
  const metadata = {
    program: 'editrl',
    args: last?.command.map(redact) ?? [],
    startedAt: created_at,
    host: last?.host ?? '',
    ...(code === null ? {} : { git: { ...(code.repository && { remote: code.repository }), commit: code.commit } }),
    ...(gpus === 0 ? {} : { gpu_count: gpus }),
    ...((last?.slurm_job_id ?? null) === null ? {} : { slurm: { job_id: last?.slurm_job_id } }),
    versions: last?.versions ?? {},
  };
  return { name: 'wandb-metadata.json', read: () => Buffer.from(`${JSON.stringify(metadata, null, 2)}\n`, 'utf8') };
}
