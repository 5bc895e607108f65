/**
 * Short answers: 1 for one of up to `settings.words` words, falling to 0 at twice as many; an empty answer is worth nothing.
 * An example of a reward on words, which has no image to look at.
 */
export default {
  needs: { edited: false },

  create({ words = 40 }) {
    return ({ answer = '' }) => {
      const found = answer.split(/\s+/).filter(Boolean).length;
      return found === 0 ? 0 : Math.min(1, Math.max(0, 2 - found / words));
    };
  },
};
