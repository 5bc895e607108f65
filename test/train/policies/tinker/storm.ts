/** Training through a server that fails all the time, with as many failures as are wanted. */
import { RandomStream } from '../../../../src/core/random.js';
import type { StubRequest, StubTinker, TinkerFault } from './stub_tinker.js';
import type { Fault } from '../../../support/stub_server.js';

/** What may happen to any request. */
const ANYWHERE: readonly (Fault | TinkerFault)[] = [
  { kind: 'lost' },
  { kind: 'repeated' },
  { kind: 'late' },
  { kind: 'cut' },
  { kind: 'half' },
  { kind: 'status', status: 429 },
  { kind: 'status', status: 503 },
  { kind: 'status', status: 500 },
];
/** A server that answers a submission by these has not taken it, or has lost it before it promised anything. */
const TO_POLLS: readonly (Fault | TinkerFault)[] = [
  { kind: 'status', status: 408, body: { type: 'try_again' } },
  { kind: 'forgotten' },
  { kind: 'unknown' },
];
/** A client gives up what fails more often. */
const MOST_IN_A_ROW = 2;
/** Requests from one promise that is forgotten to the next. */
const FORGOTTEN_EVERY = 15;

/** Lets requests fail with this probability; counts by kind of fault. */
export function storm(stub: StubTinker, share: number): Map<string, number> {
  const random = new RandomStream('storm', 1);
  const counts = new Map<string, number>();
  const failed = new Map<string, number>();
  let [requests, forgotten] = [0, 0];
  stub.fault = (request: StubRequest) => {
    requests += 1;
    const { path, body } = request;
    const key = `${path} ${body.toString('base64')}`;
    const times = failed.get(key) ?? 0;
    if (times >= MOST_IN_A_ROW || random.uniform() > share) return null;
    const possible = path === '/retrieve_future' ? [...ANYWHERE, ...TO_POLLS] : ANYWHERE;
    const fault = possible[random.integer(possible.length)];
    if (fault.kind === 'forgotten' || fault.kind === 'unknown') {
      if (requests - forgotten < FORGOTTEN_EVERY) return null;
      forgotten = requests;
    }
    failed.set(key, times + 1);
    const name = 'status' in fault ? String(fault.status) : fault.kind;
    counts.set(name, (counts.get(name) ?? 0) + 1);
    return fault;
  };
  return counts;
}
