/** `editrl serve rewards`: loads a reward and scores requests with it. */
import { renameSync, writeFileSync } from 'node:fs';
import { ConfigError, EndpointError, must, UsageError } from '../../core/errors.js';
import { runResolver } from '../../launch/models/wanted.js';
import { openServedReward } from '../../launch/reward/server.js';
import { requireToken } from '../../core/http/guard.js';
import type { RewardSettings } from '../../rewards/schema/reward.js';
import { comparesAnswers, decidingTerms } from '../../rewards/score/choice.js';
import { weightedNames } from '../../rewards/score/weighted.js';
import { startRewardServer } from '../../rewards/server/server.js';
import { defaultLimits, type ServerLimits } from '../../rewards/server/scorer.js';
import { defaultTokenVariable } from '../../rewards/server/wire.js';
import { printError, printLine } from '../shared/output.js';
import { rewardOfConfig, rewardOfFlags, type NamedReward } from '../shared/reward_settings.js';
import { INTERRUPTED } from '../shared/signals.js';
import { onReasonToStop, servingOptions, tokenOf } from './serving.js';
import { changeOptions, flag, numberOption, text, wholeNumber, type Action, type Arguments } from '../shared/verb.js';

const MIB = 1024 * 1024;

interface LimitFlag {
  readonly limit: keyof ServerLimits;
  /** One unit of the flag, in units of the limit. */
  readonly unit: number;
  readonly describe: string;
}

/** Flags for limits. */
const limitFlags: Readonly<Record<string, LimitFlag>> = {
  'max-body-mb': { limit: 'bodyBytes', unit: MIB, describe: 'Megabytes per request, or per line of a stream' },
  'max-held-mb': { limit: 'heldBytes', unit: MIB, describe: 'Megabytes of all open requests' },
  'max-decoded-mb': { limit: 'decodedBytes', unit: MIB, describe: 'Megabytes of decoded pixels at once' },
  'max-pixels': { limit: 'pixels', unit: 1, describe: 'Pixels per image' },
  'max-requests': { limit: 'requests', unit: 1, describe: 'Concurrent requests. More are rejected with status 429' },
  concurrency: { limit: 'concurrency', unit: 1, describe: 'Items scored at once' },
  'request-timeout-s': { limit: 'requestTimeoutMs', unit: 1000, describe: 'Seconds for a request to arrive' },
  'score-timeout-s': { limit: 'scoreTimeoutMs', unit: 1000, describe: 'Seconds to score one item' },
  'drain-timeout-s': {
    limit: 'drainTimeoutMs',
    unit: 1000,
    describe: 'Seconds for open requests to finish on shutdown',
  },
};

export const rewardsVerb: Action = {
  positionals: '',
  build: (yargs) => {
    servingOptions(yargs, defaultTokenVariable)
      .option('config', { type: 'string', describe: 'Jsonnet file whose reward to serve' })
      .options(changeOptions)
      .option('terms', {
        type: 'string',
        describe: 'Instead of --config: terms with weights, such as a=0.6,b=0.4',
      })
      .option('ocr-weight', numberOption('With --terms: weight of the OCR term'))
      .option('vlm-weight', numberOption('With --terms: weight of the judge term'))
      .option('endpoint', { type: 'string', describe: 'With --terms: URL of the judge' })
      .option('model', { type: 'string', describe: 'With --terms: judge model' })
      .option('port', { ...numberOption('Port to listen on (0: a free port)'), default: 4876 })
      .option('host', { type: 'string', default: '127.0.0.1', describe: 'Address to listen on' });
    for (const [name, { limit, unit, describe }] of Object.entries(limitFlags)) {
      yargs.option(name, { ...numberOption(describe), default: defaultLimits[limit] / unit });
    }
    return yargs
      .option('url-file', { type: 'string', describe: 'Write the address to this file when the server is ready' })
      .example(
        '$0 serve rewards --terms ocr_confidence,align_quality --ocr-weight 0.6 --vlm-weight 0.4 --endpoint http://127.0.0.1:4877',
        'Then POST {"prompt": "...", "image": "<base64>"} to http://127.0.0.1:4876/score',
      )
      .example('$0 serve rewards --config configs/sft_s__rl_s.jsonnet --port 0', 'The reward of a config');
  },
  run: serve,
};

