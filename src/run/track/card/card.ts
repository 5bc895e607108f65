/** Files beside an exported model: a card for people and the Hub, and a JSON file with the settings and results. */
import { existsSync, writeFileSync } from 'node:fs';
import { basename, isAbsolute, join, relative } from 'node:path';
import { stringify } from 'yaml';
import { EditrlError, must, printable } from '../../../core/errors.js';
import { shellQuote } from '../../../core/process.js';
import type { Redact } from '../../../core/http/key.js';
import { CONFIG_FILE, readJson } from '../../../models/files.js';
import { hasOwnSettings } from '../../../compute/nets/flow/config.js';
import { ADAPTER_CONFIG_FILE, descriptionOf } from '../../../models/adapters/files.js';
import type { ExportedFormat } from '../../../models/adapters/export.js';
import { recipeNamed } from '../../../config/recipes.js';
import { rewardScale } from '../../../rewards/score/identity.js';
import { formatChangedSettings, readRecord, settingsAt, type ChangedSetting, type RunRecord } from '../../record.js';
import { readMetrics } from '../../metrics.js';
import type { RunPaths } from '../../paths.js';
import { heldOutRows, showScale } from '../../report/numbers.js';
import { readRun, type RunReport } from '../../report/read.js';
import { getPath } from '../../../core/schema/walk.js';
import { redactorOfRun, shownSettings, withoutPassword } from '../shared.js';
import { CARD_FILE, originOf, type Origin } from './origin.js';

export const RUN_FILE = 'editrl_run.json';

/** The text of README.md. `redact` hides secrets in the command. */
export function modelCard(content: CardContent, redact: Redact): string {
  const { record, report, iteration } = content;
  const { algorithm, task } = record.settings;
  const type = (algorithm as { readonly type?: unknown } | undefined)?.type;
  const how = [`recipe \`${inline(task)}\``, ...(type === undefined ? [] : [`algorithm \`${inline(type)}\``])];
  return [
    '---',
    `${frontMatter(content)}---`,
    '',
    `# ${record.run_name}`,
    '',
    `Iteration ${iteration} of ${report.num_iterations} of a run of editrl: ${how.join(', ')}.`,
    `All its settings are in \`${RUN_FILE}\`.`,
    '',
    ...trainingSection(content, redact),
    '',
    ...resultsSection(report),
    ...usageSection(content),
    '',
  ].join('\n');
}

/** The settings and results as JSON. */
export function runFile({ record, report, iteration, format }: CardContent, redact: Redact): string {
  const last = record.attempts.at(-1);
  const content = {
    run_name: record.run_name,
    iteration,
    format,
    hash: record.hash,
    versions: last?.versions ?? {},
    experiment: record.experiment ?? null,
    settings: shownSettings(record.settings, redact),
    changed_settings: report.changed_settings.filter((change) => change.iteration < iteration),
    heldout: report.heldout,
  };
  return `${JSON.stringify(content, null, 2)}\n`;
}

function trainingSection({ record, report, iteration, origin }: CardContent, redact: Redact): string[] {
  const scale = rewardScale((path) => getPath(record.settings, path));
  const judge = getPath(record.settings, 'reward.model');
  const command = record.attempts.at(0)?.command ?? [];
  const lists = (['train', 'validation'] as const).map((split) => datasetPaths(record, split).map(inCode).join(', '));
  return [
    '## Training',
    '',
    `- Initialized from ${startText(origin)}.`,
    ...(lists[0] === '' ? [] : [`- Trained on ${lists[0]}.`]),
    ...(lists[1] === '' ? [] : [`- Held out: ${lists[1]}.`]),
    ...(scale === null
      ? []
      : [
          `- Reward: ${inline(showScale(scale))}${scale.asksJudge && typeof judge === 'string' ? `; the judge is ${inCode(judge)}` : ''}.`,
        ]),
    ...changedText(report.changed_settings.filter((change) => change.iteration < iteration)),
    `- License: ${licenseText(origin)}`,
    ...(command.length === 0
      ? []
      : ['', '```', printable(redact(withoutPassword(['editrl', ...command.map(shellQuote)].join(' ')))), '```']),
  ];
}

