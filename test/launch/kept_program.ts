/** A small server for what keeps one, as a process of its own. */
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { get } from 'node:http';
import { join } from 'node:path';
import { vi } from 'vitest';

/** Answers with its pid; `/die` kills it, and where the file `broken` lies beside it, it does not start. */
const text = `import { appendFileSync, existsSync } from 'node:fs';
import { createServer } from 'node:http';
import { join } from 'node:path';
const beside = (name) => join(import.meta.dirname, name);
appendFileSync(beside('starts'), process.pid + '\\n');
if (existsSync(beside('broken'))) {
  console.error('there is no memory');
  process.exit(7);
}
const server = createServer((request, response) => {
  if (request.url === '/die') process.kill(process.pid, 'SIGKILL');
  else response.end(String(process.pid));
});
process.on('disconnect', () => process.exit(0));
process.on('message', (_message, socket) => {
  if (socket !== undefined) server.emit('connection', socket), socket.resume();
  process.send('taken');
});
process.send('up');
`;

export class KeptProgram {
  readonly path: string;

  constructor(private readonly dir: string) {
    this.path = join(dir, 'server.mjs');
    writeFileSync(this.path, text);
  }

  /** From now on it does not start. */
  breakIt(): void {
    writeFileSync(join(this.dir, 'broken'), '');
  }

  /** Its processes so far, oldest first. */
  get pids(): number[] {
    const file = join(this.dir, 'starts');
    return existsSync(file) ? readFileSync(file, 'utf8').trim().split('\n').map(Number) : [];
  }
}

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

export async function until(holds: () => boolean): Promise<void> {
  await vi.waitUntil(holds, { timeout: 50_000, interval: 5 });
}
