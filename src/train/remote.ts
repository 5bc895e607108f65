/** Opens another machine that a run gets answers from: waits for it, says so, and opens the file where its answers are kept. */
import type { AbsenceListener } from '../balance/absence.js';
import type { Exchanged } from '../balance/exchange.js';
import { systemClock, type Clock } from '../core/clock.js';
import type { Deadline } from '../core/deadline.js';
import { lead } from '../group/lead.js';
import { gathered, within, type ReplayOptions } from '../group/replay.js';
import type { RunHandle } from '../run/claim.js';
import { openExchanges, type Exchanges, type LineForm } from '../run/exchanges.js';
import type { RunLog } from '../run/logs.js';
import { RunPaths } from '../run/paths.js';
import type { TrainingContext } from './context.js';

/** Names a run, and with it where its records lie. */
export interface NamedRun {
  readonly run_name: string;
  readonly base_exp_dir: string;
}

export type RemoteServices = Pick<TrainingContext, 'group' | 'stop' | 'checkpoint'> & {
  readonly handle: Pick<RunHandle, 'paths' | 'setState'> | null;
  readonly log: { readonly logger: Pick<RunLog['logger'], 'warn' | 'info'> };
  readonly clock?: Clock;
};

/** What a client is told and tells. */
export interface ClientServices extends AbsenceListener {
  /** Requests under way at once, on this rank. */
  readonly concurrency: number;
  readonly onNote?: (note: string) => void;
  readonly clock?: Clock;
}

/** What is asked, and where its answers are kept. */
export interface RemoteKind<Client, L extends Exchanged, F> {
  /** What messages call it: 'vLLM', 'the images server'. */
  readonly name: string;
  readonly settings: { readonly concurrency: number; readonly max_wait_s: number };
  readonly open: (services: ClientServices) => Client;
  readonly form: LineForm<L>;
  readonly linesOf: (paths: RunPaths) => string;
  /** What rank 0 does before anybody asks: waits until the machine can be asked, and finds out about it. `stored` counts the answers that are kept. */
  readonly first: (client: Client, within: Deadline, stored: number) => Promise<F>;
}

export interface OpenedRemote<Client, L extends Exchanged, F> {
  readonly client: Client;
  readonly paths: RunPaths;
  readonly lines: Exchanges<L>;
  /** What rank 0 found. */
  readonly found: F;
  /** For the `Replay` of its answers. */
  readonly replay: Omit<ReplayOptions<L>, 'store'>;
}

/** Where the records of a run lie. */
export function pathsOf(run: NamedRun, handle: Pick<RunHandle, 'paths'> | null): RunPaths {
  return handle?.paths ?? RunPaths.of(run);
}

/**
 * Every rank calls it. Raises what `open` and `first` raise, and Abandoned where the run is asked to stop meanwhile; then everything is closed.
 */
export async function openRemote<Client extends { close(): Promise<void> }, L extends Exchanged, F>(
  run: NamedRun,
  { name, settings, open, form, linesOf, first }: RemoteKind<Client, L, F>,
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
      log.logger.info(`${name} answers again`);
    },
  });
  let opened: Exchanges<L> | null = null;
  const close = async (): Promise<void> => {
    opened?.close();
    await client.close();
  };
  try {
    const lines = (opened = openExchanges(linesOf(paths), form, { handle, checkpoint }));
    const found = await lead(group, () =>
      within({ stop, maxWaitMs, clock }, (deadline) => first(client, deadline, lines.size)),
    );
    // Nobody asks, and so nobody writes, before everyone has read what is there.
    await group.barrier();
    const keep = (): Promise<void> => gathered(group, lines);
    return { client, paths, lines, found, replay: { keep, concurrency, maxWaitMs, stop, close, clock } };
  } catch (error) {
    await close();
    throw error;
  }
}
