/** The dashboard server: a page and its data, on loopback only. Everything except the empty page needs the token. */
import { EditrlError } from '../core/errors.js';
import { parseJson } from '../core/http/json.js';
import { Refusal } from '../core/http/refusal.js';
import { json, type Reply } from '../core/http/body.js';
import { HttpServer, type Handler, type HttpLimits, type Route } from '../core/http/server.js';
import { performAction, actOnSweep } from './actions.js';
import { chosenRuns, comparisonOf, groupsOf, reportFileOf } from './comparison.js';
import { curvesOf, groupCurvesOf } from './curves.js';
import { Broadcast, streamLog } from './events.js';
import { episodesOf, episodesRequest, integerParameter, judgementsOf, imageReply } from './episodes.js';
import { cellGroups, listExperiments, matrixOf, sweepOf } from './experiments.js';
import { GUARD_HEADERS, pageRoutes } from './page_files.js';
import { listKeys, listRuns } from './run_list.js';
import { changesOf, wireChanges } from './changes.js';
import { runOf, runPage } from './run_page.js';
import { isSystemError, recordOf, RunsIndex } from './runs_index.js';
import { SeriesCache } from './series.js';
import type { WireEvent } from './wire.js';

export const DEFAULT_PORT = 4_879;
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

/** Maximum number of rows in one response. */
const MAX_ROWS = 500;
const MAX_CURVES = 64;
const MAX_POINTS = 4_000;
/** Maximum number of ids in one event. With more changes, clients request the whole list. */
const MAX_IDS = 100;

export interface DashboardOptions {
  /** 0 selects a free port. */
  readonly port: number;
  readonly token: string;
  /** The folders that contain runs. */
  readonly folders: readonly string[];
  /** Starts this program's command line: `[node, …/main.js]`. */
  readonly program: readonly string[];
  /** Called with unexpected errors of handlers. */
  readonly onDefect: (error: unknown) => void;
  /** Routes for the page. Default: the compiled page. */
  readonly page?: Readonly<Record<string, Route>>;
}

export interface Dashboard {
  readonly url: string;
  /** Resolves when every run has been read once. */
  readonly read: Promise<void>;
  close(): Promise<void>;
}

/** Raises EndpointError for a port in use, RunError if the page was not built. */
export async function startDashboard(options: DashboardOptions): Promise<Dashboard> {
  const { port, token, folders, onDefect, page = pageRoutes() } = options;
  const events = new Broadcast<WireEvent>();
  const changed = (ids: readonly string[]): void =>
    events.send({ kind: 'changed', ids: ids.slice(0, MAX_IDS), more: ids.length > MAX_IDS });
  const index = new RunsIndex(folders, changed, onDefect);
  const server = new HttpServer({
    name: 'the dashboard',
    host: HOST,
    token,
    ownPages: true,
    routes: { ...page, ...dataRoutes(options, index, events), ...actionRoutes(options, index, events) },
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

function dataRoutes(
  { onDefect }: DashboardOptions,
  index: RunsIndex,
  events: Broadcast<WireEvent>,
): Record<string, Route> {
  const series = new SeriesCache();
  const routes: Readonly<Record<string, Handler>> = {
    '/api/runs': ({ query }) =>
      jsonReply(
        listRuns(index, {
          filter: query.get('filter') ?? '',
          sort: query.get('sort') ?? 'heartbeat',
          descending: query.get('descending') !== 'false',
          offset: integerParameter(query, 'offset', 0, 1e9),
          limit: integerParameter(query, 'limit', 100, MAX_ROWS),
          columns: query.getAll('column'),
        }),
      ),
    '/api/keys': () => jsonReply(listKeys(index)),
    '/api/run': async ({ query }) => jsonReply(await runPage(index, series, runOf(index, query))),
    '/api/curves': async ({ query }) => {
      const request = {
        metrics: query.getAll('metric').slice(0, MAX_CURVES),
        points: integerParameter(query, 'points', 600, MAX_POINTS),
        from: integerParameter(query, 'from', 0, 1e12),
        to: integerParameter(query, 'to', 1e12, 1e12),
      };
      const experiment = query.get('experiment');
      if (experiment !== null) return jsonReply(await groupCurvesOf(series, cellGroups(index, experiment), request));
      if (query.getAll('run').length < 2) return jsonReply(await curvesOf(series, runOf(index, query).paths, request));
      return jsonReply(await groupCurvesOf(series, groupsOf(chosenRuns(index, query)), request));
    },
    '/api/changes': async ({ query }) => {
      const changes = changesOf(runOf(index, query).paths);
      return jsonReply(changes === null ? null : await wireChanges(changes, (name) => name));
    },
    '/api/compare': async ({ query }) => jsonReply(await comparisonOf(chosenRuns(index, query))),
    '/api/report': ({ query }) => reportFileOf(chosenRuns(index, query)),
    '/api/experiments': () => jsonReply(listExperiments(index)),
    '/api/experiment': ({ query }) => jsonReply(matrixOf(index, query.get('id') ?? '')),
    '/api/episodes': ({ query }) => jsonReply(episodesOf(runOf(index, query).paths, episodesRequest(query))),
    '/api/judgements': ({ query }) => jsonReply(judgementsOf(runOf(index, query).paths, query.get('key') ?? '')),
    '/api/log': (call) => {
      const { query } = call;
      const { paths } = runOf(index, query);
      const rank = integerParameter(query, 'rank', -1, 1e6);
      const attempt = integerParameter(query, 'attempt', 0, 1e6);
      const choice = { rank: rank < 0 ? null : rank, attempt: attempt === 0 ? null : attempt };
      streamLog(call, paths, { ...choice, lines: integerParameter(query, 'lines', 500, 100_000) }).catch(onDefect);
      return null;
    },
    '/api/image/': ({ rest, query }) => imageReply(runOf(index, query).paths, rest),
    '/api/events': (call) => {
      events.open(call);
      return null;
    },
  };
  return Object.fromEntries(Object.entries(routes).map(([path, GET]) => [path, { GET: withRefusals(GET) }]));
}

function actionRoutes(
  { program, onDefect }: DashboardOptions,
  index: RunsIndex,
  events: Broadcast<WireEvent>,
): Record<string, Route> {
  const notice = (level: 'info' | 'error', text: string): void => {
    events.send({ kind: 'notice', level, text });
    index.look().catch(onDefect);
  };
  return {
    '/api/act': {
      POST: withRefusals(async ({ read }) => {
        const asked = parseJson(await read());
        const {
          run: id,
          experiment,
          action,
        } = (asked ?? {}) as Partial<Record<'run' | 'experiment' | 'action', unknown>>;
        if (experiment !== undefined) {
          actOnSweep(action, sweepOf(index, typeof experiment === 'string' ? experiment : ''), program, notice);
          return jsonReply({ started: true });
        }
        const run = runOf(index, new URLSearchParams({ run: String(id) }));
        performAction(action, run, recordOf(run.paths), program, notice);
        return jsonReply({ started: true });
      }),
    },
  };
}

/** Reports problems of a run's folder like the command line. */
function withRefusals(handler: Handler): Handler {
  return async (call) => {
    try {
      return await handler(call);
    } catch (error) {
      if (error instanceof Refusal) throw error;
      if (error instanceof EditrlError) throw new Refusal('unavailable', error.toText());
      if (isSystemError(error)) throw new Refusal('unavailable', error.message);
      throw error;
    }
  };
}

/** A JSON response that must not be cached. */
export function jsonReply(body: unknown): Reply {
  return json(200, body, { ...GUARD_HEADERS, 'cache-control': 'no-store' });
}
