/**
 * Texts of policies and datasets in a judge's question. Chat servers read control tokens such as `<|im_end|>` wherever they occur in a message, so such
 * a text could end the question and write the judge's reply itself.
 */

/**
 * One character of whatever a tokenizer may take for a control token: the bar of `<|im_end|>` and `<｜User｜>`, the bracket of `</s>`,
 * `<end_of_turn>` and `[INST]`. Names differ by model, so any tag without attributes counts.
 */
const controlCharacter =
  /(?<=<)[|\uff5c]|<(?=\/?[\p{L}_][\p{L}\p{N}_:.\u2581-]*>)|\[(?=\/?[A-Za-z_]*[A-Z]{2}[A-Z0-9_]*\])/gu;

/** The text with its control tokens broken: one character of each is written as its JSON escape, which means the same within a JSON string. */
export function plainText(text: string): string {
  return text.replace(controlCharacter, (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`);
}
