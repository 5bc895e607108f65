/** Receives messages about tracking; those that a person should act on are warnings. */
export type Say = (line: string, level: 'info' | 'warn') => void;
