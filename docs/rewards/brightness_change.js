/**
 * How much brighter or darker the edit is than its source: 1 at `settings.at` levels of 255 or more, 0 for none.
 * An example of a reward on images; docs/reward_modules.md says what each part is for.
 */

/** Mean luma (Rec. 601) of an image: { width, height, data }, data being RGB bytes row by row. */
function brightness({ width, height, data }) {
  let sum = 0;
  for (let i = 0; i < data.length; i += 3) sum += 0.299 * data[i] + 0.587 * data[i + 1] + 0.114 * data[i + 2];
  return sum / (width * height);
}

export default {
  needs: { source: true },

  check({ at = 64, ...others }) {
    if (Object.keys(others).length > 0) return `unknown settings: ${Object.keys(others).join(', ')}; allowed: at`;
    return typeof at === 'number' && at > 0
      ? null
      : `settings.at: found ${JSON.stringify(at)}; allowed: a positive number`;
  },

  score({ source, edited }, { settings: { at = 64 } }) {
    const difference = Math.abs(brightness(edited) - brightness(source));
    return { kind: 'scored', normalised: Math.min(1, difference / at), parts: { difference } };
  },
};
