/** The embedded judge: the rule judge as a process of its own, so that a run cannot tell it from any other server. */
import { spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { EndpointError } from '../core/errors.js';
import type { Endpoint } from '../rewards/endpoints.js';
import type { RewardSettings } from '../rewards/schema/reward.js';

interface EmbeddedJudge {
  /** Base URL, `/v1` included. */
  readonly url: string;
  close(): Promise<void>;
}

/** The embedded judge for whoever is told to use it: started when it is first asked for. */
export class EmbeddedJudges {
  #started: Promise<EmbeddedJudge> | null = null;

  /** Where the judge of a reward is. Raises EndpointError where the embedded one does not start. */
  async endpointOf({ endpoint, model }: Pick<RewardSettings, 'endpoint' | 'model'>): Promise<Endpoint> {
    if (endpoint !== 'embedded') return endpoint;
    this.#started ??= startEmbeddedJudge(model);
    return (await this.#started).url;
  }

  async close(): Promise<void> {
    const started = this.#started;
    this.#started = null;
    await (await started?.catch(() => null))?.close();
  }
}

const START_TIMEOUT_MS = 30_000;

/** Starts the judge on a free port of the loopback interface; it ends with this process, however that ends. */
async function startEmbeddedJudge(model: string): Promise<EmbeddedJudge> {
  const command = fileURLToPath(new URL('../cli/main.js', import.meta.url));
  const child = spawn(
    process.execPath,
    [command, 'judge', '--port', '0', '--json', '--exit-with-parent', '--model', model],
    // A process group of its own: Ctrl-C must reach the run alone, which still needs the judge to finish its iteration.
    { stdio: ['pipe', 'pipe', 'pipe'], detached: true },
  );
  let output = '';
  let errors = '';
  child.stderr.setEncoding('utf8').on('data', (text: string) => (errors += text));
  const url = await new Promise<string>((resolve, reject) => {
    const fail = (why: string): void => {
      clearTimeout(timer);
      reject(
        new EndpointError(`the embedded judge did not start: ${why}`, {
          next: 'Run `editrl judge` by hand to see why, or name another reward.endpoint.',
        }),
      );
    };
    const timer = setTimeout(() => fail('no answer within 30 s'), START_TIMEOUT_MS);
    child.once('error', (error) => fail(error.message));
    child.once('exit', (code) => fail(`it ended with code ${code}. ${errors.trim()}`));
    child.stdout.setEncoding('utf8').on('data', (text: string) => {
      output += text;
      const end = output.indexOf('\n');
      if (end < 0) return;
      clearTimeout(timer);
      resolve((JSON.parse(output.slice(0, end)) as { url: string }).url);
    });
  });
  child.removeAllListeners('exit');
  const exited = new Promise<void>((resolve) => child.once('exit', () => resolve()));
  child.unref();
  (child.stdin as unknown as { unref(): void }).unref();
  (child.stdout as unknown as { unref(): void }).unref();
  (child.stderr as unknown as { unref(): void }).unref();
  return {
    url,
    close: async () => {
      child.stdin.end();
      child.ref();
      child.kill('SIGTERM');
      await exited;
    },
  };
}
