/** `editrl mcp`: offers this program's verbs to an agent as tools, over standard input and output. */
import { once } from 'node:events';
import { serveStdio, StdioServerTransport } from '@modelcontextprotocol/server/stdio';
import { mcpServer, protocolStream } from './mcp/server.js';
import { StartedCommands } from './mcp/started.js';
import { printError } from './output.js';
import type { Action } from './verb.js';

export const mcpVerb: Action = {
  positionals: '',
  build: (yargs) =>
    yargs.example('$0 mcp', 'what an agent starts: plan, run, sweep, status, report, compare, config check and schema'),
  run: async () => {
    const started = new StartedCommands([process.execPath, process.argv[1]]);
    const transport = new StdioServerTransport(process.stdin, protocolStream());
    serveStdio(() => mcpServer(started), { transport, onerror: (error) => printError(`warning: ${error.message}`) });
    await once(process.stdin, 'close');
    return 0;
  },
};
