/** The embedded judge's process: serves the connections that a KeptServer hands over, and ends with it. Arguments: model names that it answers to. */
import type { Socket } from 'node:net';
import { serveConnections } from '../tiny/judge/server.js';
import type { FromServer } from './kept_server.js';

const serve = serveConnections({ models: process.argv.slice(2) });
const tell = (word: FromServer): void => void process.send?.(word);

process.on('disconnect', () => process.exit(0));
process.on('message', (_message, socket) => {
  // Without one, its client went away before it was handed over.
  if (socket !== undefined) serve(socket as Socket);
  tell('taken');
});
tell('up');
