/** Where the program of the process that evaluates Jsonnet lies, compiled. */
import { fileURLToPath } from 'node:url';

export const interpreterProgram = fileURLToPath(new URL('./interpreter_main.js', import.meta.url));
