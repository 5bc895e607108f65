/** The command `scripts/relabel_emu3`. */
import { parseArgs } from 'node:util';
import { EditrlError } from '../src/core/errors.js';
import { relabelEmu3 } from './relabel_emu3.js';

const HELP = `scripts/relabel_emu3 FOLDER OUT

Makes OUT from FOLDER, which holds Emu3's decoder: the same model under the name of Llama, whose shape it has, for servers that do not know Emu3.
Weights are links to those of FOLDER.`;

const { values, positionals } = parseArgs({ allowPositionals: true, options: { help: { type: 'boolean' } } });
const [folder, out] = positionals;
if (values.help === true) console.log(HELP);
else if (positionals.length !== 2) {
  console.error(HELP);
  process.exitCode = 2;
} else {
  try {
    relabelEmu3(folder, out);
    console.log(`wrote ${out}`);
  } catch (error) {
    if (!(error instanceof EditrlError)) throw error;
    console.error(error.toText());
    process.exitCode = error.exitCode;
  }
}
