/** Path of the compiled program that tries a reward module in its own process. */
import { fileURLToPath } from 'node:url';

export const tryProgram = fileURLToPath(new URL('./try_main.js', import.meta.url));
