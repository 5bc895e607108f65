/** Model folders are opened as networks of compute. */
module.exports = {
  below: ['data', 'compute', 'core'],
};
