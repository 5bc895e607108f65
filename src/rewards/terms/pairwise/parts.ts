/** Parts of comparisons that others read. */

/** The share of an answer's questions in which the picture that is shown first is found better; a tie counts half. */
export const FIRST_SHOWN = 'pairwise/first_shown_wins';
