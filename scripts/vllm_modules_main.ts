/** The command `scripts/vllm_modules`. */
import { parseArgs } from 'node:util';
import { EditrlError } from '../src/core/errors.js';
import { writeModules } from '../src/launch/servers/vllm.js';

const HELP = `scripts/vllm_modules FOLDER

Writes the Python modules that vLLM loads by its flags (docs/guide/gpus-and-servers.md) into FOLDER. Add FOLDER to
PYTHONPATH of a vLLM that you start yourself. A run passes them to a vLLM that it starts.`;

const { values, positionals } = parseArgs({ allowPositionals: true, options: { help: { type: 'boolean' } } });
const [folder] = positionals;
if (values.help === true) console.log(HELP);
else if (positionals.length !== 1) {
  console.error(HELP);
  process.exitCode = 2;
} else {
  try {
    writeModules(folder);
    console.log(`wrote ${folder}`);
  } catch (error) {
    if (!(error instanceof EditrlError)) throw error;
    console.error(error.toText());
    process.exitCode = error.exitCode;
  }
}
