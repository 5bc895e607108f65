/** Wires an images server: the servers at their addresses, and where what they give is kept. */
import { basename } from 'node:path';
import { systemClock, type Clock } from '../core/clock.js';
import { Deadline } from '../core/deadline.js';
import { EndpointError } from '../core/errors.js';
import { ImagesClient } from '../environments/images_api/client.js';
import { requestHashOf, ServerImages } from '../environments/images_api/model.js';
import type { ImageModel } from '../environments/image_model.js';
import { Abandoned, lead } from '../group/lead.js';
import type { RunHandle } from '../run/claim.js';
import type { RunLog } from '../run/logs.js';
import { CollectedPictures, FilePictures, RunPictures } from '../run/pictures.js';
import { parseIterationName, RunPaths } from '../run/paths.js';
import type { ImagesApiSettings } from '../schema/images_api.js';
import type { Bench } from './bench.js';

/** Of a run's settings where its records lie. */
export interface PicturedRun {
  readonly run_name: string;
  readonly base_exp_dir: string;
}

const LOOK_MS = 10_000;

type Services = Pick<Bench, 'group' | 'stop' | 'checkpoint'> & {
  readonly handle: Pick<RunHandle, 'paths' | 'setState'> | null;
  readonly log: { readonly logger: Pick<RunLog['logger'], 'warn' | 'info'> };
  readonly clock?: Clock;
};

/**
 * Waits for the servers and, where nothing of the run is stored yet, lets one picture be drawn that nobody uses, so that settings which they
 * refuse are told at once. Every rank calls it. Raises ConfigError for a key that cannot be sent, EndpointError where no server gives a
 * picture, Abandoned where the run is asked to stop meanwhile.
 */
export async function openImagesServer(
  { run_name, base_exp_dir }: PicturedRun,
  settings: ImagesApiSettings,
  { group, handle, log, stop, checkpoint, clock = systemClock }: Services,
): Promise<ServerImages> {
  const paths = handle?.paths ?? new RunPaths(base_exp_dir, run_name);
  const concurrency = Math.max(1, Math.floor(settings.concurrency / group.size));
  const client = new ImagesClient({
    settings: { ...settings, concurrency },
    apiKey: process.env[settings.api_key_env],
    clock,
    onNote: (note) => log.logger.warn(note),
    onWaiting: (found, waitedS) => {
      handle?.setState({ state: 'waiting', reason: found });
      log.logger.warn(`waiting for the images server (${waitedS} s): ${found}`);
    },
    onBack: () => {
      handle?.setState({ state: 'running', reason: null });
      log.logger.info('the images server answers again');
    },
  });
  let lines: FilePictures | CollectedPictures | null = null;
  try {
    const from = (checkpoint === null ? null : parseIterationName(basename(checkpoint))) ?? 0;
    const kept = handle === null ? new CollectedPictures(paths, from) : new FilePictures(paths, from);
    lines = kept;
    await lead(group, async () => {
      if (kept instanceof FilePictures && kept.size > 0) return;
      await firstPicture(client, new Deadline(clock, settings.max_wait_s * 1000, stop), stop);
      log.logger.info(`pictures are made by ${settings.served_model} at ${client.urls.join(', ')}`);
    });
    client.hasDrawn();
    // Nobody asks, and so nobody writes, before everyone has read what is there.
    await group.barrier();
    return new ServerImages({
      client,
      drawing: settings,
      store: new RunPictures(paths, kept),
      keep: async () => {
        const all = await group.gather(kept instanceof CollectedPictures ? kept.take() : []);
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

async function firstPicture(client: ImagesClient, deadline: Deadline, stop: AbortSignal): Promise<void> {
  try {
    await client.ready(deadline);
  } catch (error) {
    throw stop.aborted ? new Abandoned() : error;
  } finally {
    deadline.dispose();
  }
}

/** The pictures that a run has stored, for scoring its episodes again; no server is asked. */
export function openStoredPictures({ run_name, base_exp_dir }: PicturedRun, settings: ImagesApiSettings): ImageModel {
  const paths = new RunPaths(base_exp_dir, run_name);
  const lines = new CollectedPictures(paths, null);
  const store = new RunPictures(paths, lines);
  return {
    generate: (requests) =>
      Promise.all(
        requests.map(async ({ key, prompt, seed }) => {
          const stored = await store.find(key, requestHashOf(settings, { prompt, seed }));
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
export async function lookAtImagesServer(settings: ImagesApiSettings): Promise<readonly string[]> {
  const client = new ImagesClient({ settings, apiKey: process.env[settings.api_key_env] });
  const deadline = new Deadline(systemClock, LOOK_MS);
  try {
    const found = await client.look(deadline);
    if (found.length < client.urls.length) return found;
    throw new EndpointError(`no images server is ready: ${found.join('; ')}`, {
      where: 'environment.base_url',
      next: 'Start it, or check its address, its key (environment.api_key_env) and environment.served_model.',
    });
  } finally {
    deadline.dispose();
    await client.close();
  }
}
