/** Finds or creates a run on a W&B server, and records in `track/wandb.json` how much the server has. */
import { z } from 'zod';
import { RunError } from '../../../core/errors.js';
import { writeFileAtomic } from '../../../core/files.js';
import type { RunPaths } from '../../paths.js';
import type { RunRecord } from '../../record.js';
import { readJson } from '../../state.js';
import { markSchema } from '../rows.js';
import { requireRun } from '../shared.js';
import { extendedJson, parseExtendedJson, type WandbClient } from './client.js';

/** A run's description on the server. */
export interface RunDescription {
  /** The preferred id. Another one is used if it contains another writer's lines. */
  readonly id: string;
  /** Its display name. */
  readonly name: string;
  readonly project: string;
  readonly entity: string;
  readonly group: string | null;
  readonly jobType: string;
  readonly tags: readonly string[];
  readonly notes: string | null;
  /** The redacted settings. */
  readonly settings: Readonly<Record<string, unknown>>;
  /** The commit and repository of the code. Null without version control. */
  readonly code: { readonly commit: string; readonly repository: string | null } | null;
  readonly host: string;
  /** The version of this program. */
  readonly version: string;
}

/** The config key that records which run directory a run's lines come from. */
const IDENTITY = 'editrl';

interface ServerRun {
  readonly id: string | null;
  readonly config: Readonly<Record<string, unknown>>;
  readonly summary: Readonly<Record<string, unknown>>;
  /** Whether it has any line of history, load or output. */
  readonly hasLines: boolean;
  /** The last row of its history. Null if there is none or the server does not return it. */
  readonly lastRow: { readonly iteration: unknown; readonly step: unknown } | null;
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

/** The default team or user of the key's owner. Raises the errors of the client. */
export async function defaultEntity(client: WandbClient): Promise<string> {
  const { viewer } = await client.graphql('Viewer', 'query Viewer { viewer { id entity username } }', {});
  return text(asObject(viewer)['entity']);
}

/** A run on the server, ready to be sent to. */
export interface AttachedRun {
  readonly cursor: WandbCursor;
  /** The preferred id if it was not available, because it contains another writer's lines. Else null. */
  readonly taken: string | null;
}

/**
 * Finds or creates the run and updates its description.
 * Returns the cursor to continue from: `known` if the server has that run directory's lines, else a cursor at the
 * beginning. A run with another writer's lines stays unchanged, and this run gets the next free id. Raises the errors
 * of the client.
 */
export async function attachRun(
  client: WandbClient,
  described: RunDescription,
  { created_at }: Pick<RunRecord, 'created_at'>,
  known: WandbCursor | null,
  baseUrl: string,
): Promise<AttachedRun> {
  const { id: requestedId, project, entity, settings } = described;
  const find = async (name: string): Promise<ServerRun | null> =>
    parseServerRun(await client.graphql('RunResumeStatus', RESUME_QUERY, { name, project, entity }));
  const first = known?.run ?? requestedId;
  let run = first;
  let found = await find(run);
  for (let n = 2; found !== null && hasForeignLines(found, created_at); n++) {
    run = `${requestedId.slice(0, MAX_ID)}-${n}`;
    found = await find(run);
  }
  const place = await upsert(client, { ...described, id: run }, found, {
    ...wrapConfig(settings),
    [IDENTITY]: { value: { created_at } },
  });
  const own = found !== null && creationOf(found) === created_at && known?.run === run ? known : null;
  const cursor = {
    ...(own ?? NOTHING_SENT),
    ...place,
    ...{ base_url: baseUrl, asked: requestedId, run, created_at },
    // The summary keeps values that others have set.
    summary: extendedJson({ ...found?.summary, ...(own === null ? {} : parseExtendedJson(own.summary)) }),
    ended: null,
  };
  return { cursor, taken: run === first ? null : first };
}

/** Leaves room for a number within W&B's limit of 128 characters. */
const MAX_ID = 120;

const NOTHING_SENT = {
  format: 1 as const,
  rows: [],
  events: { lines: 0, bytes: 0 },
  output: { lines: 0, attempt: 1, bytes: 0 },
  iteration: -1,
  media: -1,
};

/** When the run directory was created that a server's run came from. Undefined if another program began the run. */
function creationOf({ config }: ServerRun): unknown {
  return asObject(valueOf(config[IDENTITY]))['created_at'];
}

/** Whether the run has lines of another run directory. In its own rows, the step is the iteration. */
function hasForeignLines(found: ServerRun, created_at: string): boolean {
  const { hasLines, lastRow } = found;
  if (creationOf(found) !== created_at) return hasLines;
  return lastRow !== null && (lastRow.iteration === undefined || lastRow.iteration !== lastRow.step);
}

async function upsert(
  client: WandbClient,
  { id, name, project, entity, group, jobType, tags, notes, code, host, version }: RunDescription,
  found: ServerRun | null,
  config: Readonly<Record<string, unknown>>,
): Promise<Pick<WandbCursor, 'entity' | 'project'>> {
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
      // Keeps tags that someone has set on the run's page.
      tags: tags.length === 0 && found !== null ? null : tags,
    },
    { racing: true },
  );
  const made = asObject(asObject(asObject(upsertBucket)['bucket'])['project']);
  return { entity: text(asObject(made['entity'])['name']) || entity, project: text(made['name']) || project };
}

