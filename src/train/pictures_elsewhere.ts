/** Wires servers that make pictures: the servers at their addresses, and where what they give is kept. */
import { basename } from 'node:path';
import type { AbsenceListener } from '../balance/absence.js';
import { systemClock, type Clock } from '../core/clock.js';
import { Deadline } from '../core/deadline.js';
import { EndpointError } from '../core/errors.js';
import type { Answered } from '../environments/served/picture.js';
import { ServerImages, type ServedPictures } from '../environments/served/pictures.js';
import { Abandoned, lead } from '../group/lead.js';
import type { RunHandle } from '../run/claim.js';
import type { RunLog } from '../run/logs.js';
import { Exchanges } from '../run/exchanges.js';
import { pictureForm, RunPictures, type NamedPicture } from '../run/pictures.js';
import { parseIterationName, RunPaths } from '../run/paths.js';
import type { AskedServersSettings } from '../schema/images_api.js';
import type { Bench } from './bench.js';

/** Of a run's settings where its records lie. */
export interface PicturedRun {
  readonly run_name: string;
  readonly base_exp_dir: string;
}

const LOOK_MS = 10_000;

/** What asks servers of one kind. */
export interface PictureClient<Asked> {
  /** Base URLs. */
  readonly urls: readonly string[];
  /** Why the servers cannot be asked now, one sentence for each that cannot. Never rejects for what a server does. */
  look(within: Deadline): Promise<readonly string[]>;
  /** One picture. Raises EndpointError where no server gives one within the time or the attempts. */
  draw(asked: Asked, within: Deadline): Promise<Answered>;
  close(): Promise<void>;
}

/** What a client is told and tells. */
export interface ClientServices extends AbsenceListener {
  /** Pictures under way at once, on this rank. */
  readonly concurrency: number;
  readonly apiKey: string | undefined;
  readonly onNote?: (note: string) => void;
  readonly clock?: Clock;
}

export interface PictureServers<Asked, Client extends PictureClient<Asked>> {
  /** What messages call one of them. */
  readonly name: string;
  readonly settings: AskedServersSettings & { readonly served_model: string };
  readonly open: (services: ClientServices) => Client;
  /** Waits until one is there and gives what the settings ask for; called by rank 0 of a run of which nothing is stored yet. Raises EndpointError. */
  readonly first: (client: Client, within: Deadline) => Promise<void>;
  /** Told, on every rank, that servers gave what the settings ask for. */
  readonly begun?: (client: Client) => void;
  /** SHA-256 of all that decides a picture. */
  readonly hash: (asked: Asked) => string;
}

export type PictureServices = Pick<Bench, 'group' | 'stop' | 'checkpoint'> & {
  readonly handle: Pick<RunHandle, 'paths' | 'setState'> | null;
  readonly log: { readonly logger: Pick<RunLog['logger'], 'warn' | 'info'> };
  readonly clock?: Clock;
};

/**
 * Waits for the servers and, where nothing of the run is stored yet, lets one picture be drawn that nobody uses, so that settings which they
 * refuse are told at once. Every rank calls it. Raises ConfigError for a key that cannot be sent, EndpointError where no server gives a
 * picture, Abandoned where the run is asked to stop meanwhile.
 */
export async function openServers<Asked extends object, Client extends PictureClient<Asked>>(
  { run_name, base_exp_dir }: PicturedRun,
  { name, settings, open, first, begun, hash }: PictureServers<Asked, Client>,
  { group, handle, log, stop, checkpoint, clock = systemClock }: PictureServices,
): Promise<ServerImages<Asked>> {
  const paths = handle?.paths ?? new RunPaths(base_exp_dir, run_name);
  const concurrency = Math.max(1, Math.floor(settings.concurrency / group.size));
  const client = open({
    concurrency,
    apiKey: process.env[settings.api_key_env],
    clock,
    onNote: (note) => log.logger.warn(note),
    onWaiting: (found, waitedS) => {
      handle?.setState({ state: 'waiting', reason: found });
      log.logger.warn(`waiting for the ${name} (${waitedS} s): ${found}`);
    },
    onBack: () => {
      handle?.setState({ state: 'running', reason: null });
      log.logger.info(`the ${name} answers again`);
    },
  });
  let lines: Exchanges<NamedPicture> | null = null;
  try {
    const from = (checkpoint === null ? null : parseIterationName(basename(checkpoint))) ?? 0;
    const kept = new Exchanges(paths.pictures, pictureForm, { isOwner: handle !== null, from });
    lines = kept;
    await lead(group, async () => {
      if (kept.size > 0) return;
      await untilFirst((within) => first(client, within), new Deadline(clock, settings.max_wait_s * 1000, stop), stop);
      log.logger.info(`pictures are made by ${settings.served_model} at ${client.urls.join(', ')}`);
    });
    begun?.(client);
    // Nobody asks, and so nobody writes, before everyone has read what is there.
    await group.barrier();
    return new ServerImages({
      client,
      hash,
      store: new RunPictures(paths, kept),
      keep: async () => {
        const all = await group.gather(kept.take());
        for (const line of (all ?? []).flat()) kept.put(line);
      },
      concurrency,
      maxWaitMs: settings.max_wait_s * 1000,
      stop,
      clock,
      close: async () => {
        kept.close();
        await client.close();
      },
    });
  } catch (error) {
    lines?.close();
    await client.close();
    throw error;
  }
}

async function untilFirst(
  first: (within: Deadline) => Promise<void>,
  deadline: Deadline,
  stop: AbortSignal,
): Promise<void> {
  try {
    await first(deadline);
  } catch (error) {
    throw stop.aborted ? new Abandoned() : error;
  } finally {
    deadline.dispose();
  }
}

/** The pictures that a run has stored, for scoring its episodes again; no server is asked. */
export function storedPictures<Asked extends object>(
  { run_name, base_exp_dir }: PicturedRun,
  hash: (asked: Asked) => string,
): ServedPictures<Asked> {
  const paths = new RunPaths(base_exp_dir, run_name);
  const lines = new Exchanges(paths.pictures, pictureForm, { isOwner: false, from: null });
  const store = new RunPictures(paths, lines);
  return {
    generate: (requests) =>
      Promise.all(
        requests.map(async (request) => {
          const stored = await store.find(request.key, hash(request));
          if (stored === undefined) {
            return { kind: 'unavailable', reason: 'empty', detail: 'its picture is not stored any more' };
          }
          return stored.picture === null
            ? { kind: 'unavailable', reason: 'refused', detail: stored.refused ?? '' }
            : { kind: 'made', image: stored.picture };
        }),
      ),
    close: async () => lines.close(),
  };
}

/** Whether servers can make a run's pictures, looked at once. Raises EndpointError where none can; else what is wrong with some, one sentence each. */
export async function lookAtServers<Asked>({
  name,
  settings,
  open,
}: Pick<PictureServers<Asked, PictureClient<Asked>>, 'name' | 'settings' | 'open'>): Promise<readonly string[]> {
  const { concurrency, api_key_env } = settings;
  const client = open({ concurrency, apiKey: process.env[api_key_env] });
  const deadline = new Deadline(systemClock, LOOK_MS);
  try {
    const found = await client.look(deadline);
    if (found.length < client.urls.length) return found;
    throw new EndpointError(`no ${name} is ready: ${found.join('; ')}`, {
      where: 'environment.base_url',
      next: 'Start it, or check its address, its key (environment.api_key_env) and environment.served_model.',
    });
  } finally {
    deadline.dispose();
    await client.close();
  }
}
