/** `editrl dashboard`: serves a page with live runs. */
import { must } from '../core/errors.js';
import { randomBytes } from 'node:crypto';
import { requireToken } from '../core/http/guard.js';
import { searchFolders } from '../run/find.js';
import { DEFAULT_PORT, startDashboard } from '../web/server.js';
import { printError, printLine } from './shared/output.js';
import { onReasonToStop, tokenOf } from './serve/serving.js';
import { expDirOption, flag, numberOption, switchOption, text, wholeNumber, type Action } from './shared/verb.js';

export const dashboardVerb: Action = {
  positionals: '',
  build: (yargs) =>
    yargs
      .option('exp-dir', expDirOption)
      .option('port', { ...numberOption('Port to listen on (0: a free port)'), default: DEFAULT_PORT })
      .option('token-env', {
        type: 'string',
        describe: 'Environment variable with the access token (default: a new token, in the printed address)',
      })
      .option(
        'exit-with-parent',
        switchOption('Stop when standard input closes, for example when the parent process dies'),
      )
      .option('json', switchOption('Print the address as one line of JSON'))
      .example('$0 dashboard', 'Then open the printed address')
      .example(
        '$0 dashboard --exp-dir runs/tiny --port 0',
        'From another machine: ssh -L PORT:127.0.0.1:PORT HOST, then open the same address',
      ),
  run: async (args) => {
    const port = must(wholeNumber(args, 'port', 0, 65_535), '--port');
    const named = tokenOf(args);
    if (named !== null) requireToken('127.0.0.1', named);
    const token = named ?? randomBytes(32).toString('hex');
    const folders = searchFolders(text(args, 'exp-dir'));
    const dashboard = await startDashboard({
      port,
      token,
      folders,
      program: [process.execPath, process.argv[1]],
      onDefect: (error) => printError(error instanceof Error ? (error.stack ?? error.message) : String(error)),
    });
    const stopped = new Promise<void>((resolve) => onReasonToStop(args, () => resolve()));
    // Browsers do not send the part after the #, so requests do not log the token. A token from the caller is not printed.
    const address = named === null ? `${dashboard.url}/#token=${token}` : `${dashboard.url}/`;
    if (flag(args, 'json')) {
      printLine(JSON.stringify({ url: dashboard.url, address, ...(named === null ? { token } : {}), folders }));
    } else {
      printLine(`Dashboard of ${folders.join(' and ')}: ${address}`);
      printLine('Anyone with this address can start and stop runs. Press Ctrl-C to stop the dashboard. Runs continue.');
    }
    await stopped;
    await dashboard.close();
    return 0;
  },
};
