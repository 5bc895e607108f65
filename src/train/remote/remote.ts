/**
 * Opens a remote service that answers a run's requests: waits for it, reports the wait, and opens the file with its
 * stored answers.
 */
import type { OutageListener } from '../../core/remote/remote.js';
import type { LineForm, RemoteExchange } from '../../core/remote/exchange.js';
import { type Clock, type Deadline, systemClock } from '../../core/clock.js';
import { runOnRankZero } from '../../core/group/rank_zero.js';
import { gatherLines, waitForRemote, type ReplayOptions } from '../../core/group/replay.js';
import type { RunHandle } from '../../run/claim/claim.js';
import { openExchanges, type Exchanges } from '../../run/exchanges.js';
import type { RunLog } from '../../run/logs.js';
import { RunPaths } from '../../run/paths.js';
import type { TrainingContext } from '../context.js';

/** Identifies a run and the location of its records. */
export interface NamedRun {
  readonly run_name: string;
  readonly base_exp_dir: string;
}

export type RemoteServices = Pick<TrainingContext, 'group' | 'stop' | 'checkpoint' | 'spending' | 'trainer'> & {
  readonly handle: Pick<RunHandle, 'paths' | 'setState'> | null;
  readonly log: { readonly logger: Pick<RunLog['logger'], 'warn' | 'info'> };
  readonly clock?: Clock;
};

/** Settings and callbacks of a client. */
export interface ClientServices extends OutageListener {
  /** Number of concurrent requests of this rank. */
  readonly concurrency: number;
  readonly onNote?: (note: string) => void;
  readonly clock?: Clock;
}

/** A kind of remote service, and the file of its answers. */
export interface RemoteSpec<Client, L extends RemoteExchange, F> {
  /** Its name in messages: 'vLLM', 'the images server'. */
  readonly name: string;
  readonly settings: { readonly concurrency: number; readonly max_wait_s: number };
  readonly open: (services: ClientServices) => Client;
  readonly form: LineForm<L>;
  readonly linesOf: (paths: RunPaths) => string;
  /**
   * Called on rank 0 before any request: waits for the service and queries it. `stored` is the number of stored
   * answers.
   */
  readonly prepare: (client: Client, within: Deadline, stored: number) => Promise<F>;
}

export interface OpenedRemote<Client, L extends RemoteExchange, F> {
  readonly client: Client;
  readonly paths: RunPaths;
  readonly lines: Exchanges<L>;
  /** The result of `prepare` on rank 0. */
  readonly found: F;
  /** Options for the `Replay` of its answers. */
  readonly replay: Omit<ReplayOptions<L>, 'store'>;
}

/** Paths of a run's records. */
export function pathsOf(run: NamedRun, handle: Pick<RunHandle, 'paths'> | null): RunPaths {
  return handle?.paths ?? RunPaths.of(run);
}

/**
 * Opens the service. Every rank calls it. Raises the errors of `open` and `prepare`, and WaitInterrupted when the run
 * is asked to stop meanwhile. Closes everything on an error.
 */
export async function openRemote<Client extends { close(): Promise<void> }, L extends RemoteExchange, F>(
  run: NamedRun,
  { name, settings, open, form, linesOf, prepare }: RemoteSpec<Client, L, F>,
  { group, handle, log, stop, checkpoint, clock = systemClock }: RemoteServices,
): Promise<OpenedRemote<Client, L, F>> {
  const paths = pathsOf(run, handle);
  const concurrency = Math.max(1, Math.floor(settings.concurrency / group.size));
  const maxWaitMs = settings.max_wait_s * 1000;
  const client = open({
    concurrency,
    clock,
    onNote: (note) => log.logger.warn(note),
    onWaiting: (found, waitedS) => {
      handle?.setState({ state: 'waiting', reason: found });
      log.logger.warn(`waiting for ${name} (${waitedS} s): ${found}`);
    },
    onBack: () => {
      handle?.setState({ state: 'running', reason: null });
      log.logger.info(`${name} is back`);
    },
  });
  let opened: Exchanges<L> | null = null;
  const close = async (): Promise<void> => {
    opened?.close();
    await client.close();
  };
  try {
    const lines = (opened = openExchanges(linesOf(paths), form, { handle, checkpoint }));
    const found = await runOnRankZero(group, () =>
      waitForRemote({ stop, maxWaitMs, clock }, (deadline) => prepare(client, deadline, lines.size)),
    );
    // No rank may request or write answers before every rank has read the stored ones.
    await group.barrier();
    const keep = (): Promise<void> => gatherLines(group, lines);
    return { client, paths, lines, found, replay: { keep, concurrency, maxWaitMs, stop, close, clock } };
  } catch (error) {
    await close();
    throw error;
  }
}
