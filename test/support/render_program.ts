import { built } from './programs.js';

export const renderProgram = built('models/chat/render_main');
