import type { AddressInfo, Server } from 'node:net';
import { EndpointError } from '../core/errors.js';

const ANOTHER_PORT = 'Choose another --port (0 takes a free one).';
const ANOTHER_HOST = 'Choose another --host, such as 127.0.0.1.';

/** What is wrong with an address, and what to do, by the error's code. */
const REASONS: Readonly<Record<string, readonly [found: string, next: string]>> = {
  EADDRINUSE: ['another program uses this port', ANOTHER_PORT],
  EACCES: ['this user may not use this port', ANOTHER_PORT],
  EADDRNOTAVAIL: ['this machine does not have this address', ANOTHER_HOST],
  ENOTFOUND: ['this host name has no address', ANOTHER_HOST],
};

/**
 * Lets a server listen, and returns its port; port 0 takes a free one. Raises EndpointError if the address is taken or not this machine's.
 * @param what who listens, such as `the gateway`.
 */
export async function listen(server: Server, what: string, port: number, host: string): Promise<number> {
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject);
    server.listen(port, host, () => {
      server.off('error', reject);
      resolve();
    });
  }).catch((cause: unknown) => {
    const code = (cause as NodeJS.ErrnoException).code ?? String(cause);
    const [found, next] = REASONS[code] ?? ['the address cannot be used', `${ANOTHER_PORT} ${ANOTHER_HOST}`];
    throw new EndpointError(`${what} cannot listen here: ${found} (${code})`, {
      where: `${host}:${port}`,
      next,
      cause,
    });
  });
  return (server.address() as AddressInfo).port;
}
