#!/usr/bin/env node
/** The command line: a table of verbs, each loaded on demand, and the exit codes. */
import { realpathSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import yargs, { type Argv } from 'yargs';
import { startInterpreter } from '../config/interpreter.js';
import { addressSpaceAdvice, openFilesAdvice, saysTooManyFiles } from '../core/process.js';
import { EditrlError, UsageError } from '../core/errors.js';
import { programVersion } from '../core/files.js';
import { nearest } from '../core/nearest.js';
import { outputWidth, printError, printLine } from './shared/output.js';
import { outliveReaders } from './shared/signals.js';
import { setLibrary, type Action } from './shared/verb.js';

interface Entry {
  readonly summary: string;
  /** For internal use, so help does not list it. */
  readonly hidden?: true;
  readonly load: () => Promise<Action>;
}

/** All verbs. Two words name one verb of a group. */
export const verbs: Readonly<Record<string, Entry>> = {
  init: {
    summary: 'Write a project with configs, an experiment and a reward',
    load: async () => (await import('./init.js')).initVerb,
  },
  run: { summary: 'Train a config', load: async () => (await import('./run.js')).runVerb },
  sweep: {
    summary: 'Train every cell of an experiment',
    load: async () => (await import('./sweep.js')).sweepVerb,
  },
  cell: {
    summary: 'Run one task of a Slurm job array',
    hidden: true,
    load: async () => (await import('./shared/cell.js')).cellVerb,
  },
  plan: {
    summary: 'Show the runs of an experiment without training',
    load: async () => (await import('./plan.js')).planVerb,
  },
  check: { summary: 'Check configs before training', load: async () => (await import('./check.js')).checkVerb },
  rank: {
    summary: 'Run one process of a launch check',
    hidden: true,
    load: async () => (await import('./launch_check.js')).rankVerb,
  },
  resume: { summary: 'Continue a run', load: async () => (await import('./resume.js')).resumeVerb },
  fork: {
    summary: 'Start a new run from a checkpoint of another run',
    load: async () => (await import('./resume.js')).forkVerb,
  },
  ls: { summary: 'List runs', load: async () => (await import('./status.js')).lsVerb },
  status: { summary: 'Show the state of runs', load: async () => (await import('./status.js')).statusVerb },
  stop: { summary: 'Save a checkpoint and end runs', load: async () => (await import('./stop.js')).stopVerb },
  logs: { summary: "Print a run's log", load: async () => (await import('./logs.js')).logsVerb },
  report: {
    summary: 'Report the results of a run or an experiment',
    load: async () => (await import('./report.js')).reportVerb,
  },
  compare: { summary: 'Compare runs', load: async () => (await import('./compare.js')).compareVerb },
  dashboard: {
    summary: 'Serve a page with live runs',
    load: async () => (await import('./dashboard.js')).dashboardVerb,
  },
  evaluate: {
    summary: 'Evaluate a checkpoint or a model without training',
    load: async () => (await import('./evaluate.js')).evaluateVerb,
  },
  edit: {
    summary: 'Edit an image with a trained run',
    load: async () => (await import('./edit.js')).editVerb,
  },
  export: {
    summary: "Export a run's model for other programs",
    load: async () => (await import('./export.js')).exportVerb,
  },
  sync: { summary: 'Upload pending metrics', load: async () => (await import('./sync.js')).syncVerb },
  rm: { summary: 'Delete runs', load: async () => (await import('./remove.js')).rmVerb },
  prune: { summary: 'Delete runs that --fresh set aside', load: async () => (await import('./remove.js')).pruneVerb },
  rescore: {
    summary: "Score a run's episodes with another reward",
    load: async () => (await import('./rescore.js')).rescoreVerb,
  },
  score: {
    summary: 'Try a reward on rows of its dataset',
    load: async () => (await import('./score.js')).scoreVerb,
  },
  'config show': {
    summary: 'Print the settings of a config',
    load: async () => (await import('./config.js')).showVerb,
  },
  'config diff': {
    summary: 'Show how two configs or runs differ',
    load: async () => (await import('./config.js')).diffVerb,
  },
  'config explain': { summary: 'Explain a setting', load: async () => (await import('./config.js')).explainVerb },
  'config schema': {
    summary: 'Print the JSON Schema of configs',
    load: async () => (await import('./config.js')).schemaVerb,
  },
  'data pack': { summary: 'Make a dataset of your own images', load: async () => (await import('./data.js')).packVerb },
  'data check': { summary: 'Check datasets', load: async () => (await import('./data.js')).checkDataVerb },
  'data bench': {
    summary: 'Make datasets of GEdit-Bench or ImgEdit',
    load: async () => (await import('./data.js')).benchVerb,
  },
  'serve judge': {
    summary: "Serve the tiny world's rule judge",
    load: async () => (await import('./serve/judge.js')).judgeVerb,
  },
  'serve gateway': {
    summary: 'Serve several judges as one',
    load: async () => (await import('./serve/gateway.js')).gatewayVerb,
  },
  'serve rewards': { summary: 'Serve a reward', load: async () => (await import('./serve/rewards.js')).rewardsVerb },
  'judge exam': {
    summary: 'Test a judge on answers of known quality',
    load: async () => (await import('./judge_exam.js')).judgeExamVerb,
  },
  enhance: {
    summary: 'Rewrite prompts for an image model',
    load: async () => (await import('./enhance.js')).enhanceVerb,
  },
  mcp: {
    summary: 'Serve these verbs to an agent (MCP over stdin and stdout)',
    load: async () => (await import('./mcp.js')).mcpVerb,
  },
  doctor: {
    summary: 'Check this machine for missing software',
    load: async () => (await import('./doctor.js')).doctorVerb,
  },
};

/** The first words of verbs that evaluate Jsonnet. */
const EVALUATING: ReadonlySet<string> = new Set(['run', 'sweep', 'plan', 'check', 'config', 'score']);

/** Runs one command line (without `node` and the script) and returns its exit code. `print` receives help. */
export async function main(argv: readonly string[], print: (text: string) => void = printLine): Promise<number> {
  const debug = argv.includes('--debug');
  try {
    return await dispatch(argv, print);
  } catch (error) {
    return report(error, debug);
  }
}

async function dispatch(argv: readonly string[], print: (text: string) => void): Promise<number> {
  // A shell requests completions with the words of the line. The first word is the program's name.
  const completing = argv[0] === '--get-yargs-completions';
  const [first, second] = (completing ? argv.slice(2) : argv).filter((word) => !word.startsWith('-'));
  const name = [`${first} ${second}`, first].find((words) => Object.hasOwn(verbs, words ?? '')) ?? null;
  const group = listed().filter((words) => words.startsWith(`${first} `));
  if (first !== undefined && name === null && !completing && first !== COMPLETION) requireGroup(first, second, group);
  const outcome: { code: number } = { code: 0 };
  // Starts in parallel with loading the verb, which takes longer.
  if (first !== undefined && EVALUATING.has(first) && !completing) startInterpreter();
  const [action] = await Promise.all([
    name === null ? null : verbs[name].load(),
    name === null ? null : import('../recipes/settings.js'),
  ]);
  const usage = name === null ? `editrl ${group.length > 0 ? `${first} <action>` : '<verb>'}` : `editrl ${name}`;
  const parser = baseParser(argv, action === null ? usage : `${usage} ${action.positionals}`.trim());
  if (name !== null && action !== null) {
    const [own, inner] = name.split(' ');
    const { summary } = verbs[name];
    if ((inner as string | undefined) === undefined) addAction(parser, own, summary, action, outcome);
    else {
      parser.command(own, summary, (within) => {
        addAction(within, inner, summary, action, outcome);
        return within.demandCommand(1);
      });
    }
  } else if (group.length > 0) {
    parser.command(first, '', (within) => {
      for (const words of group) within.command(words.slice(words.indexOf(' ') + 1), verbs[words].summary, {});
      return within.demandCommand(1, `Missing action. Allowed: ${actionsIn(group).join(', ')}.`);
    });
  } else {
    // Completion goes word by word. Help lists whole verbs.
    for (const words of completing ? firstWords() : listed()) parser.command(words, verbs[words]?.summary ?? '', {});
  }
  parser.completion(COMPLETION, 'Print a completion script for bash or zsh');
  if (argv.length === 0) {
    printError(withoutNoise(await parser.getHelp()));
    return usageExitCode;
  }
  let printed = '';
  await parser.parseAsync([...argv], {}, (_error, _args, output) => {
    printed = output;
  });
  if (printed !== '') print(withoutNoise(printed));
  return outcome.code;
}

/** Placeholder for the type of an option, which `withoutNoise` removes with its brackets. */
const NOISE = '~';

/** Help without the types of options. */
function withoutNoise(help: string): string {
  return help.replaceAll(` [${NOISE}]`, '').replaceAll(`[${NOISE}]`, '').replaceAll(/ +$/gm, '');
}

const usageExitCode = 2;
const COMPLETION = 'completion';

/** Verbs of other programs, and the verbs here that do the same. */
const MEANT: ReadonlyMap<string, string> = new Map([
  ['train', 'run'],
  ['start', 'run'],
  ['list', 'ls'],
  ['runs', 'ls'],
  ['delete', 'rm'],
  ['remove', 'rm'],
  ['kill', 'stop'],
  ['show', 'report'],
  ['validate', 'check'],
  ['eval', 'evaluate'],
  ['diff', 'compare'],
]);

/** Raises UsageError with the nearest verb for an unknown verb or action. */
function requireGroup(first: string, second: string | undefined, group: readonly string[]): void {
  if (group.length > 0 && second === undefined) return;
  const [found, allowed] =
    group.length === 0
      ? [`unknown verb '${first}'`, [...firstWords(), COMPLETION]]
      : [`unknown action '${first} ${second}'`, actionsIn(group)];
  const word = group.length === 0 ? first : String(second);
  const known = nearest(word, group.length === 0 ? [...allowed, ...MEANT.keys()] : allowed);
  const close = known !== null && group.length === 0 ? (MEANT.get(known) ?? known) : known;
  const verb = close !== null && group.length > 0 ? `${first} ${close}` : (close ?? nearest(word, firstWords()));
  throw new UsageError(`${found}; allowed: ${allowed.join(', ')}`, {
    next:
      verb === null
        ? `\`editrl ${group.length === 0 ? '' : `${first} `}--help\` describes them.`
        : `Did you mean: editrl ${verb}?`,
  });
}

function actionsIn(group: readonly string[]): string[] {
  return group.map((words) => words.slice(words.indexOf(' ') + 1));
}

/** The verbs that help lists. */
function listed(): string[] {
  return Object.keys(verbs).filter((name) => verbs[name].hidden !== true);
}

function firstWords(): string[] {
  return [...new Set(listed().map((name) => name.split(' ')[0]))];
}

function addAction(parser: Argv, name: string, summary: string, action: Action, outcome: { code: number }): void {
  parser.command(`${name} ${action.positionals}`.trim(), summary, action.build, async (args) => {
    outcome.code = await action.run(args);
  });
}

/** Message for missing positional arguments. */
const TOO_FEW = 'too few arguments';

const TAGLINE = 'Reinforcement learning for image editors and vision-language models, run from Jsonnet configs.';

function baseParser(argv: readonly string[], usage: string): Argv {
  const parser: Argv = yargs([...argv])
    .scriptName('editrl')
    .usage(`$0 <verb> …\n\n${TAGLINE}`)
    .option('debug', { type: 'boolean', describe: 'Print stack traces', global: true })
    .parserConfiguration({
      'duplicate-arguments-array': true,
      'camel-case-expansion': false,
      'parse-positional-numbers': false,
    })
    .demandCommand(1, 'Missing verb.')
    .strict()
    .epilogue(
      'Exit codes: 0 success, 1 failed or blocked, 2 wrong usage or config, 3 server not reachable, 130 interrupted.',
    )
    .wrap(Math.min(110, outputWidth()))
    .help()
    .alias('h', 'help')
    .version(programVersion())
    .middleware(setLibrary)
    .exitProcess(false)
    .locale('en')
    .updateLocale({
      'Not enough arguments following: %s': '--%s needs a value',
      'Not enough non-option arguments: got %s, need at least %s': {
        one: TOO_FEW,
        other: TOO_FEW,
      } as unknown as string,
      'Missing required argument: %s': { one: 'missing --%s', other: 'missing --%s' } as unknown as string,
      'Show help': 'Show this help',
      'Show version number': 'Print the version',
      ...Object.fromEntries(['boolean', 'string', 'array', 'required'].map((type) => [type, NOISE])),
    })
    .fail((message, error) => {
      // yargs types both as always present, but either can be missing. It reports wrong usage as a YError.
      const cause = error as Error | undefined;
      if (cause !== undefined && cause.name !== 'YError') throw cause;
      const text = cause?.message ?? message;
      const next = `Usage: ${usage}. Add --help for its flags and examples.`;
      if (text.startsWith(TOO_FEW)) {
        const [verb, ...needed] = usage.split(/ (?=[<[])/);
        throw new UsageError(
          `${verb.slice('editrl '.length)} needs ${needed.filter((one) => one.startsWith('<')).join(' ')}`,
          { next },
        );
      }
      const unknown = /^Unknown arguments?: ([^,]+)/.exec(text)?.[1];
      // yargs reads each letter of a word with one dash as a separate flag.
      const dashed = unknown === undefined ? undefined : argv.find((word) => /^-[A-Za-z][\w-]/.test(word));
      const close = nearestFlag(/^-([\w-]+)/.exec(dashed ?? '')?.[1] ?? unknown, parser);
      throw new UsageError(
        dashed === undefined ? unknownText(text, argv) : `${dashed}: long flags start with two dashes`,
        { next: close === null ? next : `Did you mean --${close}?` },
      );
    });
  return parser;
}

/** The message for unknown arguments, which yargs names without their dashes. Other texts stay as they are. */
function unknownText(text: string, argv: readonly string[]): string {
  const names = /^Unknown arguments?: (.*)/.exec(text)?.[1];
  if (names === undefined) return text;
  const isFlag = (name: string): boolean =>
    argv.some((word) => word.replace(/^--?(?:no-)?/, '').split('=')[0] === name && word.startsWith('-'));
  const shown = names.split(', ').map((name) => (isFlag(name) ? `flag --${name}` : `argument '${name}'`));
  return `unknown ${shown.join(' and ')}`;
}

/** The known flag nearest to an unknown one. The types of yargs lack `getOptions`. */
function nearestFlag(unknown: string | undefined, parser: Argv): string | null {
  if (unknown === undefined) return null;
  const { key } = (parser as Argv & { getOptions(): { key: Readonly<Record<string, unknown>> } }).getOptions();
  return nearest(unknown, Object.keys(key));
}

/** Prints an error, with a stack trace only if `debug` is set. Returns the exit code. */
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
      : `editrl: ${message}\n  ${advice ?? 'Run the command again with --debug to print a stack trace.'}`,
  );
  return 1;
}

if (process.argv[1] !== undefined && isEntryPoint(process.argv[1])) {
  outliveReaders();
  // Node loads some of its parts lazily, and an error in them reaches no caller.
  process.on('uncaughtException', (error) => process.exit(report(error, process.argv.includes('--debug'))));
  process.exitCode = await main(process.argv.slice(2));
}

/** Whether node was started with this file, directly or through npm's link to the binary. */
function isEntryPoint(script: string): boolean {
  try {
    return realpathSync(script) === fileURLToPath(import.meta.url);
  } catch {
    return false;
  }
}
