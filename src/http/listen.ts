import type { AddressInfo, Server } from 'node:net';
import { EndpointError } from '../core/errors.js';

/**
 * Lets a server listen, and says on which port; port 0 takes a free one. Raises EndpointError where the address is taken or not ours:
 * `what` is who cannot listen, such as `the gateway`.
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
    throw new EndpointError(`${what} cannot listen there (${code})`, {
      where: `${host}:${port}`,
      next: 'Choose another --port (0 takes a free one) or --host.',
      cause,
    });
  });
  return (server.address() as AddressInfo).port;
}
