/** The tools of `editrl mcp`: verbs that an agent can call. None of them deletes anything. */
import { resolve } from 'node:path';
import { z } from 'zod';
import { RunError } from '../../core/errors.js';
import { RunPaths } from '../../run/paths.js';
import { readRecord } from '../../run/record.js';
import { readRun } from '../../run/report/read.js';
import { readExperimentReport } from '../../run/report/experiment.js';
import { checkConfigs, schemaOf } from '../config.js';
import { comparisonDocument, comparisonOf } from '../compare.js';
import { planOf } from '../plan.js';
import { documentOf, experimentDocument, reportedOf } from '../report.js';
import { statusesOf } from '../status.js';
import { changesOf, configOf, texts, type Arguments } from '../verb.js';
import {
  checkResult,
  compareResult,
  planResult,
  reportResult,
  schemaResult,
  startedResult,
  statusResult,
} from './results.js';
import type { StartedCommands } from './started.js';

export interface Tool {
  readonly description: string;
  readonly input: z.ZodObject;
  readonly output: z.ZodObject;
  /** Whether the tool starts something; all others only read. */
  readonly starts: boolean;
  /** `args`: the arguments by the names of the verb's flags. Raises what the verb raises. */
  readonly call: (args: Arguments, started: StartedCommands) => Promise<object>;
}

const expDir = z
  .string()
  .optional()
  .describe('the folder that runs lie in (default: APP__BASE_EXP_DIR, else runs and runs/tiny)');
const changes = {
  with: z.array(z.string()).optional().describe('Jsonnet files to merge over the config, in order'),
  set: z.array(z.string()).optional().describe('single keys, as a.b=value: JSON, or else a string; applied last'),
};
const runDir = z.string().optional().describe("the folder to write runs to: another base_exp_dir than the config's");
const experimentFile = z.string().describe('a Jsonnet file with a base and axes, or a config');
const only = z.string().optional().describe('only cells with this in their name; * and ? match the whole name');

