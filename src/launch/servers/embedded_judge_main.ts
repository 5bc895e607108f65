/**
 * The embedded judge's process: serves the connections that its launcher hands over, to clients that know its token, and ends with the launcher.
 * Arguments: model names that it answers to.
 */
import type { Socket } from 'node:net';
import { must } from '../../core/errors.js';
import { serveConnections } from '../../tiny/judge/server.js';
import type { FromServer } from './held_listener.js';
import { TOKEN_VARIABLE } from './token.js';

const token = must(process.env[TOKEN_VARIABLE], TOKEN_VARIABLE);
const serve = serveConnections({ models: process.argv.slice(2), token });
const tell = (word: FromServer): void => void process.send?.(word);

process.on('disconnect', () => process.exit(0));
process.on('message', (_message, socket) => {
  // Without a socket, the client disconnected before it was handed over.
  if (socket !== undefined) serve(socket as Socket);
  tell('taken');
});
tell('up');