/** Raises ConfigError for a reward that compares the answers of a group. */
function requireGrades(settings: RewardSettings): void {
  const comparing = decidingTerms(settings).find(({ kind }) => comparesAnswers(kind));
  if (comparing === undefined) return;
  throw new ConfigError(
    `found the term '${comparing.name}', which compares the answers of a group; allowed: terms that score single answers`,
    { where: 'the reward', next: "Put it into the run's own reward.terms instead." },
  );
}

async function serve(args: Arguments): Promise<number> {
  const port = must(wholeNumber(args, 'port', 0, 65_535), '--port');
  const host = text(args, 'host');
  const token = tokenOf(args, defaultTokenVariable);
  // Checks the address before loading anything large, so that an invalid one fails immediately.
  requireToken(host, token);
  const { settings, runs } = await readSettings(args);
  requireGrades(settings);
  const stop = new AbortController();
  const stopped = new Promise<void>((resolve) => stop.signal.addEventListener('abort', () => resolve()));
  onReasonToStop(args, () => {
    // A second reason to stop ends the process, in case the first one hangs.
    if (stop.signal.aborted) process.exit(INTERRUPTED);
    stop.abort();
  });
  const reward = await openServedReward(settings, {
    resolveRun: runResolver(runs),
    onNote: printError,
    onWaiting: (found, waitedS) => printError(`waiting for the judge (${Math.round(waitedS)} s): ${found}`),
    signal: stop.signal,
    judge: { notice: printError, lost: (error) => stop.abort(error), over: stop.signal },
  }).catch((error: unknown) => {
    throwIfJudgeLost(stop.signal);
    throw error;
  });
  try {
    const server = await startRewardServer({
      host,
      port,
      token,
      reward,
      limits: readLimits(args),
      onDefect: (error) => printError(error instanceof Error ? (error.stack ?? error.message) : String(error)),
    });
    if (text(args, 'url-file') !== '') writeWhole(text(args, 'url-file'), `${server.url}\n`);
    if (flag(args, 'json')) {
      printLine(JSON.stringify({ url: server.url, reward: reward.digest, terms: reward.terms, pid: process.pid }));
    } else {
      printLine(
        `Reward server of ${weightedNames(reward.terms)}: ${server.url}/score. Press Ctrl-C to finish open requests and stop.`,
      );
    }
    await stopped;
    await server.close();
    throwIfJudgeLost(stop.signal);
  } finally {
    await reward.close();
  }
  return 0;
}

async function readSettings(args: Arguments): Promise<NamedReward> {
  const [file, terms] = [text(args, 'config'), text(args, 'terms')];
  if ((file === '') === (terms === '')) {
    throw new UsageError(`found ${file === '' ? 'neither' : 'both'} of --config and --terms; allowed: one of them`, {
      next: '`editrl serve rewards --help` has an example of each.',
    });
  }
  return terms === '' ? rewardOfConfig(args) : rewardOfFlags(args);
}

function readLimits(args: Arguments): Partial<ServerLimits> {
  const entries = Object.entries(limitFlags).map(([name, { limit, unit }]) => [
    limit,
    unit * must(wholeNumber(args, name, 1), `--${name}`),
  ]);
  return Object.fromEntries(entries) as Partial<ServerLimits>;
}

/** Writes a file atomically. */
function writeWhole(path: string, content: string): void {
  writeFileSync(`${path}.part`, content);
  renameSync(`${path}.part`, path);
}

/** A server without its judge cannot score. It ends, so that clients use the other servers of the pool. */
function throwIfJudgeLost({ reason }: AbortSignal): void {
  if (reason instanceof EndpointError) throw reason;
}
