/** The command `scripts/setup_datasets`. */
import { parseArgs } from 'node:util';
import { EditrlError } from '../src/core/errors.js';
import { HubClient } from '../src/models/hub/client.js';
import { hubEnvironment } from '../src/models/hub/cache.js';
import { published, readArchive, setUpDatasets } from './setup_datasets.js';

const HELP = `scripts/setup_datasets [FOLDER] [--from OWNER/NAME[@REVISION]:FILE.tar.gz …]

Fetches EARL's datasets from the Hub into FOLDER (default: APP__DATA_DIR, or data), in the layout of configs/. After an interruption, repeat the
command: it continues. HF_ENDPOINT, HF_HOME, HF_TOKEN and proxies are read from the environment. Without --from it fetches
${published.map(({ dataset, file }) => `  ${dataset}:${file}`).join('\n')}`;

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { from: { type: 'string', multiple: true }, help: { type: 'boolean' } },
});
if (values.help === true) console.log(HELP);
else {
  const client = new HubClient(hubEnvironment());
  try {
    const archives = values.from?.map(readArchive) ?? published;
    const folder = positionals[0] ?? process.env['APP__DATA_DIR'] ?? 'data';
    await setUpDatasets(folder, archives, client, (line) => console.log(line));
  } catch (error) {
    if (!(error instanceof EditrlError)) throw error;
    console.error(error.toText());
    process.exitCode = error.exitCode;
  } finally {
    await client.close();
  }
}
