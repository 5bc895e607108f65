/** Sizes of the sign encoders' outputs, which have no weights: the width of a text token and of a style image's features. */

/** Characters of a quoted word. */
export const LETTERS = 'ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789';

/** Width of the encoding of one of `places` positions: its letter, or none, and its index. */
export const letterWidth = (places: number): number => LETTERS.length + 1 + places;

/** Side of the square to which a style image is averaged down. */
export const STYLE_SIDE = 4;
/** Number of features of a style image. */
export const styleWidth = 3 * STYLE_SIDE ** 2;
