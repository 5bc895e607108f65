/** A small server for what keeps one, as a process of its own. */
import { existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { get } from 'node:http';
import { join } from 'node:path';
import { vi } from 'vitest';
import { urlOfJson, type Readiness, type ServerSpecification } from '../../../src/launch/servers/managed.js';
import { freePort } from '../../../src/launch/processes/supervise.js';

/**
 * Answers with its pid, and at `/told` with the token and the arguments that it was given; `/die` kills it. It listens on the port behind `--port`. If the
 * file `broken` lies beside it, it does not start; with `mute` it never comes up; with `deaf` it does not end when it is asked to.
 */
const text = `import { appendFileSync, existsSync } from 'node:fs';
import { createServer } from 'node:http';
import { join } from 'node:path';
const beside = (name) => existsSync(join(import.meta.dirname, name));
appendFileSync(join(import.meta.dirname, 'starts'), process.pid + '\\n');
if (beside('broken')) {
  console.error('there is no memory');
  process.exit(7);
}
if (beside('deaf')) process.on('SIGTERM', () => console.log('not yet'));
const server = createServer((request, response) => {
  if (request.url === '/die') process.kill(process.pid, 'SIGKILL');
  else if (request.url === '/told') response.end(JSON.stringify([process.env.EDITRL_SERVER_TOKEN, process.argv]));
  else response.end(String(process.pid));
});
setInterval(() => undefined, 1000);
const port = Number(process.argv[process.argv.indexOf('--port') + 1]);
const up = () => console.log(JSON.stringify({ url: 'http://127.0.0.1:' + server.address().port }));
if (!beside('mute')) server.listen(port, '127.0.0.1', up);
`;

const MANNERS = ['broken', 'mute', 'deaf'] as const;
type Manner = (typeof MANNERS)[number];

export class KeptProgram {
  readonly path: string;

  constructor(private readonly dir: string) {
    this.path = join(dir, 'server.mjs');
    writeFileSync(this.path, text);
  }

  /** What starts it, with an address of some kind. */
  async specification(kind: Readiness['kind']): Promise<ServerSpecification> {
    const reached = await ways[kind]();
    return {
      name: 'the judge',
      where: 'reward.endpoint',
      next: 'Look at it.',
      readiness: reached,
      command: (port) => [process.execPath, this.path, '--port', String(port)],
      startTimeoutS: 30,
      shownLines: 5,
      log: join(this.dir, 'logs/server.log'),
    };
  }

  /** What it printed, as it stands in its log. */
  get logged(): string {
    return readFileSync(join(this.dir, 'logs/server.log'), 'utf8');
  }

  /** From now on it is like that, until it is mended. */
  spoil(how: Manner): void {
    writeFileSync(join(this.dir, how), '');
  }

  mend(): void {
    for (const how of MANNERS) rmSync(join(this.dir, how), { force: true });
  }

  /** Its processes so far, oldest first: of whole lines alone, since one that has begun its line may be ended before it has written it. */
  get pids(): number[] {
    const file = join(this.dir, 'starts');
    return existsSync(file) ? readFileSync(file, 'utf8').split('\n').slice(0, -1).map(Number) : [];
  }
}

const ways: { readonly [K in Readiness['kind']]: () => Promise<Readiness> } = {
  printed: () => Promise.resolve({ kind: 'printed', urlIn: urlOfJson }),
  probed: async () => ({
    kind: 'probed',
    port: await freePort(),
    probe: async (url, _token, over) => {
      while (!over.aborted && (await ask(url).catch(() => null)) === null) {
        await new Promise((resolve) => setTimeout(resolve, 5));
      }
    },
  }),
};

/** What a request over a connection of its own is answered; rejects where it is refused or cut off. */
export function ask(url: string): Promise<string> {
  return new Promise((resolve, reject) => {
    get(url, { agent: false }, (response) => {
      let body = '';
      response.setEncoding('utf8').on('data', (part: string) => (body += part));
      response.once('end', () => resolve(body)).once('error', reject);
    }).once('error', reject);
  });
}

/** Resolves once the address answers. */
export async function answer(url: string): Promise<string> {
  for (;;) {
    const found = await ask(url).catch(() => null);
    if (found !== null) return found;
  }
}

export async function until(holds: () => boolean): Promise<void> {
  await vi.waitUntil(holds, { timeout: 50_000, interval: 5 });
}
