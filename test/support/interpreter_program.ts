import { built } from './programs.js';

export const interpreterProgram = built('config/interpreter_main');
