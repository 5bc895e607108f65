/**
 * Scores how little of the image changed: 1 if no pixel did, 0 if at least the share `limit` did.
 * An image is { width, height, data }. `data` holds the RGB bytes, row by row.
 */
export default {
  needs: { source: true },

  score({ source, edited }, { settings: { limit = 0.5 } }) {
    if (edited.width !== source.width || edited.height !== source.height) return 0;
    let changed = 0;
    for (let i = 0; i < source.data.length; i += 3) {
      if ([0, 1, 2].some((channel) => Math.abs(source.data[i + channel] - edited.data[i + channel]) > 16)) changed += 1;
    }
    return Math.max(0, 1 - changed / (source.width * source.height) / limit);
  },
};
