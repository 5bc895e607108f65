/** An MCP server with the tools of this program. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { Writable } from 'node:stream';
import { McpServer, type CallToolResult } from '@modelcontextprotocol/server';
import { EditrlError } from '../../core/errors.js';
import { projectRoot } from '../../core/files.js';
import type { StartedCommands } from './started.js';
import { TOOLS, type Tool } from './tools.js';

const INSTRUCTIONS = [
  'editrl trains image-editing and vision-language policies by reinforcement learning, from Jsonnet configs.',
  'Check a config (config_check) and look at an experiment (plan) before starting it (run, sweep); what was started goes on by itself: watch it with status.',
  'Keep a change only where a report of an experiment over several seeds says that its paired difference from the baseline is larger than two standard errors.',
].join(' ');

/** A server whose tools are those of `TOOLS`. */
export function mcpServer(started: StartedCommands): McpServer {
  const { version } = JSON.parse(readFileSync(join(projectRoot(), 'package.json'), 'utf8')) as { version: string };
  const server = new McpServer({ name: 'editrl', version }, { instructions: INSTRUCTIONS });
  for (const [name, tool] of Object.entries(TOOLS)) {
    const { description, input: inputSchema, output: outputSchema, starts } = tool;
    const annotations = { readOnlyHint: !starts, destructiveHint: false, openWorldHint: false };
    server.registerTool(name, { description, inputSchema, outputSchema, annotations }, (args) =>
      answer(tool, args, started),
    );
  }
  return server;
}

/** A tool's result, also as text for clients that do not read structured content; or the error message that the command line would print. */
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

/** A stream to the original standard output; from now on anything else that is written to standard output goes to standard error. */
export function protocolStream(
  stdout: Pick<NodeJS.WriteStream, 'write'> = process.stdout,
  stderr: Pick<NodeJS.WriteStream, 'write'> = process.stderr,
): Writable {
  const write = stdout.write.bind(stdout) as (chunk: unknown, done: () => void) => boolean;
  stdout.write = stderr.write.bind(stderr);
  return new Writable({ write: (chunk, _encoding, done) => void write(chunk, done) });
}
