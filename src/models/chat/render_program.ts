/** Path of the compiled program that renders chat templates in its own process. */
import { fileURLToPath } from 'node:url';

export const renderProgram = fileURLToPath(new URL('./render_main.js', import.meta.url));
