/** The dashboard: a page and what it asks for, on loopback alone. Everything but the empty page needs the token. */
import { json, type Reply } from '../http/reply.js';
import { HttpServer, type Call, type Handler, type HttpLimits, type Route } from '../http/server.js';
import { Broadcast } from './events.js';
import { GUARD_HEADERS, pageRoutes } from './page_files.js';
import { listKeys, listRuns, wholeOf } from './run_list.js';
import { RunsIndex } from './runs_index.js';
import type { WireEvent } from './wire.js';

export const DEFAULT_PORT = 4_878;
const HOST = '127.0.0.1';
const MIB = 1024 * 1024;

const limits: HttpLimits = {
  bodyBytes: 64 * 1024,
  heldBytes: 512 * MIB,
  connections: 256,
  headersTimeoutMs: 10_000,
  requestTimeoutMs: 30_000,
  bodyWindowMs: 10_000,
  timeoutCheckMs: 5_000,
  drainTimeoutMs: 2_000,
};

/** Rows of one answer. */
const MOST_ROWS = 500;
/** Ids of one event; whoever hears of more asks for the whole list. */
const MOST_IDS = 100;

export interface DashboardOptions {
  /** 0 takes a free one. */
  readonly port: number;
  readonly token: string;
  /** The folders that runs lie in. */
  readonly folders: readonly string[];
  /** What starts this program's command line: `[node, …/main.js]`. */
  readonly program: readonly string[];
  /** Told of what a handler raised and may not raise. */
  readonly onDefect: (error: unknown) => void;
}

export interface Dashboard {
  readonly url: string;
  /** Resolves when every run was read once. */
  readonly read: Promise<void>;
  close(): Promise<void>;
}

/** Raises EndpointError for a port that is taken, RunError where the page was not built. */
export async function startDashboard({ port, token, folders, onDefect }: DashboardOptions): Promise<Dashboard> {
  const events = new Broadcast<WireEvent>();
  const index = new RunsIndex(folders, (ids) =>
    events.send({ kind: 'changed', ids: ids.slice(0, MOST_IDS), more: ids.length > MOST_IDS }),
  );
  const server = new HttpServer({
    name: 'the dashboard',
    host: HOST,
    token,
    ownPages: true,
    routes: { ...pageRoutes(), ...dataRoutes(index, events) },
    limits,
    onDefect,
  });
  const url = await server.listen(port);
  const read = index.start();
  return {
    url,
    read,
    close: async () => {
      index.close();
      events.close();
      await server.drain();
    },
  };
}

function dataRoutes(index: RunsIndex, events: Broadcast<WireEvent>): Record<string, Route> {
  const routes: Readonly<Record<string, Handler>> = {
    '/api/runs': ({ query }) =>
      answer(
        listRuns(index, {
          filter: query.get('filter') ?? '',
          sort: query.get('sort') ?? 'heartbeat',
          descending: query.get('descending') !== 'false',
          offset: wholeOf(query, 'offset', 0, 1e9),
          limit: wholeOf(query, 'limit', 100, MOST_ROWS),
          columns: query.getAll('column'),
        }),
      ),
    '/api/keys': () => answer(listKeys(index)),
    '/api/events': (call) => {
      events.open(call);
      return null;
    },
  };
  return Object.fromEntries(Object.entries(routes).map(([path, GET]) => [path, { GET }]));
}

/** JSON that no cache keeps. */
export function answer(body: unknown): Reply {
  return json(200, body, { ...GUARD_HEADERS, 'cache-control': 'no-store' });
}

export type { Call };
