/** A run on a W&B server: finds or creates it, with what is already there. */
import { shownSettings } from '../shown_settings.js';
import type { RunRecord } from '../../run/record.js';
import type { WandbClient } from './client.js';
import { extendedJson, parseExtendedJson } from './extended_json.js';
import type { WandbCursor } from './cursor.js';

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
  readonly settings: Readonly<Record<string, unknown>>;
  /** The commit and repository of the code; null if it is not under version control. */
  readonly code: { readonly commit: string; readonly repository: string | null } | null;
  readonly host: string;
  /** The version of this program. */
  readonly version: string;
}

/** The config key that records which run directory a run's lines come from, and what was there before. */
const IDENTITY = 'editrl';

interface Found {
  readonly id: string | null;
  readonly config: Readonly<Record<string, unknown>>;
  readonly summary: Readonly<Record<string, unknown>>;
  readonly base: WandbCursor['base'];
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

/**
 * Finds or creates the run, updates its description, and returns the cursor to continue with: `known` if the server has that run directory's lines,
 * else one that appends all of them to what is there. Raises as the client does.
 */
export async function attach(
  client: WandbClient,
  described: RunDescription,
  { created_at }: Pick<RunRecord, 'created_at'>,
  known: WandbCursor | null,
  baseUrl: string,
): Promise<WandbCursor> {
  const { id, name, project, entity, settings } = described;
  const found = foundIn(await client.graphql('RunResumeStatus', RESUME_QUERY, { name: id, project, entity }));
  const identity = asObject(valueOf(found?.config[IDENTITY]));
  const isOwn = identity['created_at'] === created_at;
  const before = isOwn ? (asBase(identity['before']) ?? NOTHING) : (found?.base ?? NOTHING);
  const base = known === null || found === null ? before : known.base;
  const { data } = await upsert(client, described, found, {
    ...wrapped(asObject(settings)),
    [IDENTITY]: { value: { created_at, before: base } },
  });
  const run = id === name ? {} : { run: id };
  const place = { base_url: baseUrl, entity: data.entity, project: data.project, ...run, created_at, base };
  // A server that has lost the run gets everything again.
  if (known !== null && found !== null) return { ...known, ...place, ended: null };
  return {
    format: 1,
    ...place,
    rows: [],
    events: { lines: 0, bytes: 0 },
    output: { lines: 0, attempt: 1, bytes: 0 },
    summary: extendedJson(isOwn ? {} : { ...found?.summary }),
    iteration: -1,
    media: -1,
    ended: null,
  };
}

const NOTHING: WandbCursor['base'] = { history: 0, events: 0, output: 0, step: 0 };

async function upsert(
  client: WandbClient,
  { id, name, project, entity, group, jobType, tags, notes, code, host, version }: RunDescription,
  found: Found | null,
  config: Readonly<Record<string, unknown>>,
): Promise<{ readonly data: { readonly entity: string; readonly project: string } }> {
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
  };
}

/** Null unless a run has begun there. */
function foundIn(data: Readonly<Record<string, unknown>>): Found | null {
  const bucket = asObject(asObject(data['model'])['bucket']);
  if (!('t' in asJsonObject(bucket['wandbConfig']))) return null;
  const summary = asJsonObject(bucket['summaryMetrics']);
  const history = count(bucket['historyLineCount']);
  const last = asJsonObject(lastOf(bucket['historyTail']))['_step'] ?? summary['_step'];
  return {
    id: text(bucket['id']) || null,
    config: asJsonObject(bucket['config']),
    summary,
    base: {
      history,
      events: count(bucket['eventsLineCount']),
      output: count(bucket['logLineCount']),
      step: history === 0 ? 0 : count(last) + 1,
    },
  };
}

/** W&B's form of a config: each top-level entry is `{value}`. */
function wrapped(settings: Readonly<Record<string, unknown>>): Record<string, unknown> {
  return Object.fromEntries(Object.entries(shownSettings(settings)).map(([key, value]) => [key, { value }]));
}

function asBase(value: unknown): WandbCursor['base'] | null {
  const { history, events, output, step } = asObject(value);
  const all = [history, events, output, step];
  if (!all.every((one) => Number.isInteger(one))) return null;
  return { history: count(history), events: count(events), output: count(output), step: count(step) };
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

function count(value: unknown): number {
  return typeof value === 'number' && Number.isInteger(value) && value >= 0 ? value : 0;
}