function changedText(changes: readonly ChangedSetting[]): string[] {
  if (changes.length === 0) return [];
  return [
    '- Settings changed during training:',
    ...formatChangedSettings(changes).map((line) => `  - ${inCode(line)}`),
  ];
}

function startText({ start, hub }: Origin): string {
  if (start === null) return 'random weights';
  if (typeof start === 'object' && 'hub' in start) return inCode(start.hub);
  const through = hub === null ? '' : `, which derives from ${inCode(hub)}`;
  return typeof start === 'string'
    ? `${inCode(start)}${hub === start ? '' : through}`
    : `the run ${inCode(start.run)}${through}`;
}

function licenseText({ license, start }: Origin): string {
  if (license !== null) {
    const { license: id, license_name: name } = license;
    return `${[id].flat().map(inCode).join(', ')}${name === undefined ? '' : ` (${inline(name)})`}, like the base model.`;
  }
  return start === null
    ? 'not set. Set `license` above before you publish the model.'
    : 'not set, because no card of a base model states one. Set `license` above before you publish the model.';
}

function resultsSection({ heldout }: RunReport): string[] {
  const rows = heldOutRows(heldout);
  if (rows.length === 0) return [];
  const at = (iteration: number | null): string => (iteration === null ? '' : ` (iteration ${iteration})`);
  const { before, after } = heldout.iterations;
  return [
    '## Held-out results',
    '',
    `| | before${at(before)} | last${at(after)} | change |`,
    '| --- | --- | --- | --- |',
    ...rows.map(
      (row) => `| ${inline(row.label)} | ${row.before ?? '–'} | ${row.after ?? '–'} | ${row.change ?? '–'} |`,
    ),
    '',
  ];
}

function inCode(value: string): string {
  return `\`${inline(value)}\``;
}

