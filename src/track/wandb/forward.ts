/** Forwards a run to W&B, from its settings and the environment to the last line: while it runs, and for `editrl sync` afterwards. */
import { systemClock, type Clock } from '../../core/clock.js';
import { EndpointError } from '../../core/errors.js';
import { scanLines } from '../../core/log/reader.js';
import type { RunPaths } from '../../run/paths.js';
import type { Redact } from '../../http/redact.js';
import type { RunRecord } from '../../run/record.js';
import { readState, type RunStateName } from '../../run/state.js';
import type { WandbSettings } from '../../schema/track.js';
import { codeRevision, type CodeRevision } from '../code.js';
import { redactorOfRun } from '../secrets.js';
import { shownSettings } from '../shown_settings.js';
import type { Say } from '../say.js';
import { GivenUpError, WandbClient, type WandbRetryPolicy } from './client.js';
import { readWandbCursor } from './cursor.js';
import { pageAddress, type WandbEnvironment } from './environment.js';
import { WandbForwarder, type ForwardPace } from './forwarder.js';
import { configFile, metadataFile } from './run_files.js';
import { notedWandbId } from './run_id.js';
import { attachRun, defaultEntity, type AttachedRun } from './run_of_server.js';

export interface ForwardOptions {
  readonly paths: RunPaths;
  readonly record: RunRecord;
  readonly settings: WandbSettings;
  readonly environment: WandbEnvironment;
  /** The variables whose secrets are kept from what is sent; those of this process by default. */
  readonly env?: NodeJS.ProcessEnv;
  /** Aborted when the run has ended: what is in its files by then is still sent. */
  readonly ending: AbortSignal;
  /** How long to wait after that for a server that does not answer. */
  readonly finishMs: number;
  /** Ends at once. */
  readonly giveUp: AbortSignal;
  readonly say: Say;
  readonly onStop?: () => void;
  readonly clock?: Clock;
  readonly pace?: ForwardPace;
  readonly retryPolicy?: WandbRetryPolicy;
}

/** What has been sent, and where to look at it. */
export interface ForwardResult {
  readonly rows: number;
  readonly page: string;
}

/**
 * Forwards a run until it has ended and everything is confirmed. Raises EndpointError when the server refuses or does not answer in the end: what was
 * not sent stays in the run directory. Raises RunError when that cannot be read.
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
    ...(options.retryPolicy === undefined ? {} : { retryPolicy: options.retryPolicy }),
    onAway: (found) =>
      say(`W&B at ${baseUrl} does not answer (${found}): rows wait in the run directory and follow later`, 'warn'),
  });
  const stopWaiting = abortAfterSilence(finishMs, ending, client, over, clock);
  let forwarder: WandbForwarder | null = null;
  try {
    const redact = redactorOfRun(record.settings, options.env ?? process.env, environment.key);
    const code = await codeRevision();
    const { cursor, taken, config } = await attachToServer(client, options, code, redact);
    const page = `${pageAddress(baseUrl)}/${cursor.entity}/${cursor.project}/runs/${cursor.run}`;
    say(`W&B: ${page}`, 'info');
    if (taken !== null) {
      say(`another writer's lines are in the W&B run ${taken}: this run has the id ${cursor.run}`, 'warn');
    }
    forwarder = new WandbForwarder({
      paths,
      client,
      cursor,
      record,
      clock,
      say,
      episodes: settings.episodes,
      files: [configFile(config), metadataFile(record, code, redact)],
      redact,
      ...(options.pace === undefined ? {} : { pace: options.pace }),
      ...(onStop === undefined ? {} : { onStop }),
    });
    await forwarder.follow(ending, () => exitCodeOf(paths));
    return { rows: forwarder.rows, page };
  } catch (error) {
    if (!(error instanceof GivenUpError)) throw error;
    const [sent, all] = [forwarder?.rows ?? 0, countRows(paths)];
    throw new EndpointError(`W&B did not answer in the end: it has ${sent} of ${all} rows`, {
      where: baseUrl,
      next: `\`editrl sync ${paths.runName}\` sends the rest.`,
    });
  } finally {
    stopWaiting();
  }
}

/** W&B's exit code for a run's end; null for a run that goes on, or whose end is unknown. */
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
  throw new EndpointError('W&B wants a key, and there is none', {
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
  const id = notedWandbId(paths) ?? paths.runName;
  // A run sent to another destination starts over, and so does a run that was recreated.
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

/** Gives up once the run has ended and the server has accepted nothing for this long; the returned function cancels that. */
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
    const look = (): void => {
      const silentMs = clock.now() - Math.max(endedMs, client.heardMs);
      if (silentMs >= finishMs) over.abort();
      else cancel = clock.after(Math.max(1, finishMs - silentMs), look);
    };
    look();
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
