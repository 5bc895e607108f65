/** Pictures of a render server. */
import { RenderClient, renderHash, type RenderAsked, type RenderWanted } from '../environments/render_server/client.js';
import type { ServedPictures, ServerImages } from '../environments/served/pictures.js';
import type { RenderEditor } from '../schema/editor.js';
import {
  lookAtServers,
  openServers,
  storedPictures,
  type PicturedRun,
  type PictureServers,
  type PictureServices,
} from './pictures_elsewhere.js';

/** As `openServers`; `width`: of the states that it is sent. */
export function openRenderServer(
  run: PicturedRun,
  settings: RenderEditor,
  width: number,
  services: PictureServices,
): Promise<ServerImages<RenderAsked>> {
  return openServers(run, serversOf(settings, width), services);
}

/** As `storedPictures`: they are found by the digest of the states, without these. */
export function openStoredRenders(run: PicturedRun, settings: RenderEditor): ServedPictures<RenderWanted> {
  return storedPictures<RenderWanted>(run, (wanted) => renderHash(settings, wanted));
}

/** As `lookAtServers`. */
export function lookAtRenderServer(settings: RenderEditor, width: number | null): Promise<readonly string[]> {
  return lookAtServers(serversOf(settings, width));
}

function serversOf(settings: RenderEditor, width: number | null): PictureServers<RenderAsked, RenderClient> {
  return {
    name: 'render server',
    settings,
    open: ({ concurrency, ...services }) =>
      new RenderClient({ settings: { ...settings, concurrency }, width, ...services }),
    first: (client, within) => client.ready(within),
    hash: (asked) => renderHash(settings, asked),
  };
}
