/** TRL's arguments that choose a loss, for the flat dialect of edit_response. */
import { getPath } from '../../schema/paths.js';
import type { DialectSource } from './dialect.js';

type LossKey = 'loss_type' | 'importance_sampling_level' | 'epsilon_high';

/** A file of the dialect, as far as its loss is concerned. */
interface LossFile {
  readonly raw: Readonly<Record<string, unknown>>;
  readonly value: Readonly<Record<string, unknown>>;
  readonly source: DialectSource;
  put(path: string, value: unknown, name?: LossKey): void;
  wrong(name: LossKey, found: unknown, allowed: string): void;
}

/** By TRL's `loss_type`. An iteration without minibatches has the loss of 'dapo' by default. */
const AGGREGATIONS: ReadonlyMap<unknown, string | null> = new Map<unknown, string | null>([
  ['grpo', 'answer'],
  ['bnpo', 'token'],
  ['dr_grpo', 'dr_grpo'],
  ['dapo', null],
  ['cispo', 'dapo'],
]);

/** By TRL's `importance_sampling_level`. */
const RATIOS: ReadonlyMap<unknown, string> = new Map<unknown, string>([
  ['token', 'token'],
  ['sequence', 'answer'],
]);

/** The keys of a table, as a message names them. */
export const listed = (known: ReadonlyMap<unknown, unknown>): string =>
  [...known.keys()].map((one) => JSON.stringify(one)).join(', ');

/** Whether the file or a change of it asks for more than one optimizer step an iteration. */
function hasSeveralSteps({ value, source }: LossFile): boolean {
  const keys = ['algorithm.minibatches', 'algorithm.inner_epochs'];
  return keys.some((key) => {
    const found = getPath(value, key) ?? 1;
    return found !== 1 || source.changes.some(({ path }) => path === key);
  });
}

/** TRL's CISPO cuts ratios at `epsilon_high` itself, here at 1 + clip_range_high. */
export function loss(file: LossFile, warnings: string[]): void {
  const { loss_type: type = 'dapo', importance_sampling_level: level = 'token', epsilon_high: high = null } = file.raw;
  const aggregation = AGGREGATIONS.get(type);
  const ratio = RATIOS.get(level);
  if (aggregation === undefined) return file.wrong('loss_type', type, listed(AGGREGATIONS));
  if (ratio === undefined) return file.wrong('importance_sampling_level', level, listed(RATIOS));
  if (aggregation !== null) file.put('algorithm.aggregation', aggregation, 'loss_type');
  if (!hasSeveralSteps(file)) {
    const idle = [
      ...(type === 'cispo' ? ['loss_type'] : []),
      ...(ratio === 'token' ? [] : ['importance_sampling_level']),
    ];
    const named = [...idle, ...(high === null ? [] : ['epsilon_high'])];
    if (named.length === 0) return;
    warnings.push(
      `${named.join(', ')}: without effect in an iteration of one optimizer step, in which every ratio is 1; algorithm.minibatches and algorithm.inner_epochs have several`,
    );
    return;
  }
  if (type === 'dapo' && 'loss_type' in file.raw) file.put('algorithm.aggregation', 'dapo', 'loss_type');
  if (ratio !== 'token') file.put('algorithm.ratio', ratio, 'importance_sampling_level');
  const isCispo = type === 'cispo';
  if (isCispo) file.put('algorithm.surrogate', 'cispo', 'loss_type');
  if (high === null && !isCispo) return;
  if (isCispo && (typeof high !== 'number' || high <= 1)) {
    return file.wrong('epsilon_high', high, "with loss_type 'cispo' the largest ratio, a number above 1");
  }
  file.put('algorithm.clip_range_high', isCispo ? Number(high) - 1 : high, 'epsilon_high');
}
