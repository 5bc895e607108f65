/** Publishes a run's checkpoints during the run: each on its own branch, and the final one also as main. */
import { spawn } from 'node:child_process';
import { existsSync, readdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { z } from 'zod';
import { recipesModule } from '../../../config/recipes.js';
import { sleep, systemClock, type Clock } from '../../../core/clock.js';
import { EndpointError, RunError } from '../../../core/errors.js';
import { diskError, writeFileAtomic } from '../../../core/files.js';
import { checkRepository } from '../../../models/hub/writer.js';
import { checkpointProblems, latestWhole, listCheckpoints } from '../../checkpoints.js';
import { linkFolder } from '../../claim/fork.js';
import { iterationName, type RunPaths } from '../../paths.js';
import { readJson, readState } from '../../state.js';
import type { HubPublishing } from '../../../config/schema/track.js';
import { requireRun, type Say } from '../shared.js';
import { checkpointBranch, MAIN, type PublishRequest } from './publish.js';

const EVERY_MS = 2000;
const KEPT_PREFIX = 'to_publish_';

/** A request to `publish_main`. */
export type SentRequest = Omit<PublishRequest, 'paths'> & { readonly dir: string };

/** Its reply. `lasting` means that the next checkpoint would fail in the same way. */
export type PublishReply =
  | { readonly repository: string; readonly url: string; readonly commit: string }
  | { readonly problem: string; readonly lasting: boolean };

export interface HubOptions {
  readonly paths: RunPaths;
  readonly settings: HubPublishing;
  /** Aborted when the run has ended. */
  readonly ending: AbortSignal;
  /** Ends at once. */
  readonly giveUp: AbortSignal;
  readonly say: Say;
  readonly clock?: Clock | undefined;
  readonly everyMs?: number;
  /** Publishes one checkpoint. Default: in a separate process. */
  readonly publish?: ((request: SentRequest, giveUp: AbortSignal) => Promise<PublishReply>) | undefined;
}

const publishLogSchema = z.object({
  format: z.literal(1),
  repository: z.string(),
  /** Commits by branch. The commit of main has its iteration. */
  published: z.record(z.string(), z.object({ iteration: z.int(), commit: z.string() })),
});
type PublishLog = z.output<typeof publishLogSchema>;

/**
 * Publishes due checkpoints until the run has ended. Returns the number of branches written. Raises EndpointError for
 * checkpoints that could not be published, and RunError.
 */
export async function publishCheckpoints(options: HubOptions): Promise<number> {
  const { paths, settings, ending, giveUp, clock = systemClock, everyMs = EVERY_MS } = options;
  checkRepository(settings.repo_id, 'track.push_to_hub.repo_id');
  const publisher = new Publisher(options);
  try {
    for (;;) {
      requireRun(paths);
      const last = ending.aborted;
      publisher.keep();
      const one = publisher.next(last);
      if (giveUp.aborted || (one === null && last)) break;
      if (one === null) await sleep(clock, everyMs, ending);
      else await publishWhileKeeping(publisher, one, options);
    }
    return publisher.done();
  } finally {
    publisher.close();
  }
}

/**
 * Publishes one checkpoint while linking others that fall due, because the run removes its own checkpoints meanwhile.
 */
async function publishWhileKeeping(
  publisher: Publisher,
  due: DueCheckpoint,
  { clock = systemClock, everyMs = EVERY_MS }: HubOptions,
): Promise<void> {
  const over = new AbortController();
  const published = publisher.publish(due).finally(() => over.abort());
  // Awaited below, once nothing is left to keep.
  published.catch(() => undefined);
  while (!over.signal.aborted) {
    publisher.keep();
    await sleep(clock, everyMs, over.signal);
  }
  await published;
}

interface DueCheckpoint {
  readonly iteration: number;
  readonly branch: string;
  readonly folder: string;
}

class Publisher {
  readonly #noted: PublishLog;
  /** Checkpoints by iteration, in folders that remain when the run removes its own. */
  readonly #kept = new Map<number, string>();
  readonly #failed: string[] = [];
  #hopeless = false;
  #count = 0;

  constructor(private readonly options: HubOptions) {
    const { paths, settings } = options;
    const known = readPublishLog(paths);
    // Left behind by a process that was killed.
    for (const name of existsSync(paths.trackDir) ? readdirSync(paths.trackDir) : []) {
      if (name.startsWith(KEPT_PREFIX)) rmSync(join(paths.trackDir, name), { recursive: true, force: true });
    }
    this.#noted =
      known?.repository === settings.repo_id ? known : { format: 1, repository: settings.repo_id, published: {} };
  }

  /** Links due checkpoints before the run can remove them. */
  keep(): void {
    const { paths, settings } = this.options;
    if (this.#hopeless) return;
    for (const iteration of listCheckpoints(paths)) {
      if (iteration > 0 && iteration % settings.every_n_iterations === 0 && this.#isOpen(checkpointBranch(iteration))) {
        this.#take(iteration);
      }
    }
  }

  /**
   * The next checkpoint to publish. Null if there is none. With `ended`, the last checkpoint of a finished run becomes
   * main.
   */
  next(ended: boolean): DueCheckpoint | null {
    const { paths } = this.options;
    if (this.#hopeless) return null;
    for (const [iteration, folder] of this.#kept) {
      const branch = checkpointBranch(iteration);
      if (this.#isOpen(branch)) return { iteration, branch, folder };
    }
    if (!ended || readState(paths)?.state !== 'finished' || this.#failed.includes(MAIN)) return null;
    const latest = latestWhole(paths);
    if (latest === null || this.#noted.published[MAIN]?.iteration === latest.iteration) return null;
    return { iteration: latest.iteration, branch: MAIN, folder: latest.dir };
  }

  async publish({ iteration, branch, folder }: DueCheckpoint): Promise<void> {
    const { paths, settings, giveUp, say, publish = publishInChildProcess } = this.options;
    const reply = await publish(
      {
        dir: paths.dir,
        checkpoint: folder,
        iteration,
        format: null,
        dtype: 'bfloat16',
        repository: settings.repo_id,
        branch,
        private: settings.private,
      },
      giveUp,
    );
    if ('problem' in reply) {
      this.#failed.push(branch);
      this.#hopeless = reply.lasting;
      if (!giveUp.aborted) say(`iteration ${iteration} was not published: ${reply.problem}`, 'warn');
      return;
    }
    this.#noted.published[branch] = { iteration, commit: reply.commit };
    requireRun(paths);
    writeFileAtomic(paths.hub, `${JSON.stringify(this.#noted, null, 2)}\n`);
    this.#drop(iteration);
    this.#count++;
    say(`published iteration ${iteration}: ${reply.url}`, 'info');
  }

  /** Returns the number of published checkpoints. Raises EndpointError when some failed. */
  done(): number {
    const { paths, settings } = this.options;
    if (this.#failed.length === 0) return this.#count;
    throw new EndpointError(`not published: ${this.#failed.join(', ')}`, {
      where: settings.repo_id,
      next: `To publish a checkpoint that still exists: editrl export ${paths.runName}@ITERATION --hub ${settings.repo_id}`,
    });
  }

  close(): void {
    for (const iteration of this.#kept.keys()) this.#drop(iteration);
  }

  #isOpen(branch: string): boolean {
    return !Object.hasOwn(this.#noted.published, branch) && !this.#failed.includes(branch);
  }

  #take(iteration: number): void {
    const { paths, say } = this.options;
    if (this.#kept.has(iteration)) return;
    // At the same depth as a checkpoint's folder, so that an adapter finds the run of its base.
    const folder = join(paths.trackDir, `${KEPT_PREFIX}${iterationName(iteration)}`);
    try {
      rmSync(folder, { recursive: true, force: true });
      linkFolder(paths.checkpoint(iteration), folder);
      // The run may have removed the checkpoint in this very moment.
      if (checkpointProblems(folder, iteration).length === 0) {
        this.#kept.set(iteration, folder);
        return;
      }
      rmSync(folder, { recursive: true, force: true });
      if (!existsSync(paths.checkpoint(iteration))) return;
      this.#failed.push(checkpointBranch(iteration));
      say(`iteration ${iteration} was not published: its checkpoint is damaged`, 'warn');
    } catch (cause) {
      rmSync(folder, { recursive: true, force: true });
      if ((cause as NodeJS.ErrnoException).code !== 'ENOENT') throw diskError(folder, cause);
    }
  }

  #drop(iteration: number): void {
    const folder = this.#kept.get(iteration);
    if (folder !== undefined) rmSync(folder, { recursive: true, force: true });
    this.#kept.delete(iteration);
  }
}

function readPublishLog(paths: RunPaths): PublishLog | null {
  const value = readJson(paths.hub);
  if (value === null) return null;
  const parsed = publishLogSchema.safeParse(value);
  if (parsed.success) return parsed.data;
  throw new RunError('invalid Hub upload state', {
    where: paths.hub,
    next: 'Remove the file. Checkpoints are then published again, which does not change published ones.',
  });
}

/** Runs outside the terminal's process group, because Ctrl-C should end the run but still publish its checkpoints. */
function publishInChildProcess(request: SentRequest, giveUp: AbortSignal): Promise<PublishReply> {
  const program = fileURLToPath(new URL('./publish_main.js', import.meta.url));
  const child = spawn(process.execPath, ['--import', recipesModule(), program, JSON.stringify(request)], {
    stdio: ['ignore', 'pipe', 'pipe'],
    detached: true,
  });
  const end = (): void => void child.kill('SIGKILL');
  giveUp.addEventListener('abort', end);
  let [out, err] = ['', ''];
  child.stdout.setEncoding('utf8').on('data', (text: string) => (out += text));
  child.stderr.setEncoding('utf8').on('data', (text: string) => (err = `${err}${text}`.slice(-2000)));
  return new Promise((resolve) => {
    const settle = (reply: PublishReply): void => {
      giveUp.removeEventListener('abort', end);
      resolve(reply);
    };
    child.once('error', (error) => settle({ problem: error.message, lasting: true }));
    child.once('close', (code, signal) => {
      try {
        settle(JSON.parse(out) as PublishReply);
      } catch {
        settle({ problem: `its process ended with ${signal ?? code}: ${err.trim()}`, lasting: false });
      }
    });
  });
}
