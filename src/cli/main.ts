#!/usr/bin/env node
/** The command line: a table of verbs, each loaded only when it is called, and the exit codes. */
import { realpathSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import yargs, { type Argv } from 'yargs';
import { startInterpreter } from '../config/interpreter.js';
import { addressSpaceAdvice, openFilesAdvice, saysTooManyFiles } from '../core/process.js';
import { EditrlError, UsageError } from '../core/errors.js';
import { nearest } from '../core/nearest.js';
import { outputWidth, printError } from './shared/output.js';
import { outliveReaders } from './shared/signals.js';
import type { Action, Actions, Verb } from './shared/verb.js';

interface Entry {
  readonly summary: string;
  /** Whether the verb is left out of the list, since only other programs call it. */
  readonly hidden?: true;
  readonly load: () => Promise<Verb>;
}

/** The table of verbs; each is a file beside this one and a line here. */
export const verbs: Readonly<Record<string, Entry>> = {
  run: { summary: 'train what a config describes', load: async () => (await import('./run.js')).runVerb },
  sweep: { summary: 'run a matrix to its result table', load: async () => (await import('./sweep.js')).sweepVerb },
  cell: {
    summary: 'one task of a Slurm job array',
    hidden: true,
    load: async () => (await import('./shared/cell.js')).cellVerb,
  },
  plan: { summary: 'what an experiment would run', load: async () => (await import('./plan.js')).planVerb },
  resume: { summary: 'continue or fork a run', load: async () => (await import('./resume.js')).resumeVerb },
  status: { summary: 'what runs are doing', load: async () => (await import('./status.js')).statusVerb },
  stop: { summary: 'checkpoint and end runs', load: async () => (await import('./stop.js')).stopVerb },
  logs: { summary: 'what a run prints', load: async () => (await import('./logs.js')).logsVerb },
  report: {
    summary: 'what a run or an experiment learned',
    load: async () => (await import('./report.js')).reportVerb,
  },
  compare: { summary: 'runs side by side', load: async () => (await import('./compare.js')).compareVerb },
  dashboard: {
    summary: 'a page that shows runs while they go on',
    load: async () => (await import('./dashboard.js')).dashboardVerb,
  },
  evaluate: {
    summary: 'evaluate a checkpoint or a model, without training',
    load: async () => (await import('./evaluate.js')).evaluateVerb,
  },
  export: {
    summary: "write a run's model for other programs",
    load: async () => (await import('./export.js')).exportVerb,
  },
  sync: { summary: 'send what tracking has not sent', load: async () => (await import('./sync.js')).syncVerb },
  runs: { summary: 'remove runs, and what no run needs', load: async () => (await import('./runs.js')).runsVerb },
  rescore: {
    summary: 'score a run again by another reward',
    load: async () => (await import('./rescore.js')).rescoreVerb,
  },
  score: {
    summary: 'what a reward gives for rows of its dataset',
    load: async () => (await import('./score.js')).scoreVerb,
  },
  config: { summary: 'show, check or describe settings', load: async () => (await import('./config.js')).configVerb },
  data: {
    summary: 'pack or check your own data, or make lists of benchmarks',
    load: async () => (await import('./data.js')).dataVerb,
  },
  mcp: {
    summary: 'these verbs as tools of an agent (MCP, over standard input and output)',
    load: async () => (await import('./mcp.js')).mcpVerb,
  },
  gateway: {
    summary: 'serve several judges as one',
    load: async () => (await import('./serve/gateway.js')).gatewayVerb,
  },
  enhance: {
    summary: 'rewrite prompts with a trained run, or with a model as it is',
    load: async () => (await import('./enhance.js')).enhanceVerb,
  },
  judge: {
    summary: "serve the tiny world's rule judge",
    load: async () => (await import('./serve/judge.js')).judgeVerb,
  },
  'reward-server': {
    summary: 'hold rewards and score what is sent',
    load: async () => (await import('./serve/reward_server.js')).rewardServerVerb,
  },
  'launch-check': {
    summary: "start a run's processes and let them meet",
    load: async () => (await import('./launch_check.js')).launchCheckVerb,
  },
  doctor: { summary: 'what this machine has and lacks', load: async () => (await import('./doctor.js')).doctorVerb },
};

/** The verbs that evaluate Jsonnet. */
const EVALUATING: ReadonlySet<string> = new Set(['run', 'sweep', 'plan', 'config', 'score']);

/** Runs one command line (without `node` and the script) and returns its exit code. */
export async function main(argv: readonly string[]): Promise<number> {
  const debug = argv.includes('--debug');
  try {
    return await dispatch(argv);
  } catch (error) {
    return report(error, debug);
  }
}

async function dispatch(argv: readonly string[]): Promise<number> {
  // A shell asks for completions with the words of the line, of which the first is the program's name.
  const completing = argv[0] === '--get-yargs-completions';
  const [name, second] = (completing ? argv.slice(2) : argv).filter((word) => !word.startsWith('-'));
  const entry = name !== undefined && Object.hasOwn(verbs, name) ? verbs[name] : undefined;
  const outcome: { code: number } = { code: 0 };
  // It starts while the verb is loaded, which takes longer.
  if (name !== undefined && EVALUATING.has(name) && !completing) startInterpreter();
  const [verb] = await Promise.all([entry?.load(), entry === undefined ? null : import('../recipes/settings.js')]);
  const parser = baseParser(argv, usageOf(name, second, verb));
  for (const verbName of listed()) {
    if (verbName !== name) parser.command(verbName, verbs[verbName].summary, {});
  }
  if (name !== undefined && entry !== undefined && verb !== undefined) {
    const actions = actionsOf(verb, second);
    if (actions !== null) {
      if (second !== undefined && !completing) requireKnown(second, Object.keys(actions), `${name} `);
      parser.command(`${name} <action>`, entry.summary, (group) => {
        for (const [actionName, action] of Object.entries(actions)) {
          addAction(group, actionName, action.summary, action, outcome);
        }
        return group.demandCommand(1, `Say which: ${Object.keys(actions).join(', ')}.`);
      });
    } else {
      addAction(parser, name, entry.summary, verb as Action, outcome);
    }
  } else if (name !== undefined && !completing) {
    requireKnown(name, [...listed(), COMPLETION], '');
  } else if (argv.length === 0) {
    parser.showHelp('error');
    return usageExitCode;
  }
  await parser.parseAsync();
  return outcome.code;
}

/** The actions among which the second word chooses; null where the verb does the work itself. */
function actionsOf(verb: Verb, second: string | undefined): Actions | null {
  if (!('run' in verb)) return verb.actions;
  const { actions = {} } = verb;
  return second !== undefined && Object.hasOwn(actions, second) ? actions : null;
}

/** The usage line of a verb, as far as the verb is known. */
function usageOf(name = '<verb>', second = '<action>', verb?: Verb): string {
  if (verb === undefined) return 'editrl <verb>';
  const actions = actionsOf(verb, second);
  if (actions === null && 'run' in verb) return `editrl ${name} ${verb.positionals}`.trim();
  const action = actions !== null && Object.hasOwn(actions, second) ? actions[second] : undefined;
  return `editrl ${name} ${action === undefined ? '<action>' : `${second} ${action.positionals}`}`.trim();
}

const usageExitCode = 2;
const COMPLETION = 'completion';

/** Raises UsageError, with the nearest known word, for a verb or action that does not exist. */
function requireKnown(word: string, known: readonly string[], prefix: string): void {
  if (known.includes(word)) return;
  const close = nearest(word, known);
  throw new UsageError(
    `unknown ${prefix === '' ? 'verb' : 'action'} '${prefix}${word}'; allowed: ${known.join(', ')}`,
    {
      next: close === null ? `editrl ${prefix}--help lists what each does.` : `Did you mean: editrl ${prefix}${close}?`,
    },
  );
}

/** The verbs that help shows. */
function listed(): string[] {
  return Object.keys(verbs).filter((name) => verbs[name].hidden !== true);
}

function addAction(parser: Argv, name: string, summary: string, action: Action, outcome: { code: number }): void {
  parser.command(`${name} ${action.positionals}`.trim(), summary, action.build, async (args) => {
    outcome.code = await action.run(args);
  });
}

function baseParser(argv: readonly string[], usage: string): Argv {
  const parser: Argv = yargs([...argv])
    .scriptName('editrl')
    .usage('$0 <verb> …\n\nReinforcement learning for image-editing policies, run from Jsonnet configs.')
    .option('debug', { type: 'boolean', default: false, describe: 'print stack traces', global: true })
    .parserConfiguration({
      'duplicate-arguments-array': true,
      'camel-case-expansion': false,
      'parse-positional-numbers': false,
    })
    .demandCommand(1, 'Say what to do.')
    .strict()
    .epilogue('Exit codes: 0 done, 1 run failed, 2 bad usage or config, 3 endpoint not reachable, 130 interrupted.')
    .wrap(Math.min(110, outputWidth()))
    .completion(COMPLETION, 'print a script that lets bash, zsh or fish complete verbs and flags')
    .help()
    .alias('h', 'help')
    .version()
    .exitProcess(false)
    .locale('en')
    .updateLocale({
      'Not enough arguments following: %s': '--%s needs a value',
      'Not enough non-option arguments: got %s, need at least %s': {
        one: 'found %s arguments, needed at least %s',
        other: 'found %s arguments, needed at least %s',
      } as unknown as string,
    })
    .fail((message, error) => {
      // yargs types both as always present, but either can be missing. Wrong usage that it finds while parsing is a YError.
      const cause = error as Error | undefined;
      if (cause !== undefined && cause.name !== 'YError') throw cause;
      const text = cause?.message ?? message;
      const unknown = /^Unknown arguments?: ([^,]+)/.exec(text)?.[1];
      // yargs reads each letter of a word with one dash as a flag.
      const dashed = unknown === undefined ? undefined : argv.find((word) => /^-[A-Za-z][\w-]/.test(word));
      const close = nearestFlag(/^-([\w-]+)/.exec(dashed ?? '')?.[1] ?? unknown, parser);
      const help = `Write: ${usage} (with --help it lists its flags, with an example)`;
      throw new UsageError(dashed === undefined ? text : `${dashed}: a flag with a name has two dashes`, {
        next: close === null ? help : `Did you mean --${close}?`,
      });
    });
  return parser;
}

/** The known flag nearest to an unknown one. The types of yargs lack `getOptions`. */
function nearestFlag(unknown: string | undefined, parser: Argv): string | null {
  if (unknown === undefined) return null;
  const { key } = (parser as Argv & { getOptions(): { key: Readonly<Record<string, unknown>> } }).getOptions();
  return nearest(unknown, Object.keys(key));
}

/** Prints an error for a person, with a stack trace only if `debug` is set; returns the exit code. */
function report(error: unknown, debug: boolean): number {
  if (error instanceof EditrlError) {
    printError(debug ? (error.stack ?? error.toText()) : `editrl: ${error.toText()}`);
    if (saysTooManyFiles(error) && error.next !== openFilesAdvice()) printError(`  ${openFilesAdvice()}`);
    return error.exitCode;
  }
  const message = error instanceof Error ? error.message : String(error);
  const advice = saysTooManyFiles(error) ? openFilesAdvice() : addressSpaceAdvice(error);
  printError(
    debug && error instanceof Error
      ? (error.stack ?? message)
      : `editrl: ${message}\n  ${advice ?? 'Run it again with --debug to see where this comes from.'}`,
  );
  return 1;
}

if (process.argv[1] !== undefined && isEntryPoint(process.argv[1])) {
  outliveReaders();
  // Node loads parts of itself only when they are used, and an error there reaches no caller.
  process.on('uncaughtException', (error) => process.exit(report(error, process.argv.includes('--debug'))));
  process.exitCode = await main(process.argv.slice(2));
}

/** Whether node was started with this file, directly or through the link that npm makes for the binary. */
function isEntryPoint(script: string): boolean {
  try {
    return realpathSync(script) === fileURLToPath(import.meta.url);
  } catch {
    return false;
  }
}
