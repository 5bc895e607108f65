/** Where sentences about tracking go: those that a person should act on as warnings. */
export type Say = (line: string, level: 'info' | 'warn') => void;
