/** Finds the model that a run started from, and its license. */
import { join } from 'node:path';
import { parseDocument } from 'yaml';
import { EditrlError } from '../../../core/errors.js';
import { readPlain } from '../../../core/plain_file.js';
import { cachedSnapshot, hubBaseOf, hubModelAt } from '../../../models/hub/cache.js';
import { readJson } from '../../../models/files.js';
import { hubKey } from '../../../models/reference.js';
import { ADAPTER_CONFIG_FILE, holdsAdapter } from '../../../models/adapters/files.js';
import { RunPaths } from '../../paths.js';
import { readRecord, type RunRecord } from '../../record.js';
import type { HubReference, ModelReference } from '../../../config/schema/model.js';

/** The name of the model card in every folder. */
export const CARD_FILE = 'README.md';

/** A license in the Hub's form: its identifier, and the name and address of a license that the Hub does not list. */
export interface License {
  readonly license: string | readonly string[];
  readonly license_name?: string;
  readonly license_link?: string;
}

export interface Origin {
  /** The model that the run started from, according to its settings or its adapter. Null for random weights. */
  readonly start: ModelReference | null;
  /** The Hub model at the end of the chain of runs and folders. Null if there is none, or if the chain is broken. */
  readonly hub: string | null;
  /** The folder or Hub name that an adapter's file names as its base. Null for whole weights. */
  readonly adapterBase: string | null;
  /** Whether `adapterBase` is a model of the Hub. */
  readonly isAdapterOnHub: boolean;
  /** The license on the nearest card in the chain. Null if no card states one. */
  readonly license: License | null;
}

/** The end of the chain: a Hub model, if the chain ends there, and the license on its card. */
type ChainEnd = Pick<Origin, 'hub' | 'license'>;
const NOTHING: ChainEnd = { hub: null, license: null };

/**
 * Follows a run's start through other runs and folders. Uses no network: cards of Hub models are read from the cache.
 */
export function originOf(paths: RunPaths, record: RunRecord, checkpoint: string): Origin {
  const base = adapterBase(checkpoint);
  const start = startOf(record) ?? base;
  const onHub = hubBaseOf(checkpoint);
  const chain = followStart(start, { paths, record, visited: new Set([paths.runName]) });
  const below: ChainEnd =
    onHub === null ? chain : { hub: onHub.hub, license: chain.license ?? cardOfHub(onHub, record) };
  return { start, ...below, adapterBase: base, isAdapterOnHub: onHub !== null };
}

interface ChainLink {
  readonly paths: RunPaths;
  readonly record: RunRecord;
  /** Names of the runs visited so far. */
  readonly visited: ReadonlySet<string>;
}

function followStart(reference: ModelReference | null, { paths, record, visited }: ChainLink): ChainEnd {
  if (reference === null) return NOTHING;
  if (typeof reference === 'string') return originOfFolder(reference, record);
  if ('hub' in reference) return { hub: reference.hub, license: cardOfHub(reference, record) };
  const { run } = reference;
  if (visited.has(run)) return NOTHING;
  const parent = new RunPaths(paths.baseExpDir, run);
  const parentRecord = nullOnError(() => readRecord(parent));
  if (parentRecord === null) return NOTHING;
  return followStart(startOf(parentRecord), {
    paths: parent,
    record: parentRecord,
    visited: new Set([...visited, run]),
  });
}

function originOfFolder(folder: string, record: RunRecord): ChainEnd {
  const named = nullOnError(() => hubBaseOf(folder)) ?? hubModelAt(folder);
  const card = frontMatter(join(folder, CARD_FILE));
  const stated = card['base_model'];
  const hub = named?.hub ?? (typeof stated === 'string' && HUB_NAME.test(stated) ? stated : null);
  return { hub, license: licenseIn(card) ?? (named === null ? null : cardOfHub(named, record)) };
}

const HUB_NAME = /^[\w.-]+\/[\w.-]+$/;

function startOf({ settings }: RunRecord): ModelReference | null {
  const { model } = (settings['policy'] ?? {}) as { readonly model?: ModelReference | null };
  return model ?? null;
}

function adapterBase(checkpoint: string): string | null {
  if (!holdsAdapter(checkpoint)) return null;
  const { base_model_name_or_path: base } = readJson(join(checkpoint, ADAPTER_CONFIG_FILE)) as Record<string, unknown>;
  return typeof base === 'string' ? base : null;
}

function cardOfHub(reference: HubReference, { models }: RunRecord): License | null {
  const folder = cachedSnapshot(reference, models?.[hubKey(reference)] ?? null);
  return folder === null ? null : licenseIn(frontMatter(join(folder, CARD_FILE)));
}

/**
 * The front matter of a card. Empty if there is none or it is not YAML, because cards are written for people and
 * nothing depends on them.
 */
function frontMatter(file: string): Readonly<Record<string, unknown>> {
  const text = nullOnError(() => readPlain(file))?.toString('utf8') ?? '';
  const head = /^\uFEFF?---\r?\n([\s\S]*?)\r?\n---/.exec(text)?.[1];
  if (head === undefined) return {};
  const document = parseDocument(head);
  const value: unknown = document.errors.length > 0 ? null : document.toJS();
  return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : {};
}

function licenseIn(card: Readonly<Record<string, unknown>>): License | null {
  const { license, license_name: name, license_link: link } = card;
  const isStated =
    typeof license === 'string' || (Array.isArray(license) && license.every((one) => typeof one === 'string'));
  if (!isStated || license.length === 0) return null;
  return {
    license: license as License['license'],
    ...(typeof name === 'string' ? { license_name: name } : {}),
    ...(typeof link === 'string' ? { license_link: link } : {}),
  };
}

/** Files that cannot be read end the chain, because an export does not depend on the run's origin. */
function nullOnError<T>(read: () => T | null): T | null {
  try {
    return read();
  } catch (error) {
    if (error instanceof EditrlError) return null;
    throw error;
  }
}
