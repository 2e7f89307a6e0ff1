// @ts-check

/**
 * The first place in `sorted` whose value is greater than `value`.
 * @param {ArrayLike<number>} sorted
 * @param {number} value
 * @param {number} [length] of the part of it that counts
 */
export function above(sorted, value, length = sorted.length) {
  let low = 0, high = length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] > value) high = middle; else low = middle + 1;
  }
  return low;
}
