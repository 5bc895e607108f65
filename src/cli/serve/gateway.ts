/** `editrl serve gateway`: serves several identical judges as one. */
import { UsageError } from '../../core/errors.js';
import { gatewayOptionsSchema, type GatewayOptions } from '../../rewards/gateway/options.js';
import { startGateway } from '../../rewards/gateway/server.js';
import { printError, printLine } from '../shared/output.js';
import { onReasonToStop, servingOptions, tokenOf } from './serving.js';
import { flag, numberOf, numberOption, text, texts, type Action, type Arguments } from '../shared/verb.js';

const fields = gatewayOptionsSchema.shape;

/** Flags for one option each: the option's field and the type for yargs. */
const optionFlags = {
  model: ['model', 'string'],
  host: ['host', 'string'],
  port: ['port', 'number'],
  'max-concurrency': ['maxConcurrency', 'number'],
  quota: ['quota', 'number'],
  'max-queued': ['maxQueued', 'number'],
  'max-waiting': ['maxWaiting', 'number'],
  'max-body-mb': ['maxBodyMb', 'number'],
  'max-held-mb': ['maxHeldMb', 'number'],
  'max-images': ['maxImages', 'number'],
  'max-image-megapixels': ['maxImageMegapixels', 'number'],
  'timeout-s': ['timeoutS', 'number'],
  'drain-timeout-s': ['drainTimeoutS', 'number'],
  'breaker-failures': ['breakerFailures', 'number'],
} as const satisfies Readonly<Record<string, readonly [keyof typeof fields, 'string' | 'number']>>;

/** Repeatable flags. */
const listFlags = {
  upstream: ['upstreams'],
  'model-alias': ['modelAlias'],
} as const satisfies Readonly<Record<string, readonly [keyof typeof fields]>>;

export const gatewayVerb: Action = {
  positionals: '',
  build: (yargs) => {
    yargs.option('upstream', {
      type: 'string',
      array: true,
      nargs: 1,
      demandOption: true,
      describe: `${fields.upstreams.description} (required; repeatable)`,
    });
    yargs.option('model-alias', { type: 'string', array: true, describe: fields.modelAlias.description });
    for (const [name, [field, type]] of Object.entries(optionFlags)) {
      const preset = fields[field].safeParse(undefined).data;
      yargs.option(name, {
        ...(type === 'number' ? numberOption : { type }),
        describe: fields[field].description,
        ...(preset === undefined || preset === null ? {} : { defaultDescription: String(preset) }),
      });
    }
    return servingOptions(yargs)
      .option('upstream-key-env', {
        type: 'string',
        default: 'OPENAI_API_KEY',
        describe: 'Environment variable with the API key for the upstreams',
      })
      .example(
        '$0 serve gateway --upstream http://node1:4877 --upstream http://node2:4877 --model Qwen/Qwen2.5-VL-72B-Instruct',
        'Then set reward.endpoint to http://127.0.0.1:4878/v1',
      );
  },
  run: async (args) => {
    const gateway = await startGateway(readOptions(args), {
      token: tokenOf(args),
      upstreamKey: process.env[text(args, 'upstream-key-env')] || null,
      log: (level, line) => printError(`${new Date().toISOString()} ${level}: ${line}`),
    });
    const stopped = new Promise<void>((resolve) => {
      onReasonToStop(args, (times) => {
        if (times === 1) resolve();
        else void gateway.close();
      });
    });
    if (flag(args, 'json')) printLine(JSON.stringify({ url: gateway.url, model: text(args, 'model') }));
    else {
      printLine(`Gateway: ${gateway.url}. Press Ctrl-C to finish open requests and stop, twice to stop immediately.`);
    }
    await stopped;
    await gateway.drain();
    return 0;
  },
};

function readOptions(args: Arguments): GatewayOptions {
  const given = Object.entries(optionFlags).flatMap(([name, [field, type]]) => {
    if (args[name] === undefined) return [];
    return [[field, type === 'number' ? numberOf(args, name) : text(args, name)] as const];
  });
  const aliases = texts(args, 'model-alias');
  const parsed = gatewayOptionsSchema.safeParse({
    ...Object.fromEntries(given),
    ...(args['model-alias'] === undefined ? {} : { modelAlias: aliases.length === 0 ? true : aliases }),
    upstreams: texts(args, 'upstream'),
  });
  if (parsed.success) return parsed.data;
  const flags = [...Object.entries(optionFlags), ...Object.entries(listFlags)];
  const flagOf = (field: unknown): string => flags.find(([, [name]]) => name === field)?.[0] ?? '';
  const lines = parsed.error.issues.map(({ path, message }) => `--${flagOf(path[0])}: ${message}`);
  throw new UsageError(lines.join('\n'), { next: '`editrl serve gateway --help` lists every flag with its default.' });
}
