/** Pictures of a render server. */
import type { Deadline } from '../core/deadline.js';
import {
  RenderClient,
  renderHash,
  type Longest,
  type RenderAsked,
  type RenderWanted,
} from '../environments/render_server/client.js';
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

/** The states that a server is sent. */
export interface SentStates {
  readonly width: number;
  /** Of the run's longest edit, which is asked for where nothing of the run is stored yet. */
  readonly longest: () => Promise<Longest>;
}

/** As `openServers`. */
export function openRenderServer(
  run: PicturedRun,
  settings: RenderEditor,
  { width, longest }: SentStates,
  services: PictureServices,
): Promise<ServerImages<RenderAsked>> {
  const first = async (client: RenderClient, within: Deadline): Promise<void> => client.ready(within, await longest());
  return openServers(
    run,
    { ...serversOf(settings, width), first, hash: (asked) => renderHash(settings, asked) },
    services,
  );
}

/** As `storedPictures`: they are found by the digest of the states, without these. */
export function openStoredRenders(run: PicturedRun, settings: RenderEditor): ServedPictures<RenderWanted> {
  return storedPictures<RenderWanted>(run, (wanted) => renderHash(settings, wanted));
}

/** As `lookAtServers`. */
export function lookAtRenderServer(settings: RenderEditor, width: number | null): Promise<readonly string[]> {
  return lookAtServers(serversOf(settings, width));
}

function serversOf(
  settings: RenderEditor,
  width: number | null,
): Pick<PictureServers<RenderAsked, RenderClient>, 'name' | 'settings' | 'open'> {
  return {
    name: 'render server',
    settings,
    open: ({ concurrency, ...services }) =>
      new RenderClient({ settings: { ...settings, concurrency }, width, ...services }),
  };
}
