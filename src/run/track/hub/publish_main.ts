/**
 * The process that publishes one checkpoint during the run, because merging needs memory and time of its own.
 * Its only argument is a request as JSON. The token is in the environment. Prints the result as one JSON document.
 */
import { constants, setPriority } from 'node:os';
import { EditrlError } from '../../../core/errors.js';
import { hubEnvironment } from '../../../models/hub/cache.js';
import { RunPaths } from '../../paths.js';
import { publishCheckpoint } from './publish.js';
import type { PublishReply, SentRequest } from './forward.js';

// Training has priority.
setPriority(constants.priority.PRIORITY_LOW);
const { dir, ...request } = JSON.parse(process.argv[2]) as SentRequest;
let reply: PublishReply;
try {
  const paths = RunPaths.ofDirectory(dir);
  const { repository, url, commit } = await publishCheckpoint({ ...request, paths }, hubEnvironment());
  reply = { repository, url, commit };
} catch (error) {
  const text =
    error instanceof EditrlError ? error.toText() : error instanceof Error ? (error.stack ?? '') : String(error);
  reply = { problem: text, lasting: error instanceof EditrlError && error.code === 'config' };
}
process.stdout.write(`${JSON.stringify(reply)}\n`);
