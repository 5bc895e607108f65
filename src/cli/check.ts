/** `editrl check CONFIG…`: reports invalid settings and everything that would block the runs on this machine. */
import { loadingOnce, type LoadedConfig } from '../config/load.js';
import { EditrlError } from '../core/errors.js';
import { exitCodeOf, lazy } from '../launch/preflight/obstacle.js';
import type { JudgeAddress } from '../rewards/judge/endpoints.js';
import type { RewardSettings } from '../rewards/schema/reward.js';
import type { LaunchReport } from './launch_check.js';
import { printError, printJson, printLine, printNote, printWarnings, styled } from './shared/output.js';
import {
  configOf,
  configOptions,
  flag,
  jsonOption,
  switchOption,
  texts,
  type Action,
  type Arguments,
} from './shared/verb.js';

export const checkVerb: Action = {
  positionals: '<config..>',
  build: (yargs) =>
    configOptions(yargs)
      .options({
        deep: switchOption('Also contact the judges, the reward servers and the Hub'),
        launch: switchOption(
          "Also start each run's processes, exchange tensors between them, and probe its training server",
        ),
        json: jsonOption,
      })
      .example('$0 check configs/sft_*.jsonnet --with configs/lib/tiny.libsonnet', 'Check several configs')
      .example('$0 check configs/sft_s__rl_s.jsonnet --deep', 'Also check that its judge is ready')
      .example('$0 check configs/sft_s__rl_s.jsonnet --launch --set launch.processes=2', 'Also start two processes')
      .epilogue('Exit codes: 0 ready, 1 something blocks a run on this machine, 2 a config must change.'),
  run: async (args) => {
    const json = flag(args, 'json');
    const { configs, exitCode } = await checkConfigs(args, json ? () => {} : printChecked);
    if (json) printJson({ configs });
    return exitCode;
  },
};

/** The result of checking one file. */
export interface CheckedFile {
  readonly file: string;
  /** Whether the config is valid, even if something blocks its run on this machine. */
  readonly ok: boolean;
  readonly error?: string;
  readonly run_name?: string;
  readonly warnings?: readonly string[];
  readonly resultHash?: string;
  readonly obstacles?: readonly { readonly run: string; readonly message: string }[];
  /** Notes that block nothing: models to download and, with `--deep`, notes about servers. */
  readonly notes?: readonly string[];
  /** With `--launch`, if nothing blocks the run. */
  readonly launch?: LaunchReport;
}

function printChecked({ file, run_name, error, warnings = [], notes = [], obstacles = [], launch }: CheckedFile): void {
  if (error !== undefined) {
    printError(`${styled('wrong', 'red', process.stderr)}  ${error}`);
    return;
  }
  const mark = obstacles.length > 0 ? styled('blocked', 'yellow') : styled('ok', 'green');
  printLine(`${mark}  ${file}  ${run_name ?? ''}`);
  if (launch !== undefined) printLine(`\n${launch.text}`);
  printWarnings(warnings);
  for (const note of notes) printNote(note);
  for (const { run, message } of obstacles) printError(`${run}: ${message}`);
}

/** Checks the given configs one after another. */
export async function checkConfigs(
  args: Arguments,
  onChecked: (checked: CheckedFile) => void,
): Promise<{ readonly configs: readonly CheckedFile[]; readonly exitCode: number }> {
  const [{ Preflight }, { chainOf }, { missingModels }, { detectDevices }] = await Promise.all([
    import('../launch/preflight/preflight.js'),
    import('../launch/chain.js'),
    import('../launch/models/wanted.js'),
    import('../launch/machine/devices.js'),
  ]);
  const preflight = new Preflight(flag(args, 'deep') ? judgeOf : undefined);
  const load = loadingOnce();
  const devices = lazy(() => detectDevices());
  const servers = flag(args, 'deep') ? await openNetwork() : null;
  const configs: CheckedFile[] = [];
  let exitCode = 0;
  for (const file of texts(args, 'config')) {
    let checked: CheckedFile;
    try {
      const config = await configOf(args, file);
      const chain = (await chainOf(config, new Set(), load)).map((link) => link.config);
      const { left, obstacles: found, warnings: remarks } = await preflight.check(chain, { devices });
      const reached = servers === null ? null : await servers.of(left);
      const missing = servers === null ? left.flatMap(({ settings }) => missingModels(settings)) : [];
      const notes = [...(reached?.notes ?? missing.map((model) => `not downloaded yet: ${model}`)), ...remarks()];
      // The reward trial may already have reported an unreachable server.
      const reported = new Set(found.map(({ error }) => error.toText()));
      const all = [...found, ...(reached?.obstacles ?? []).filter(({ error }) => !reported.has(error.toText()))].map(
        ({ run, error }) => ({ run, message: error.toText() }),
      );
      const { warnings, resultHash, settings } = config;
      const launched = flag(args, 'launch') && all.length === 0 ? await launch(config) : null;
      const obstacles = [...all, ...(launched !== null && 'message' in launched ? [launched] : [])];
      checked = {
        ...{ file, ok: true, run_name: settings.run_name, warnings, resultHash, obstacles: obstacles },
        ...(reached === null && notes.length === 0 ? {} : { notes }),
        ...(launched !== null && 'text' in launched ? { launch: launched } : {}),
      };
      exitCode = Math.max(exitCode, exitCodeOf(found), obstacles.length > 0 ? 1 : 0);
    } catch (error) {
      if (!(error instanceof EditrlError)) throw error;
      exitCode = Math.max(exitCode, error.exitCode);
      checked = { file, ok: false, error: error.toText() };
    }
    configs.push(checked);
    onChecked(checked);
  }
  await servers?.close();
  return { configs, exitCode };
}

/** The result of `--launch`, or the obstacle that stopped it. */
async function launch(
  config: LoadedConfig,
): Promise<LaunchReport | { readonly run: string; readonly message: string }> {
  const { checkLaunch } = await import('./launch_check.js');
  try {
    return await checkLaunch(config);
  } catch (error) {
    if (!(error instanceof EditrlError)) throw error;
    return { run: config.settings.run_name, message: error.toText() };
  }
}

/** The judge for `--deep` to contact. Null for an embedded judge, which starts with the run, and for an unknown host. */
async function judgeOf({ endpoint }: RewardSettings): Promise<JudgeAddress | null> {
  const isThere = typeof endpoint === 'string' ? endpoint !== '' && endpoint !== 'embedded' : Array.isArray(endpoint);
  return isThere ? { endpoint, token: null } : null;
}

/** Checks servers and the Hub together. */
async function openNetwork() {
  const [{ ServerChecks }, { HubModels }] = await Promise.all([
    import('../launch/preflight/reachable.js'),
    import('../launch/models/hub.js'),
  ]);
  const [servers, models] = [new ServerChecks(), new HubModels({ say: printNote })];
  return {
    of: async (runs: readonly LoadedConfig[]) => {
      const [reached, missing] = [await servers.of(runs), await models.obstacles(runs)];
      return {
        obstacles: [...missing, ...reached.obstacles],
        notes: [...(missing.length > 0 ? [] : await models.notes(runs)), ...reached.notes],
      };
    },
    close: () => models.close(),
  };
}
