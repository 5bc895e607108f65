/** Packing tokenizes images with a network. */
module.exports = {
  below: ['compute', 'core'],
};
