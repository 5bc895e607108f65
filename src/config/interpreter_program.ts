/** Path of the compiled program that evaluates Jsonnet in its own process. */
import { fileURLToPath } from 'node:url';

export const interpreterProgram = fileURLToPath(new URL('./interpreter_main.js', import.meta.url));
