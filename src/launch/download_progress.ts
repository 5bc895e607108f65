/** How far a download is: in place on a terminal, by a line now and then elsewhere. */
import { megabytes } from '../models/hub/fetch.js';

const IN_PLACE_EVERY_MS = 200;
const LINE_EVERY_MS = 30_000;

export interface DownloadProgress {
  /** So many bytes of all are there. */
  tell(done: number, all: number): void;
  end(): void;
}

export function progressLines(
  name: string,
  terminal: NodeJS.WriteStream | null,
  say: (line: string) => void,
  now: () => number = Date.now,
): DownloadProgress {
  const inPlace = terminal?.isTTY === true ? terminal : null;
  let last = now();
  let shown = false;
  return {
    tell(done, all) {
      if (now() - last < (inPlace === null ? LINE_EVERY_MS : IN_PLACE_EVERY_MS)) return;
      last = now();
      const line = `${name}: ${megabytes(done)} of ${megabytes(all)} (${Math.floor((100 * done) / all)}%)`;
      if (inPlace === null) say(line);
      else inPlace.write(`\r\u001b[K${line}`);
      shown = inPlace !== null;
    },
    end() {
      if (shown) inPlace?.write('\r\u001b[K');
    },
  };
}
