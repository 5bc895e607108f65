/** Connections to other machines, through the proxies that HTTPS_PROXY, HTTP_PROXY and NO_PROXY name. */
import { Agent, EnvHttpProxyAgent, Pool, type Dispatcher } from 'undici';
import { ConfigError } from '../core/errors.js';
import { isLoopback } from './guard.js';

export interface Connector {
  /** The dispatcher for requests to this address. */
  readonly to: (url: string) => Dispatcher;
  /** Closes idle connections and refuses further requests. */
  readonly close: () => Promise<void>;
}

const SCHEMES: readonly string[] = ['http:', 'https:', 'socks5:', 'socks:'];

/** Addresses of this machine never go through a proxy. Raises ConfigError if a variable is not the address of a proxy. */
export function createConnector(
  options: Agent.Options & { readonly connect: { readonly timeout: number } },
): Connector {
  const direct = new Agent(options);
  const [httpProxy, httpsProxy] = ['HTTP_PROXY', 'HTTPS_PROXY'].map(proxyOf);
  if (httpProxy === '' && httpsProxy === '') return { to: () => direct, close: () => direct.close() };
  const proxied = new EnvHttpProxyAgent({
    ...options,
    httpProxy,
    httpsProxy: httpsProxy === '' ? httpProxy : httpsProxy,
    noProxy: variable('NO_PROXY').text,
    // A proxy passes requests to http servers on as they are. Many tunnel to port 443 only.
    proxyTunnel: false,
    proxyTls: options.connect,
    requestTls: options.connect,
    // Without it, undici's own connections to a proxy would have none of the options.
    factory: (origin, given) => new Pool(origin, { ...options, ...given }),
  });
  return {
    to: (url) => (isLoopback(new URL(url).hostname) ? direct : proxied),
    close: async () => {
      await Promise.all([direct.close(), proxied.close()]);
    },
  };
}

/** The value of a variable, spelled in lower or upper case; empty if neither is set. */
function variable(name: string): { readonly name: string; readonly text: string } {
  const found = [name.toLowerCase(), name].find((spelled) => (process.env[spelled] ?? '') !== '') ?? name;
  return { name: found, text: process.env[found] ?? '' };
}

/** The message does not quote the value, which may contain a password. */
function proxyOf(given: string): string {
  const { name, text } = variable(given);
  if (text === '' || (URL.canParse(text) && SCHEMES.includes(new URL(text).protocol))) return text;
  throw new ConfigError('this is not the address of a proxy; allowed: http://, https:// or socks5://, host and port', {
    where: name,
    next: `Write it like http://proxy.example:3128, or run: unset ${name}`,
  });
}
