import { nothingGamesTheJudge } from './gaming_cases.js';

nothingGamesTheJudge(1000);
