/** `editrl mcp`: serves this program's verbs as tools for an agent, over standard input and output. */
import { once } from 'node:events';
import { serveStdio, StdioServerTransport } from '@modelcontextprotocol/server/stdio';
import { resolve } from 'node:path';
import { Writable } from 'node:stream';
import { McpServer, type CallToolResult } from '@modelcontextprotocol/server';
import { setTimeout as sleep } from 'node:timers/promises';
import { z } from 'zod';
import { printError } from './shared/output.js';
import { changesOf, configOf, texts, type Action, type Arguments } from './shared/verb.js';
import { EditrlError, RunError } from '../core/errors.js';
import { programVersion } from '../core/files.js';
import { startCommand } from '../web/actions.js';
import { RunPaths } from '../run/paths.js';
import { readRecord } from '../run/record.js';
import { readRun } from '../run/report/read.js';
import { readExperimentReport } from '../run/report/experiment.js';
import { checkConfigs } from './check.js';
import { schemaOf } from './config.js';
import { comparisonDocument, comparisonOf } from './compare.js';
import { planOf } from './plan.js';
import { documentOf, experimentDocument, reportedOf } from './report.js';
import { statusesOf } from './status.js';

export const mcpVerb: Action = {
  positionals: '',
  build: (yargs) =>
    yargs.example('$0 mcp', 'Tools: plan, run, sweep, status, report, compare, check and config_schema'),
  run: async () => {
    const started = new StartedCommands([process.execPath, process.argv[1]]);
    const transport = new StdioServerTransport(process.stdin, protocolStream());
    serveStdio(() => mcpServer(started), { transport, onerror: (error) => printError(`warning: ${error.message}`) });
    await once(process.stdin, 'close');
    return 0;
  },
};

const INSTRUCTIONS = [
  'editrl: reinforcement learning for image editors and vision-language models, run from Jsonnet configs.',
  'Before you start a config or an experiment (run, sweep), check the config (check) and review the experiment (plan). Started runs continue on their own. Watch them with status.',
  'Keep a change only if an experiment over several seeds reports a paired difference from the baseline of more than two standard errors.',
].join(' ');

/** A server whose tools are those of `TOOLS`. */
export function mcpServer(started: StartedCommands): McpServer {
  const server = new McpServer({ name: 'editrl', version: programVersion() }, { instructions: INSTRUCTIONS });
  for (const [name, tool] of Object.entries(TOOLS)) {
    const { description, input: inputSchema, starts } = tool;
    const annotations = { readOnlyHint: !starts, destructiveHint: false, openWorldHint: false };
    server.registerTool(name, { description, inputSchema, annotations }, (args) => answer(tool, args, started));
  }
  return server;
}

/** A tool's result, also as text for clients without structured content, or the error message of the command line. */
async function answer(
  tool: Tool,
  args: Readonly<Record<string, unknown>>,
  started: StartedCommands,
): Promise<CallToolResult> {
  try {
    const document = JSON.parse(JSON.stringify(await tool.call(args, started))) as Record<string, unknown>;
    return { content: [{ type: 'text', text: JSON.stringify(document) }], structuredContent: document };
  } catch (error) {
    if (!(error instanceof EditrlError)) throw error;
    return { content: [{ type: 'text', text: error.toText() }], isError: true };
  }
}

/** Returns a stream to the original standard output and redirects all other writes to standard error. */
export function protocolStream(
  stdout: Pick<NodeJS.WriteStream, 'write'> = process.stdout,
  stderr: Pick<NodeJS.WriteStream, 'write'> = process.stderr,
): Writable {
  const write = stdout.write.bind(stdout) as (chunk: unknown, done: () => void) => boolean;
  stdout.write = stderr.write.bind(stderr);
  return new Writable({ write: (chunk, _encoding, done) => void write(chunk, done) });
}

/** A started command. */
export interface StartedCommand {
  /** The run_name or the experiment. */
  readonly name: string;
  readonly command: string;
  /** The end of the command's output after it has ended. Null while it runs. */
  readonly ended: string | null;
}

/** Maximum time to wait until a command has started or failed, in milliseconds. */
const MAX_START_MS = 20_000;
const LOOK_EVERY_MS = 100;

export class StartedCommands {
  readonly #all: { name: string; command: string; ended: string | null }[] = [];

  /** @param program the command that starts this program. */
  constructor(
    private readonly program: readonly string[],
    private readonly longestStartMs = MAX_START_MS,
  ) {}

  get all(): readonly StartedCommand[] {
    return this.#all.map((one) => ({ ...one }));
  }

  /**
   * Starts a command, and returns when `isUnderWay` is true, when the command has ended, or after the maximum wait. Raises RunError with the end of
   * its output if it has failed by then.
   */
  async start(name: string, args: readonly string[], isUnderWay: () => boolean): Promise<StartedCommand> {
    const started: { name: string; command: string; ended: string | null } = {
      name,
      command: ['editrl', ...args].join(' '),
      ended: null,
    };
    let failed = false;
    this.#all.push(started);
    startCommand(this.program, args, 'ended', (level, text) => {
      failed = level === 'error';
      started.ended = text;
    });
    const until = performance.now() + this.longestStartMs;
    while (started.ended === null && !isUnderWay() && performance.now() < until) await sleep(LOOK_EVERY_MS);
    if (failed) throw new RunError(started.ended ?? 'the command failed');
    return { ...started };
  }
}

