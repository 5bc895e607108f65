/** What a model card is written from. */
import type { ExportedFormat } from '../../policies/tokens/export.js';
import type { RunRecord } from '../../run/record.js';
import type { RunReport } from '../../run/report/read.js';
import type { Origin } from './origin.js';

/** Where the files are when somebody reads the card: in a repository of the Hub, or beside the card. */
export type CardPlace = { readonly repository: string; readonly revision: string | null } | 'this folder';

export interface CardContent {
  readonly record: RunRecord;
  /** The run up to the iteration. */
  readonly report: RunReport;
  readonly iteration: number;
  readonly format: ExportedFormat;
  readonly origin: Origin;
  readonly place: CardPlace;
  /** The config.json of the model, or of the model below an adapter; null if there is none, or it is out of reach. */
  readonly config: Readonly<Record<string, unknown>> | null;
  /** The adapter_config.json; null if the files are no adapter. */
  readonly adapter: Readonly<Record<string, unknown>> | null;
}
