/** The command `scripts/relabel_emu3`. */
import { parseArgs } from 'node:util';
import { EditrlError } from '../src/core/errors.js';
import { relabelEmu3 } from './relabel_emu3.js';

const HELP = `scripts/relabel_emu3 FOLDER OUT

Makes OUT from FOLDER with Emu3's decoder: the same model as a Llama, which has the same architecture, for servers without Emu3.
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
