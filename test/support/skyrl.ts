/** A real SkyRL server on a CPU, where EDITRL_SKYRL names the Python environment that has it (docs/guide/gpus-and-servers.md). */
import { spawn, type ChildProcess } from 'node:child_process';
import { closeSync, mkdirSync, openSync, readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { freePort } from '../../src/launch/processes/supervise.js';

/** The folder of that environment; none where the tests of a real server are left out. */
export const skyrlEnvironment = process.env['EDITRL_SKYRL'];

const SCRIPT = resolve(import.meta.dirname, '../../scripts/serve_skyrl');
const LONGEST_START_MS = 180_000;

export class SkyrlServer {
  private constructor(
    readonly url: string,
    private readonly child: ChildProcess,
  ) {}

  /** Waits until it answers; its first model makes it load the base. What it prints goes to `log` in the folder. */
  static async start(base: string, folder: string, at?: number): Promise<SkyrlServer> {
    mkdirSync(folder, { recursive: true });
    const port = at ?? (await freePort());
    const log = openSync(join(folder, 'log'), 'a');
    const options = ['--model', base, '--mode', 'jax', '--port', String(port), '--dir', folder];
    const child = spawn(SCRIPT, [...options, '--env', String(skyrlEnvironment)], {
      cwd: folder,
      // The engine is a process of its own, which ends with the group.
      detached: true,
      stdio: ['ignore', log, log],
    });
    closeSync(log);
    const server = new SkyrlServer(`http://127.0.0.1:${port}`, child);
    const end = Date.now() + LONGEST_START_MS;
    while (!(await server.#answers())) {
      if (child.exitCode !== null || Date.now() > end) {
        server.kill();
        throw new Error(`SkyRL did not start: ${readFileSync(join(folder, 'log'), 'utf8').slice(-2000)}`);
      }
      await new Promise((wait) => setTimeout(wait, 500));
    }
    return server;
  }

  kill(signal: NodeJS.Signals = 'SIGKILL'): void {
    if (this.child.pid !== undefined && this.child.exitCode === null) process.kill(-this.child.pid, signal);
  }

  async #answers(): Promise<boolean> {
    try {
      return (await fetch(`${this.url}/api/v1/healthz`)).ok;
    } catch {
      return false;
    }
  }
}