/** Text within a line of Markdown, escaped so that it formats nothing. */
function inline(value: unknown): string {
  return printable(String(value)).replaceAll(/[`|\n]/g, ' ');
}

/** The place of the files for a reader of the card: a repository of the Hub, or the folder of the card. */
export type CardPlace = { readonly repository: string; readonly revision: string | null } | 'this folder';

export interface CardContent {
  readonly record: RunRecord;
  /** The run's report up to the iteration. */
  readonly report: RunReport;
  readonly iteration: number;
  readonly format: ExportedFormat;
  readonly origin: Origin;
  readonly place: CardPlace;
  /** The config.json of the model, or of an adapter's base. Null if there is none or it cannot be read. */
  readonly config: Readonly<Record<string, unknown>> | null;
  /** The adapter_config.json. Null if the files are not an adapter. */
  readonly adapter: Readonly<Record<string, unknown>> | null;
}

/**
 * YAML front matter without its fences.
 * Only the base model's card can state a license. If none is known, the key is left out: `other` would claim terms that
 * no one has written. `base_model` is a model of the Hub, because the Hub accepts nothing else. An adapter of other
 * weights has no `base_model`, because loading it with the Hub's model would be wrong.
 */
export function frontMatter(content: CardContent): string {
  const { record, adapter, origin } = content;
  const recipe = recipeNamed(record.settings['task']);
  const pipeline = recipe?.trainer === 'this program' ? recipe.pipeline : null;
  const base = adapter !== null && !origin.isAdapterOnHub ? null : origin.hub;
  const data = {
    ...origin.license,
    library_name: loaderOf(content).library,
    ...(pipeline === null ? {} : { pipeline_tag: pipeline }),
    ...(base === null ? {} : { base_model: base, base_model_relation: adapter !== null ? 'adapter' : 'finetune' }),
    tags: ['editrl', String(record.settings['task']), ...algorithmTags(record)],
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

/** Dataset paths for the card: relative to data.dir if below it, else only the file name. */
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

export type Library = 'peft' | 'transformers' | 'diffusers' | 'editrl';

export interface Loader {
  readonly library: Library;
  /** The class of the model, or of an adapter's base, and its library. Null if only editrl can load it. */
  readonly model: { readonly of: 'transformers' | 'diffusers'; readonly name: string } | null;
}

type Files = Pick<CardContent, 'format' | 'config' | 'adapter'>;

/**
 * Chooses the loader: PEFT for a language model's LoRA adapter and transformers for whole weights, or diffusers for both
 * if config.json names one of its classes.
 * Only editrl loads IP-Adapters, image tokenizers, and flow transformers whose config.json has settings that diffusers
 * does not know.
 */
export function loaderOf({ format, config, adapter }: Files): Loader {
  const alone: Loader = { library: 'editrl', model: null };
  const className = config?.['_class_name'];
  const ofDiffusers = typeof className === 'string' ? ({ of: 'diffusers', name: className } as const) : null;
  if (adapter !== null) {
    if (adapter['peft_type'] === 'IP_ADAPTER') return alone;
    if (ofDiffusers !== null) {
      return hasOwnSettings(config ?? {})
        ? alone
        : { library: 'diffusers', model: { of: 'diffusers', name: 'DiffusionPipeline' } };
    }
    const ofTransformers = { of: 'transformers', name: autoClass(config ?? {}) } as const;
    return { library: 'peft', model: adapter['task_type'] === 'CAUSAL_LM' ? ofTransformers : null };
  }
  if (format === 'merged' && ofDiffusers === null) {
    return { library: 'transformers', model: { of: 'transformers', name: autoClass(config ?? {}) } };
  }
  return ofDiffusers === null || hasOwnSettings(config ?? {}) ? alone : { library: 'diffusers', model: ofDiffusers };
}

/** The class of transformers that reads a config.json. */
function autoClass(config: Readonly<Record<string, unknown>>): string {
  if (config['model_type'] === 'clip') return 'AutoModel';
  return 'vision_config' in config ? 'AutoModelForImageTextToText' : 'AutoModelForCausalLM';
}

/** The usage section as lines of Markdown. */
export function usageSection(content: CardContent): string[] {
  const program = pythonUsage(content);
  const from = content.place === 'this folder' ? ['From within this folder:', ''] : [];
  const block = program === null ? [] : [...from, '```python', ...program, '```', ''];
  return ['## Use', '', ...block, ...configUsage(content)];
}

/** Lines of a Python program. Null if only editrl can load the model. */
function pythonUsage(content: CardContent): string[] | null {
  const { origin, place, adapter } = content;
  const { model } = loaderOf(content);
  if (model === null) return null;
  const here =
    place === 'this folder'
      ? JSON.stringify('.')
      : JSON.stringify(place.repository) +
        (place.revision === null ? '' : `, revision=${JSON.stringify(place.revision)}`);
  const imports = `from ${model.of} import ${[model.name, ...inputReaders(model)].join(', ')}`;
  const inputs = inputReaders(model).map((name) => `${VARIABLES[name]} = ${name}.from_pretrained(${here})`);
  if (adapter === null) return [imports, '', `model = ${model.name}.from_pretrained(${here})`, ...inputs];
  if (model.of === 'diffusers') {
    return [
      imports,
      '',
      '# PIPELINE is the pipeline of the transformer that the adapter was trained on: a folder, or its name on the Hub.',
      `pipe = ${model.name}.from_pretrained("PIPELINE")`,
      `pipe.load_lora_weights(${here})`,
    ];
  }
  const base = baseOf(origin);
  return [
    'from peft import PeftModel',
    imports,
    '',
    ...base.says,
    `base = ${model.name}.from_pretrained(${JSON.stringify(base.name)})`,
    `model = PeftModel.from_pretrained(base, ${here})`,
    ...inputs,
  ];
}

const VARIABLES = { AutoTokenizer: 'tokenizer', AutoProcessor: 'processor' } as const;

/** The classes that prepare a model's inputs. */
function inputReaders({ of, name }: { readonly of: string; readonly name: string }): (keyof typeof VARIABLES)[] {
  if (of === 'diffusers') return [];
  return [name === 'AutoModelForImageTextToText' ? 'AutoProcessor' : 'AutoTokenizer'];
}

/** The name from which the base is loaded, with a comment if it is not on the Hub. */
function baseOf({ adapterBase, isAdapterOnHub, start }: CardContent['origin']): {
  readonly name: string;
  readonly says: readonly string[];
} {
  if (isAdapterOnHub && adapterBase !== null) return { name: adapterBase, says: [] };
  const run = typeof start === 'object' && start !== null && 'run' in start ? start.run : null;
  if (run === null && adapterBase !== null) {
    return {
      name: adapterBase,
      says: ['# The folder of the base model on the training machine. Replace it with your copy.'],
    };
  }
  const made = run === null ? '' : `: create it with \`editrl export ${run} --format merged --out BASE\``;
  return { name: 'BASE', says: [`# BASE is the folder of the model that the adapter was trained on${made}.`] };
}

function configUsage({ record, place }: CardContent): string[] {
  const recipe = recipeNamed(record.settings['task']);
  if (recipe?.trainer !== 'this program') return [];
  const { key, of } = recipe.usedAt;
  const reference =
    place === 'this folder'
      ? 'the path of this folder'
      : `\`{ hub: '${place.repository}', revision: '${place.revision ?? 'main'}' }\``;
  return [`In editrl, a config of the recipe \`${of}\` names it at \`${key}\`: ${reference}.`];
}

export interface Exported {
  readonly paths: RunPaths;
  /** The folder of the exported checkpoint, and its iteration. */
  readonly checkpoint: string;
  readonly iteration: number;
  readonly format: ExportedFormat;
  readonly place: CardPlace;
}

/** Writes README.md and editrl_run.json into the folder of an exported model. Raises RunError when the run's records cannot be read. */
export function writeCard(folder: string, exported: Exported, env: NodeJS.ProcessEnv = process.env): void {
  const { paths, checkpoint, iteration, format, place } = exported;
  const last = must(readRecord(paths), `the record of ${paths.runName}`);
  const record = { ...last, settings: settingsAt(last, iteration).settings };
  const lines = readMetrics(paths).filter((line) => line.iteration <= iteration);
  const content: CardContent = {
    record,
    report: readRun(paths, lines),
    iteration,
    format,
    origin: originOf(paths, record, checkpoint),
    place,
    config: objectIn(join(folder, CONFIG_FILE)) ?? configBelow(checkpoint),
    adapter: objectIn(join(folder, ADAPTER_CONFIG_FILE)),
  };
  const redact = redactorOfRun(record.settings, env);
  writeFileSync(join(folder, CARD_FILE), modelCard(content, redact));
  writeFileSync(join(folder, RUN_FILE), runFile(content, redact));
}

function objectIn(file: string): CardContent['config'] {
  const value = existsSync(file) ? readJson(file) : null;
  return typeof value === 'object' ? (value as CardContent['config']) : null;
}

/** Config of an adapter's base. Null if it cannot be read, because an adapter can be exported without it. */
function configBelow(checkpoint: string): CardContent['config'] {
  if (!existsSync(join(checkpoint, ADAPTER_CONFIG_FILE))) return null;
  try {
    return JSON.parse(descriptionOf(checkpoint)) as CardContent['config'];
  } catch (error) {
    if (error instanceof EditrlError) return null;
    throw error;
  }
}
