/** The data at the head of a model card, in the form that the Hub and huggingface_hub's ModelCard read. */
import { stringify } from 'yaml';
import { isAbsolute, basename, relative } from 'node:path';
import type { Estimate } from '../../core/estimate.js';
import { recipeNamed } from '../../config/recipes.js';
import { showScale } from '../../run/report/numbers.js';
import type { BeforeAfter } from '../../run/report/read.js';
import type { RunRecord } from '../../run/record.js';
import type { CardContent } from './content.js';
import { loaderOf } from './library.js';

/**
 * YAML without its fences. A licence is only ever the one that the base's card states. Where none is known the key is left out, and the Hub shows none:
 * `other` would claim terms that nobody has written. `base_model` is a model of the Hub, since the Hub accepts nothing else; an adapter over other
 * weights has none, because loading it over the Hub's model would be wrong.
 */
export function frontMatter(content: CardContent): string {
  const { record, adapter, origin } = content;
  const recipe = recipeNamed(record.settings['task']);
  const pipeline = recipe?.trainer === 'this program' ? recipe.pipeline : null;
  const base = adapter !== null && !origin.isAdapterOnHub ? null : origin.hub;
  const results = modelIndexResults(content, pipeline ?? String(record.settings['task']));
  const data = {
    ...origin.licence,
    library_name: loaderOf(content).library,
    ...(pipeline === null ? {} : { pipeline_tag: pipeline }),
    ...(base === null ? {} : { base_model: base, base_model_relation: adapter !== null ? 'adapter' : 'finetune' }),
    tags: ['editrl', String(record.settings['task']), ...algorithmTags(record)],
    ...(results.length === 0 ? {} : { 'model-index': [{ name: record.run_name, results }] }),
  };
  return stringify(data, { lineWidth: 0 });
}

const ALGORITHMS: Readonly<Record<string, readonly string[]>> = {
  grpo: ['reinforcement-learning', 'grpo'],
  ppo: ['reinforcement-learning', 'ppo'],
};

function algorithmTags({ settings }: RunRecord): readonly string[] {
  const { type } = (settings['algorithm'] ?? {}) as { readonly type?: unknown };
  if (typeof type !== 'string') return [];
  return Object.hasOwn(ALGORITHMS, type) ? ALGORITHMS[type] : [type];
}

interface Metric {
  readonly type: string;
  readonly name: string;
  readonly value: number;
  /** The form has no field for an error, or for what it was before. */
  readonly args?: { readonly standard_error?: number; readonly before?: number };
}

/** Entries of `results`: over all held-out data together, and for each set where there are several. */
function modelIndexResults({ record, report }: CardContent, task: string): object[] {
  const { sampled, greedy, measures, loss, sets, scale } = report.heldout;
  const reward = scale === null || scale.most === null ? 'reward' : `reward ${showScale(scale)}`;
  const [all, ...more] = heldOutPaths(record);
  if (all === undefined) return [];
  const entry = (name: string, metrics: readonly (Metric | null)[]): object[] => {
    const found = metrics.filter((metric) => metric !== null);
    const dataset = { type: name, name, split: 'validation' };
    return found.length === 0 ? [] : [{ task: { type: task }, dataset, metrics: found }];
  };
  const mean = (value: number | null): Estimate | null => (value === null ? null : { mean: value, stderr: null });
  const { before, after } = loss;
  const perSet = Object.entries(sets);
  return [
    ...entry([all, ...more].join(' + '), [
      metricOf('reward', `${reward}, sampled`, sampled),
      metricOf('reward', `${reward}, greedy`, greedy),
      ...measures.flatMap(({ name, sampled: bySampling, greedy: byMost }) => [
        metricOf(name, `measure ${name}, sampled`, bySampling),
        metricOf(name, `measure ${name}, greedy`, byMost),
      ]),
      metricOf('loss', 'loss, lower is better', { before: mean(before), after: mean(after) }),
    ]),
    ...(perSet.length < 2
      ? []
      : perSet.flatMap(([set, values]) =>
          entry(set, [
            metricOf('reward', `${reward}, sampled`, values.sampled),
            metricOf('reward', `${reward}, greedy`, values.greedy),
          ]),
        )),
  ];
}

/** The last value, and the first one beside it; null if there is no finite one. */
function metricOf(type: string, name: string, { before, after }: BeforeAfter<Estimate>): Metric | null {
  const last = after ?? before;
  if (last === null || !Number.isFinite(last.mean)) return null;
  const args = {
    ...(last.stderr === null ? {} : { standard_error: last.stderr }),
    ...(after === null || before === null ? {} : { before: before.mean }),
  };
  return { type, name, value: last.mean, ...(Object.keys(args).length === 0 ? {} : { args }) };
}

/** The held-out datasets of a run by the paths that its records call them: below data.dir, or a file's plain name. */
function heldOutPaths(record: RunRecord): string[] {
  return datasetPaths(record, 'validation');
}

/** Paths of a run's datasets as a card names them: those below data.dir by their path in it, others by their plain name. */
export function datasetPaths({ settings }: RunRecord, split: 'train' | 'validation'): string[] {
  const data = (settings['data'] ?? {}) as { readonly dir?: unknown } & Readonly<Record<typeof split, unknown>>;
  const sources = Array.isArray(data[split]) ? (data[split] as { readonly path?: unknown }[]) : [];
  const dir = typeof data.dir === 'string' ? data.dir : '';
  return sources.flatMap(({ path }) => {
    if (typeof path !== 'string') return [];
    const inside = relative(dir, path);
    return [inside.startsWith('..') || isAbsolute(inside) ? basename(path) : inside];
  });
}
