/** The lowest room. */
module.exports = {
  below: [],
};