/** Null unless the run exists and has begun. */
function parseServerRun(data: Readonly<Record<string, unknown>>): ServerRun | null {
  const bucket = asObject(asObject(data['model'])['bucket']);
  if (!('t' in asJsonObject(bucket['wandbConfig']))) return null;
  const summary = asJsonObject(bucket['summaryMetrics']);
  const last = asJsonObject(lastOf(bucket['historyTail']));
  return {
    id: text(bucket['id']) || null,
    config: asJsonObject(bucket['config']),
    summary,
    hasLines: ['historyLineCount', 'eventsLineCount', 'logLineCount'].some((count) => Number(bucket[count]) > 0),
    lastRow:
      Object.keys(last).length === 0 ? null : { iteration: last['iteration'], step: last['_step'] ?? summary['_step'] },
  };
}

/** W&B's form of a config: each top-level entry is `{value}`. */
function wrapConfig(settings: Readonly<Record<string, unknown>>): Record<string, unknown> {
  return Object.fromEntries(Object.entries(settings).map(([key, value]) => [key, { value }]));
}

function valueOf(entry: unknown): unknown {
  return asObject(entry)['value'];
}

function asObject(value: unknown): Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Record<string, unknown>) : {};
}

/** Parses JSON within JSON: a text that contains an object. */
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

const cursor = z.object({
  format: z.literal(1),
  /** The run's place on W&B. `entity` has the server's spelling. */
  base_url: z.string(),
  entity: z.string(),
  project: z.string(),
  /** The preferred id, and the actual id. They differ if another writer uses the first. */
  asked: z.string(),
  run: z.string(),
  /** When the run directory was created. A run recreated under the same name is a different one. */
  created_at: z.string(),
  /** Rows of `metrics.jsonl` that the server has. */
  rows: z.array(markSchema),
  /** Lines of `track/system.jsonl` that the server has. */
  events: z.object({ lines: z.int(), bytes: z.int() }),
  /** Lines of output that the server has, and their end in an attempt's log. */
  output: z.object({ lines: z.int(), attempt: z.int(), bytes: z.int() }),
  /** The last value of each metric, in W&B's dialect of JSON, which allows numbers that are not finite. */
  summary: z.string(),
  /** The last iteration whose row the server has. -1 before the first. */
  iteration: z.int(),
  /** The last iteration whose images and tables the server has. -1 before the first. */
  media: z.int(),
  /** The exit code that was sent to W&B. Null while the run is running. */
  ended: z.int().nullable(),
});

export type WandbCursor = z.output<typeof cursor>;

/** Null if nothing has been sent. Raises RunError for a file of another version. */
export function readWandbCursor(paths: RunPaths): WandbCursor | null {
  const value = readJson(paths.wandb);
  if (value === null) return null;
  const parsed = cursor.safeParse(value);
  if (parsed.success) return parsed.data;
  const [{ path, message }] = parsed.error.issues;
  throw new RunError(`invalid W&B upload state: ${path.join('.')}: ${message}`, {
    where: paths.wandb,
    next: 'Use the version that wrote it, or remove the file. All rows are then uploaded again in place.',
  });
}

/** Raises RunError on a disk error, or when the run directory was removed, because it must not be recreated. */
export function writeWandbCursor(paths: RunPaths, value: WandbCursor): void {
  requireRun(paths);
  writeFileAtomic(paths.wandb, `${JSON.stringify(value)}\n`);
}
