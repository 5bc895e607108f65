/** A run on a W&B server: finds or creates it, with what is already there. */
import type { RunRecord } from '../../run/record.js';
import type { WandbClient } from './client.js';
import { extendedJson, parseExtendedJson } from './extended_json.js';
import type { WandbCursor } from './cursor.js';
import {
  acknowledgedLines,
  skipForeignLines,
  endsWithOurs,
  nextFreeStep,
  type ForeignLines,
  type RowOffset,
  type ServerLines,
} from './places.js';

/** A run's description on the server. */
export interface RunDescription {
  /** Its id. */
  readonly id: string;
  /** Its display name. */
  readonly name: string;
  readonly project: string;
  readonly entity: string;
  readonly group: string | null;
  readonly jobType: string;
  readonly tags: readonly string[];
  readonly notes: string | null;
  /** As other machines may see them. */
  readonly settings: Readonly<Record<string, unknown>>;
  /** The commit and repository of the code; null if it is not under version control. */
  readonly code: { readonly commit: string; readonly repository: string | null } | null;
  readonly host: string;
  /** The version of this program. */
  readonly version: string;
}

/** The config key that records which run directory a run's lines come from, and what was there before. */
const IDENTITY = 'editrl';

interface ServerRun {
  readonly id: string | null;
  readonly config: Readonly<Record<string, unknown>>;
  readonly summary: Readonly<Record<string, unknown>>;
  readonly there: ServerLines;
}

const RESUME_QUERY = `query RunResumeStatus($project: String, $entity: String, $name: String!) {
  model(name: $project, entityName: $entity) {
    id name entity { id name }
    bucket(name: $name, missingOk: true) {
      id name summaryMetrics displayName logLineCount historyLineCount eventsLineCount
      historyTail eventsTail config tags notes wandbConfig(keys: ["t"])
    }
  }
}`;

const UPSERT = `mutation UpsertBucket($id: String, $name: String, $project: String, $entity: String, $groupName: String,
  $displayName: String, $notes: String, $commit: String, $config: JSONString, $host: String, $program: String,
  $repo: String, $jobType: String, $tags: [String!]) {
  upsertBucket(input: {id: $id, name: $name, modelName: $project, entityName: $entity, groupName: $groupName,
    displayName: $displayName, notes: $notes, commit: $commit, config: $config, host: $host, jobProgram: $program,
    jobRepo: $repo, jobType: $jobType, tags: $tags}) {
    bucket { id name displayName description config project { id name entity { id name } } historyLineCount }
    inserted
  }
}`;

/** The team or user that the key's owner works in by default. Raises as the client does. */
export async function defaultEntity(client: WandbClient): Promise<string> {
  const { viewer } = await client.graphql('Viewer', 'query Viewer { viewer { id entity username } }', {});
  return text(asObject(viewer)['entity']);
}

/** A run on the server, ready to be sent to. */
export interface AttachedRun {
  readonly cursor: WandbCursor;
  /** What others wrote there that the lines to come go behind; null if there is nothing that was not known. */
  readonly others: ForeignLines | null;
  /** The whole config that the server was given. */
  readonly config: Readonly<Record<string, unknown>>;
}

/**
 * Finds or creates the run, updates its description, and returns the cursor to continue with: `known` if the server has that run directory's lines,
 * else one that appends all of them to what is there. `iterationOf` gives the iteration of a row of the run. Raises as the client does.
 */
export async function attachRun(
  client: WandbClient,
  described: RunDescription,
  { created_at }: Pick<RunRecord, 'created_at'>,
  known: WandbCursor | null,
  { baseUrl, iterationOf }: { readonly baseUrl: string; readonly iterationOf: (row: number) => number },
): Promise<AttachedRun> {
  const { id, name, project, entity, settings } = described;
  const found = parseServerRun(await client.graphql('RunResumeStatus', RESUME_QUERY, { name: id, project, entity }));
  const isKnown = known !== null && found !== null && isContinuation(known, found);
  const { cursor, others } = isKnown ? continueCursor(known, found) : newCursor(found, created_at, iterationOf);
  const { base, behind } = cursor;
  const identity = { created_at, before: base, ...(behind.length === 0 ? {} : { behind }) };
  const { data, config } = await upsert(client, described, found, {
    ...wrapConfig(settings),
    [IDENTITY]: { value: identity },
  });
  const run = id === name ? {} : { run: id };
  const place = { base_url: baseUrl, entity: data.entity, project: data.project, ...run, created_at };
  return { cursor: { ...cursor, ...place, ended: null }, others, config };
}

const ZERO_BASE: WandbCursor['base'] = { history: 0, events: 0, output: 0, step: 0 };

/** A cursor, and what others wrote. */
type StartCursor = Pick<AttachedRun, 'cursor' | 'others'>;

/** A server that has lost the run gets everything again, also where another was made under its id; a count that lags is no loss. */
function isContinuation(known: WandbCursor, { config, there }: ServerRun): boolean {
  const { created_at } = asObject(valueOf(config[IDENTITY]));
  return created_at === known.created_at || there.history >= acknowledgedLines(known).history;
}

/** A run whose lines the server has. Its summary keeps what was set there, and where others wrote last, theirs counts. */
function continueCursor(known: WandbCursor, { there, summary }: ServerRun): StartCursor {
  const { cursor, others } = skipForeignLines(known, there);
  const own = parseExtendedJson(known.summary) ?? {};
  const merged = others === null ? { ...summary, ...own } : { ...own, ...summary };
  return { cursor: { ...cursor, summary: extendedJson(merged) }, others };
}

