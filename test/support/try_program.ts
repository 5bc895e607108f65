import { built } from './programs.js';

export const tryProgram = built('rewards/terms/module/try_main');
