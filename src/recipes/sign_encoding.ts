/** What the encoders of signs make, which have no weights: the width of a text token and of a style image's features follow from it. */

/** What a quoted word may consist of. */
export const LETTERS = 'ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789';

/** Width of the encoding of one of so many places: which letter stands there, or none, and which place it is. */
export const letterWidth = (places: number): number => LETTERS.length + 1 + places;

/** Side of the square that a style image is averaged down to. */
export const STYLE_SIDE = 4;
/** Numbers that a style image becomes. */
export const styleWidth = 3 * STYLE_SIDE ** 2;