/** A run of which nothing is noted here: all its lines go where they were, if the server says where, else behind what is there. */
function newCursor(found: ServerRun | null, created_at: string, iterationOf: (row: number) => number): StartCursor {
  const there = found?.there ?? { ...ZERO_BASE, tail: { iteration: null, step: null, at: null } };
  const identity = asObject(valueOf(found?.config[IDENTITY]));
  const own = identity['created_at'] === created_at ? asBase(identity['before']) : null;
  const placed = own === null ? null : { base: own, behind: asPlaces(identity['behind']) };
  const end = { history: there.history, events: there.events, output: there.output, step: nextFreeStep(there) };
  const isNew = there.history === 0 && there.events === 0 && there.output === 0;
  const isOurs = placed !== null && (there.history <= placed.base.history || endsWithOurs(placed, there, iterationOf));
  // What others wrote to output and load is not noted.
  const shared = placed === null || placed.behind.length === 0 ? {} : { events: there.events, output: there.output };
  const cursor = {
    format: 1 as const,
    ...{ base_url: '', entity: '', project: '', created_at },
    ...(isOurs ? { base: { ...placed.base, ...shared }, behind: placed.behind } : { base: end, behind: [] }),
    rows: [],
    reached: there.history,
    sending: null,
    events: { lines: 0, bytes: 0 },
    output: { lines: 0, attempt: 1, bytes: 0 },
    summary: extendedJson({ ...found?.summary }),
    iteration: -1,
    media: -1,
    ended: null,
  };
  return { cursor, others: isNew || isOurs ? null : end };
}

async function upsert(
  client: WandbClient,
  { id, name, project, entity, group, jobType, tags, notes, code, host, version }: RunDescription,
  found: ServerRun | null,
  config: Readonly<Record<string, unknown>>,
): Promise<{
  readonly data: { readonly entity: string; readonly project: string };
  readonly config: Readonly<Record<string, unknown>>;
}> {
  // The entry `t`, which names the writing program, makes the server treat the run as begun.
  const writer = { cli_version: version, t: { '5': version } };
  const whole = { ...found?.config, ...config, _wandb: { value: writer } };
  const { upsertBucket } = await client.graphql(
    'UpsertBucket',
    UPSERT,
    {
      id: found?.id ?? null,
      name: id,
      project,
      entity,
      groupName: group,
      displayName: name,
      notes,
      commit: code?.commit ?? null,
      config: extendedJson(whole),
      host,
      program: 'editrl',
      repo: code?.repository ?? null,
      jobType,
      // Keeps the tags that somebody set on its page.
      tags: tags.length === 0 && found !== null ? null : tags,
    },
    { racing: true },
  );
  const made = asObject(asObject(asObject(upsertBucket)['bucket'])['project']);
  return {
    data: { entity: text(asObject(made['entity'])['name']) || entity, project: text(made['name']) || project },
    config: whole,
  };
}

/** Null unless a run has begun there. */
function parseServerRun(data: Readonly<Record<string, unknown>>): ServerRun | null {
  const bucket = asObject(asObject(data['model'])['bucket']);
  if (!('t' in asJsonObject(bucket['wandbConfig']))) return null;
  const summary = asJsonObject(bucket['summaryMetrics']);
  const last = asJsonObject(lastOf(bucket['historyTail']));
  return {
    id: text(bucket['id']) || null,
    config: asJsonObject(bucket['config']),
    summary,
    there: {
      history: count(bucket['historyLineCount']),
      events: count(bucket['eventsLineCount']),
      output: count(bucket['logLineCount']),
      tail: {
        iteration: numberOf(last['iteration']),
        step: numberOf(last['_step'] ?? summary['_step']),
        at: numberOf(last['_timestamp']),
      },
    },
  };
}

/** W&B's form of a config: each top-level entry is `{value}`. */
function wrapConfig(settings: Readonly<Record<string, unknown>>): Record<string, unknown> {
  return Object.fromEntries(Object.entries(settings).map(([key, value]) => [key, { value }]));
}

function asBase(value: unknown): WandbCursor['base'] | null {
  const { history, events, output, step } = asObject(value);
  const all = [history, events, output, step];
  if (!all.every((one) => Number.isInteger(one))) return null;
  return { history: count(history), events: count(events), output: count(output), step: count(step) };
}

function asPlaces(value: unknown): RowOffset[] {
  const all = Array.isArray(value) ? (value as unknown[]).map(asObject) : [];
  return all.map(({ row, history, step }) => ({ row: count(row), history: count(history), step: count(step) }));
}

function valueOf(entry: unknown): unknown {
  return asObject(entry)['value'];
}

function asObject(value: unknown): Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Record<string, unknown>) : {};
}

/** JSON within JSON: a text that contains an object. */
function asJsonObject(value: unknown): Readonly<Record<string, unknown>> {
  return typeof value === 'string' ? (parseExtendedJson(value) ?? {}) : asObject(value);
}

/** The last of a list of lines, which arrives as a text. */
function lastOf(tail: unknown): unknown {
  try {
    return typeof tail === 'string' ? (JSON.parse(tail) as unknown[]).at(-1) : undefined;
  } catch {
    return undefined;
  }
}

function text(value: unknown): string {
  return typeof value === 'string' ? value : '';
}

function numberOf(value: unknown): number | null {
  return typeof value === 'number' ? value : null;
}

function count(value: unknown): number {
  return typeof value === 'number' && Number.isInteger(value) && value >= 0 ? value : 0;
}