export const TOOLS: Readonly<Record<string, Tool>> = {
  plan: {
    description: 'What an experiment would run, what of it is done, and what is in the way. Starts nothing.',
    input: z.strictObject({ experiment: experimentFile, ...changes, only, 'exp-dir': runDir }),
    output: planResult,
    starts: false,
    call: async (args) => {
      const { plan, warnings } = await planOf(args);
      return { ...plan, warnings: [...warnings, ...plan.warnings] };
    },
  },
  run: {
    description:
      'Starts training what a config describes, after the runs that it starts from, in a process of its own that goes on without this server; or goes on with it. Watch it by its name with status.',
    input: z.strictObject({ config: z.string().describe('a Jsonnet file'), ...changes, 'exp-dir': runDir }),
    output: startedResult,
    starts: true,
    call: async (args, started) => {
      const { settings } = await configOf(args);
      const paths = RunPaths.of(settings);
      const before = attempts(paths);
      const command = ['run', String(args['config']), ...flagsOf(args)];
      const one = await started.start(settings.run_name, command, () => attempts(paths) > before);
      return { ...one, exp_dir: resolve(paths.baseExpDir) };
    },
  },
  sweep: {
    description:
      'Starts running a matrix to its result table in a process of its own that goes on without this server; or goes on with it. Watch it by its name with status and report.',
    input: z.strictObject({
      experiment: experimentFile,
      ...changes,
      only,
      'exp-dir': runDir,
      'max-parallel': z.int().min(1).optional().describe('most runs at once'),
      failed: z.boolean().optional().describe('only cells that failed or were interrupted'),
      retries: z.int().min(0).optional().describe('how often a run that failed is started again'),
    }),
    output: startedResult,
    starts: true,
    call: async (args, started) => {
      const [{ loadExperiment }, { liveSweeps }] = await Promise.all([
        import('../../config/experiment/load.js'),
        import('../../launch/sweep/lock.js'),
      ]);
      const file = String(args['experiment']);
      const { name, cells } = await loadExperiment({ file, ...changesOf(args) });
      const { base_exp_dir: folder } = cells[0].config.settings;
      const isSwept = (): boolean => liveSweeps([folder]).some(({ experiment }) => experiment === name);
      const one = await started.start(name, ['sweep', file, ...flagsOf(args)], isSwept);
      return { ...one, exp_dir: resolve(folder) };
    },
  },
  status: {
    description:
      'What runs are doing: all, or those that are named. An experiment stands for its runs that have begun.',
    input: z.strictObject({
      runs: z.array(z.string()).optional().describe('run_names, folders of runs, or experiments; all runs by default'),
      'exp-dir': expDir,
    }),
    output: statusResult,
    starts: false,
    call: async (args, { all }) => {
      const asked = texts(args, 'runs');
      const here = new Set(all.map(({ name }) => name));
      const others = asked.filter((name) => !here.has(name));
      const read = await Promise.all([
        ...(asked.length > 0 && others.length === 0 ? [] : [statusesOf({ ...args, runs: others })]),
        ...asked.filter((name) => here.has(name)).map((name) => statusesOrNone({ ...args, runs: [name] })),
      ]);
      return {
        runs: read.flatMap(({ runs }) => runs),
        problems: [...new Set(read.flatMap(({ problems }) => problems))],
        started: asked.length === 0 ? all : all.filter(({ name }) => asked.includes(name)),
      };
    },
  },
  report: {
    description:
      'What a run learned (held-out results before and after), or the result table of an experiment: cells over seeds, with paired differences from its baseline.',
    input: z.strictObject({
      run: z
        .string()
        .describe('a run_name, the folder of a run, the name of an experiment that was swept, or its file'),
      ...changes,
      'exp-dir': expDir,
    }),
    output: reportResult,
    starts: false,
    call: async (args) => {
      const found = await reportedOf(args);
      if (found.kind === 'run') return { run: documentOf(readRun(found.paths)) };
      return { experiment: experimentDocument(readExperimentReport(found.baseExpDir, found.record)) };
    },
  },
  compare: {
    description:
      'Runs side by side: held-out results, the difference prompt by prompt, and what their settings differ in.',
    input: z.strictObject({
      runs: z.array(z.string()).describe('two or more runs; all are compared with the first'),
      'exp-dir': expDir,
    }),
    output: compareResult,
    starts: false,
    call: async (args) => comparisonDocument(comparisonOf(args)),
  },
  config_check: {
    description: 'All that is wrong with configs, and what is in the way of their runs on this machine.',
    input: z.strictObject({
      config: z.array(z.string()).min(1).describe('Jsonnet files'),
      ...changes,
      deep: z.boolean().optional().describe('ask the judges, the reward servers and the Hub, too, as a run would'),
    }),
    output: checkResult,
    starts: false,
    call: async (args) => {
      const { configs } = await checkConfigs(args, () => {});
      return { configs };
    },
  },
  config_schema: {
    description:
      'What may stand in a config: the JSON Schema of a recipe (task), of all of them (long), of an experiment file, or the meaning of one key.',
    input: z.strictObject({
      task: z.string().optional().describe('only the settings of this recipe'),
      key: z.string().optional().describe('explain this key, such as kl_coeff or rollout, instead'),
      experiment: z.boolean().optional().describe('what may stand in an experiment file'),
    }),
    output: schemaResult,
    starts: false,
    call: async (args) => {
      if (typeof args['key'] !== 'string') return { schema: schemaOf(args) };
      const { explain } = await import('../../config/explain.js');
      return { explanations: explain(args['key']) };
    },
  },
};

/** The arguments that are positional in a command. */
const POSITIONALS: readonly string[] = ['config', 'experiment'];

/** The flags of a command, as a person would write them. */
function flagsOf(args: Arguments): string[] {
  return Object.entries(args).flatMap(([name, value]) => {
    if (value === undefined || value === false || POSITIONALS.includes(name)) return [];
    if (value === true) return [`--${name}`];
    return (Array.isArray(value) ? value : [value]).map((one) => `--${name}=${String(one)}`);
  });
}

function attempts(paths: RunPaths): number {
  return readRecord(paths)?.attempts.length ?? 0;
}

/** Statuses of runs that were started here; empty as long as they have no folder. */
async function statusesOrNone(
  args: Arguments,
): Promise<Pick<Awaited<ReturnType<typeof statusesOf>>, 'runs' | 'problems'>> {
  try {
    return await statusesOf(args);
  } catch (error) {
    if (!(error instanceof RunError)) throw error;
    return { runs: [], problems: [] };
  }
}