export interface Tool {
  readonly description: string;
  readonly input: z.ZodObject;
  /** Whether the tool starts something. All others only read. */
  readonly starts: boolean;
  /** `args`: the arguments by flag name. Raises the errors of the verb. */
  readonly call: (args: Arguments, started: StartedCommands) => Promise<object>;
}

const expDir = z
  .string()
  .optional()
  .describe('directory of runs (default: APP__BASE_EXP_DIR, else runs and runs/tiny)');
const changes = {
  with: z.array(z.string()).optional().describe('Jsonnet files to merge over the config, in order'),
  set: z.array(z.string()).optional().describe('single keys, as a.b=VALUE in JSON or plain text, applied last'),
};
const runDir = z.string().optional().describe('directory for runs (overrides base_exp_dir)');
const experimentFile = z.string().describe('a Jsonnet file with a base and axes, or a config');
const only = z
  .string()
  .optional()
  .describe('only cells with this text in their name (with * or ?, a pattern for the whole name)');

export const TOOLS: Readonly<Record<string, Tool>> = {
  plan: {
    description: 'Lists the runs of an experiment, their states, and obstacles. Starts nothing.',
    input: z.strictObject({ experiment: experimentFile, ...changes, only, 'exp-dir': runDir }),
    starts: false,
    call: async (args) => {
      const { plan, warnings } = await planOf(args);
      return { ...plan, warnings: [...warnings, ...plan.warnings] };
    },
  },
  run: {
    description:
      'Trains a config, after the runs that it depends on, or continues it. The process outlives this server. Watch it with status.',
    input: z.strictObject({ config: z.string().describe('a Jsonnet file'), ...changes, 'exp-dir': runDir }),
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
      'Trains every cell of an experiment, or continues it. The process outlives this server. Watch it with status and report.',
    input: z.strictObject({
      experiment: experimentFile,
      ...changes,
      only,
      'exp-dir': runDir,
      'max-parallel': z.int().min(1).optional().describe('maximum parallel runs'),
      failed: z.boolean().optional().describe('only cells that failed or were interrupted'),
      retries: z.int().min(0).optional().describe('restarts of a failed run'),
    }),
    starts: true,
    call: async (args, started) => {
      const [{ loadExperiment }, { liveSweeps }] = await Promise.all([
        import('../config/experiment/load.js'),
        import('../launch/sweep/lock.js'),
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
      'Status of all or some runs. The name of an experiment selects its started runs. `started` lists the commands that this server started and how they ended.',
    input: z.strictObject({
      runs: z.array(z.string()).optional().describe('run names, run folders, or experiments (default: all runs)'),
      'exp-dir': expDir,
    }),
    starts: false,
    call: async (args, { all }) => {
      const runNames = texts(args, 'runs');
      const here = new Set(all.map(({ name }) => name));
      const others = runNames.filter((name) => !here.has(name));
      const read = await Promise.all([
        ...(runNames.length > 0 && others.length === 0 ? [] : [statusesOf({ ...args, runs: others })]),
        ...runNames.filter((name) => here.has(name)).map((name) => statusesOrNone({ ...args, runs: [name] })),
      ]);
      return {
        runs: read.flatMap(({ runs }) => runs),
        problems: [...new Set(read.flatMap(({ problems }) => problems))],
        started: runNames.length === 0 ? all : all.filter(({ name }) => runNames.includes(name)),
      };
    },
  },
  report: {
    description:
      'The results of a run (held-out, before and after training), or the result table of an experiment: cells over seeds, best first, with paired differences from the baseline (difference: mean, stderr, n).',
    input: z.strictObject({
      run: z.string().describe('run name, run folder, name of a swept experiment, or its file'),
      ...changes,
      'exp-dir': expDir,
    }),
    starts: false,
    call: async (args) => {
      const found = await reportedOf(args);
      if (found.kind === 'run') return { run: documentOf(readRun(found.paths)) };
      return { experiment: experimentDocument(readExperimentReport(found.baseExpDir, found.record)) };
    },
  },
  compare: {
    description: 'Compares runs: held-out results, paired differences over prompts, and different settings.',
    input: z.strictObject({
      runs: z.array(z.string()).describe('two or more runs, compared with the first'),
      'exp-dir': expDir,
    }),
    starts: false,
    call: async (args) => comparisonDocument(comparisonOf(args)),
  },
  check: {
    description: 'Reports all invalid settings of configs, and obstacles to their runs on this machine.',
    input: z.strictObject({
      config: z.array(z.string()).min(1).describe('Jsonnet files'),
      ...changes,
      deep: z.boolean().optional().describe('also contact the judges, the reward servers and the Hub'),
    }),
    starts: false,
    call: async (args) => {
      const { configs } = await checkConfigs(args, () => {});
      return { configs };
    },
  },
  config_schema: {
    description:
      'The JSON Schema of one recipe (task), of all recipes (long) or of an experiment file, or the meaning of one key.',
    input: z.strictObject({
      task: z.string().optional().describe('only the settings of this recipe'),
      key: z.string().optional().describe('explain this key instead, such as kl_coeff or rollout'),
      experiment: z.boolean().optional().describe('the schema of an experiment file'),
    }),
    starts: false,
    call: async (args) => {
      if (typeof args['key'] !== 'string') return { schema: schemaOf(args) };
      const { explain } = await import('../config/explain.js');
      return { explanations: explain(args['key']) };
    },
  },
};

/** The arguments that are positional in a command. */
const POSITIONALS: readonly string[] = ['config', 'experiment'];

/** The flags of a command. */
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

/** Statuses of the started runs. Empty while they have no folder. */
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
