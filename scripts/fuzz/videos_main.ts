/** `npm run fuzz:videos -- --count 200 --seed 1`: reads odd video files with the clip reader; exits with 1 if a case goes wrong. */
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { checkOddVideos, makeOddVideo, readOddVideo, type OddResult } from './videos.js';

const { values } = parseArgs({
  options: {
    count: { type: 'string', default: '200' },
    seed: { type: 'string', default: '1' },
    /** The folder in which the files are made and kept; by default they are deleted. */
    folder: { type: 'string' },
    /** Prints every message. */
    messages: { type: 'boolean', default: false },
  },
});
const folder = values.folder ?? mkdtempSync(join(tmpdir(), 'editrl-videos-'));
mkdirSync(folder, { recursive: true });
try {
  const results: OddResult[] = [];
  for (let number = 0; number < Number(values.count); number++) {
    const result = await readOddVideo(makeOddVideo(folder, values.seed, number));
    results.push(result);
    if (result.wrong !== null) {
      console.error(`${result.path}: ${result.wrong}${result.message === null ? '' : `\n  ${result.message}`}`);
    } else if (values.messages && result.message !== null) console.log(result.message);
  }
  const unlisted = await checkOddVideos(folder, results);
  for (const line of unlisted) console.error(line);
  const refused = results.filter(({ message }) => message !== null).length;
  const wrong = results.filter((result) => result.wrong !== null).length + unlisted.length;
  const untold = results.filter((result) => result.untold).length;
  console.log(
    `${results.length} files of ${new Set(results.map(({ kind }) => kind)).size} kinds: ${results.length - refused} shown, ${refused} refused, ${wrong} ended badly; ${untold} of those shown are damaged, of which their coding tells nothing`,
  );
  process.exitCode = wrong === 0 ? 0 : 1;
} finally {
  if (values.folder === undefined) rmSync(folder, { recursive: true });
}
